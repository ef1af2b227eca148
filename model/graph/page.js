'use strict';
// Draws the network of #data into #map. Text reaches the page as text nodes alone, never as markup.
const data = JSON.parse(document.getElementById('data').textContent);
const { nodes, edges } = data;
const byId = id => document.getElementById(id);
const map = byId('map');

// element makes an SVG element below parent.
function element(parent, tag, attributes = {}, text = '') {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text) e.textContent = text;
  parent.append(e);
  return e;
}

// html makes an HTML element; children are strings or elements.
function html(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter(c => c !== null && c !== ''));
  return e;
}

// --- The picture: one group for each edge and node, placed by draw().

const shapes = { // of radius 1
  router: 'M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z',
  host: 'M-.6-.85H.6A.25.25 0 0 1 .85-.6V.6A.25.25 0 0 1 .6.85H-.6A.25.25 0 0 1-.85.6V-.6A.25.25 0 0 1-.6-.85Z',
  switch: 'M0-1.15L1.15 0L0 1.15L-1.15 0Z',
  program: 'M-.55-.95H.55L1.1 0L.55 .95H-.55L-1.1 0Z',
  uplink: 'M0-1.1L1.15.9H-1.15Z',
  lan: 'M.55 0A.55.55 0 1 1-.55 0A.55.55 0 1 1 .55 0Z',
};
const layers = {};
for (const name of ['grid', 'wires', 'notes', 'nodes', 'names']) layers[name] = element(map, 'g');

const tone = n => !n.phase || n.phase === 'running' ? '' : n.phase === 'pending' ||
  n.phase === 'starting' ? 'waiting' : 'bad';

nodes.forEach((n, i) => {
  n.links = [];
  n.group = element(layers.nodes, 'g',
    { class: `node ${n.kind} ${tone(n)}`, tabindex: 0, role: 'button', 'aria-label': n.name });
  element(n.group, 'path', { class: 'shape', d: shapes[n.kind] || shapes.router });
  element(n.group, 'circle', { class: 'ring', r: 1.55 });
  n.label = element(layers.names, 'text', { class: `name ${n.kind} ${tone(n)}` }, n.name);
  if (n.as) element(n.label, 'tspan', { class: 'as', dx: 4 }, `AS ${n.as}`);
  n.group.addEventListener('pointerenter', e => { light([i], n.links);
    tip(e, [n.name, n.kind, n.as ? `AS ${n.as}` : '', n.phase].filter(Boolean).join(' · ')); });
  n.group.addEventListener('pointerleave', calm);
  n.group.addEventListener('keydown', e => { if (e.key === 'Enter') select('node', i); });
});
edges.forEach((e, k) => {
  nodes[e.a].links.push(k);
  nodes[e.b].links.push(k);
  e.group = element(layers.wires, 'g', { class: 'wire' });
  e.line = element(e.group, 'path', { class: `link ${e.down ? 'down' : e.note ? 'shaped' : ''}` });
  e.catch = element(e.group, 'path', { class: 'catch' });
  e.text = e.note ? element(layers.notes, 'text', { class: 'note' }, e.note) : null;
  e.faces = [e.ai, e.bi].map(name => name ? element(layers.notes, 'text', { class: 'face', visibility: 'hidden' },
    name) : null);
  e.catch.addEventListener('pointerenter', ev => { light([e.a, e.b], [k]);
    tip(ev, title(e) + (e.note ? '\n' + e.note : '') + (e.down ? '\ndown' : '')); });
  e.catch.addEventListener('pointerleave', calm);
});
nodes.forEach(n => { n.width = n.label.getComputedTextLength(); });
edges.forEach(e => {
  e.noteWidth = e.text ? e.text.getComputedTextLength() : 0;
  e.faceWidths = e.faces.map(face => face ? face.getComputedTextLength() : 0);
});

function title(e) {
  const end = (node, face) => face ? `${nodes[node].name}:${face}` : nodes[node].name;
  return `${end(e.a, e.ai)} — ${end(e.b, e.bi)}`;
}

// --- Where things are on the screen.

const view = { k: 1, x: 0, y: 0, fit: 1 };
const extent = nodes.reduce((b, n) => ({
  x0: Math.min(b.x0, n.x), x1: Math.max(b.x1, n.x), y0: Math.min(b.y0, n.y), y1: Math.max(b.y1, n.y),
}), { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity });
const crowd = spacing();

// spacing is the lower quartile of distances from a node to the nearest other one, in picture units.
function spacing() {
  const sorted = nodes.map((n, i) => [n.x, n.y, i]).sort((a, b) => a[0] - b[0]);
  const near = sorted.map(([x, y], i) => {
    let best = Infinity;
    for (const step of [-1, 1]) {
      for (let j = i + step; j >= 0 && j < sorted.length && Math.abs(sorted[j][0] - x) < best; j += step) {
        best = Math.min(best, Math.hypot(sorted[j][0] - x, sorted[j][1] - y));
      }
    }
    return best;
  }).filter(Number.isFinite).sort((a, b) => a - b);
  return near.length ? near[near.length >> 2] : 1;
}

function fit() {
  const wide = innerWidth > 720;
  const pad = { left: wide ? 70 : 40, right: wide ? 70 : 40, top: wide ? 70 : 160, bottom: 90 };
  const w = Math.max(extent.x1 - extent.x0, 1e-6), h = Math.max(extent.y1 - extent.y0, 1e-6);
  if (wide && w / h < (innerWidth - 140) / (innerHeight - 160) * 1.25) pad.left = 330;
  view.k = Math.min((innerWidth - pad.left - pad.right) / w, (innerHeight - pad.top - pad.bottom) / h,
    data.geographic ? 400 : 180);
  view.fit = view.k;
  view.x = (innerWidth + pad.left - pad.right) / 2 - (extent.x0 + extent.x1) / 2 * view.k;
  view.y = (innerHeight + pad.top - pad.bottom) / 2 - (extent.y0 + extent.y1) / 2 * view.k;
  draw();
}

const sx = n => n.x * view.k + view.x;
const sy = n => n.y * view.k + view.y;
let radius = 8;

let wanted = false;
function draw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; drawNow(); });
}

function drawNow() {
  radius = Math.max(2.5, Math.min(9, crowd * view.k * .28));
  drawGrid();
  for (const n of nodes) n.group.setAttribute('transform',
    `translate(${sx(n).toFixed(1)} ${sy(n).toFixed(1)}) scale(${radius.toFixed(2)})`);
  map.style.setProperty('--width', Math.max(.6, Math.min(1.6, radius / 4)).toFixed(2));
  edges.forEach(drawEdge);
  drawLabels();
}

// drawEdge bends edges between the same nodes apart.
function drawEdge(e) {
  const a = nodes[Math.min(e.a, e.b)], b = nodes[Math.max(e.a, e.b)];
  const ax = sx(a), ay = sy(a), bx = sx(b), by = sy(b);
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const bend = e.offset * Math.min(26, length * .35);
  const cx = (ax + bx) / 2 - (by - ay) / length * bend * 2, cy = (ay + by) / 2 + (bx - ax) / length * bend * 2;
  const from = `M${ax.toFixed(1)} ${ay.toFixed(1)}`, to = `${bx.toFixed(1)} ${by.toFixed(1)}`;
  const d = e.offset ? `${from}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${to}` : `${from}L${to}`;
  e.line.setAttribute('d', d);
  e.catch.setAttribute('d', d);
  e.at = t => ({ x: (1 - t) ** 2 * ax + 2 * t * (1 - t) * cx + t * t * bx,
    y: (1 - t) ** 2 * ay + 2 * t * (1 - t) * cy + t * t * by });
  e.length = length;
}

// drawLabels places names first, those with most links before others; then the interfaces of a highlighted link, the
// notes of links, and the interfaces of links that are long enough.
function drawLabels() {
  const sheet = newSheet(innerWidth, innerHeight);
  for (const n of nodes) {
    const x = sx(n), y = sy(n);
    sheet.take({ x0: x - radius, y0: y - radius, x1: x + radius, y1: y + radius });
  }
  for (const e of edges) sheet.line(e.at, e.length);
  const order = [...nodes].sort((a, b) => (a.kind === 'lan') - (b.kind === 'lan') || (b === chosen) - (a === chosen) ||
    b.links.length - a.links.length);
  for (const n of order) drawName(sheet, n);
  for (const e of edges) if (e.lit) drawFaces(sheet, e, Infinity);
  for (const e of edges) {
    if (e.text) put(e.text, onScreen(e) && e.length > e.noteWidth * .8 ?
      place(sheet, besideLine(e.at, [.5, .4, .6, .3, .7], e.noteWidth), e.noteWidth, 12, 2) : null);
  }
  for (const e of edges) if (!e.lit) drawFaces(sheet, e, 2);
}

// put shows a label at a spot; without one, it is hidden.
function put(label, spot) {
  label.setAttribute('visibility', spot ? 'visible' : 'hidden');
  if (!spot) return;
  label.setAttribute('x', spot.x.toFixed(1));
  label.setAttribute('y', spot.y.toFixed(1));
}

function onScreen(e) {
  const { x, y } = e.at(.5);
  return x > -e.length && y > -e.length && x < innerWidth + e.length && y < innerHeight + e.length;
}

function drawName(sheet, n) {
  const x = sx(n), y = sy(n);
  if (x < -200 || y < -50 || x > innerWidth + 200 || y > innerHeight + 50) {
    put(n.label, null);
    return;
  }
  const spots = aroundNode(x, y, radius, n.width);
  put(n.label, place(sheet, spots, n.width, 12) || (n === chosen ? spots[0] : null));
}

// drawFaces names the interfaces of a link beside its ends, if they cover no more lines than most.
function drawFaces(sheet, e, most) {
  e.faces.forEach((face, side) => {
    if (!face) return;
    const width = e.faceWidths[side], room = e.length - 2 * radius;
    if (!onScreen(e) || room < (e.lit ? 50 : 2.4 * width + 30)) {
      put(face, null);
      return;
    }
    const forward = (side === 0) === (e.a <= e.b);
    const parts = [radius + 14, radius + 24, radius + 36].map(d => Math.min(.45, d / e.length)).
      map(t => forward ? t : 1 - t);
    put(face, place(sheet, besideLine(e.at, parts, width), width, 11, most));
  });
}

// drawGrid draws meridians and parallels, so that one sees that a map is a map.
function drawGrid() {
  layers.grid.replaceChildren();
  if (!data.geographic) return;
  const step = [30, 20, 10, 5, 2, 1, .5, .2, .1, .05, .02].find(s => s * view.k < innerWidth / 5) || .01;
  const digits = step < 1 ? 2 : 0;
  for (let lon = Math.ceil((-view.x / view.k / data.squeeze + data.west) / step) * step, i = 0; i < 100;
    lon += step, i++) {
    const x = (lon - data.west) * data.squeeze * view.k + view.x;
    if (x > innerWidth) break;
    element(layers.grid, 'path', { class: 'grid', d: `M${x} 0V${innerHeight}` });
    const shown = ((lon + 540) % 360) - 180;
    element(layers.grid, 'text', { class: 'grid-text', x: x + 4, y: innerHeight - 28 },
      `${Math.abs(shown).toFixed(digits)}° ${shown < 0 ? 'W' : 'E'}`);
  }
  for (let lat = Math.floor(view.y / view.k / step) * step, i = 0; i < 100; lat -= step, i++) {
    const y = -lat * view.k + view.y;
    if (y > innerHeight) break;
    element(layers.grid, 'path', { class: 'grid', d: `M0 ${y}H${innerWidth}` });
    element(layers.grid, 'text', { class: 'grid-text', x: innerWidth - 44, y: y - 4 },
      `${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? 'S' : 'N'}`);
  }
}

// --- Pointer, wheel and keys.

function zoom(factor, cx = innerWidth / 2, cy = innerHeight / 2) {
  const k = Math.max(view.fit / 4, Math.min(view.fit * 60, view.k * factor));
  view.x = cx - (cx - view.x) * k / view.k;
  view.y = cy - (cy - view.y) * k / view.k;
  view.k = k;
  draw();
}

const fingers = new Map();
let grabbed = null, travelled = 0;
map.addEventListener('pointerdown', e => {
  fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
  map.setPointerCapture(e.pointerId);
  travelled = 0;
  const group = e.target.closest('.node');
  grabbed = group ? nodes.find(n => n.group === group) : null;
  const wire = e.target.closest('.wire');
  grabbed = grabbed || (wire ? edges.find(x => x.group === wire) : null);
});
map.addEventListener('pointermove', e => {
  const last = fingers.get(e.pointerId);
  if (!last) return;
  const dx = e.clientX - last.x, dy = e.clientY - last.y;
  travelled += Math.abs(dx) + Math.abs(dy);
  if (fingers.size === 2) {
    const other = [...fingers].find(([id]) => id !== e.pointerId)[1];
    const before = Math.hypot(last.x - other.x, last.y - other.y),
      after = Math.hypot(e.clientX - other.x, e.clientY - other.y);
    if (before > 0) zoom(after / before, other.x, other.y);
  } else if (travelled > 4) {
    map.classList.add('moving');
    if (grabbed && grabbed.group && grabbed.label) { grabbed.x += dx / view.k; grabbed.y += dy / view.k; } else {
      view.x += dx; view.y += dy; }
    draw();
  }
  fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
});
for (const end of ['pointerup', 'pointercancel']) map.addEventListener(end, e => {
  fingers.delete(e.pointerId);
  map.classList.remove('moving');
  if (end === 'pointerup' && travelled <= 4) {
    if (!grabbed) close();
    else if (grabbed.label) select('node', nodes.indexOf(grabbed));
    else select('link', edges.indexOf(grabbed));
  }
});
map.addEventListener('wheel', e => { e.preventDefault(); zoom(Math.exp(-e.deltaY * (e.ctrlKey ? .01 : .0016)),
  e.clientX, e.clientY); }, { passive: false });
addEventListener('resize', fit);
addEventListener('keydown', e => {
  if (e.target === byId('search')) return;
  const keys = { '/': () => { e.preventDefault(); byId('search').focus(); }, Escape: close, '+': () => zoom(1.4),
    '-': () => zoom(1 / 1.4), '0': fit };
  if (keys[e.key] && !e.ctrlKey && !e.metaKey) keys[e.key]();
});
byId('in').onclick = () => zoom(1.4);
byId('out').onclick = () => zoom(1 / 1.4);
byId('fit').onclick = fit;

// --- Highlight and tip.

let chosen = null; // the selected node or edge

function light(lit, wires) {
  const near = new Set(lit);
  for (const k of wires) { near.add(edges[k].a); near.add(edges[k].b); }
  nodes.forEach((n, i) => {
    n.group.classList.toggle('fade', !near.has(i));
    n.label.classList.toggle('fade', !near.has(i));
    n.group.classList.toggle('lit', lit.includes(i));
  });
  const set = new Set(wires);
  edges.forEach((e, k) => {
    e.group.classList.toggle('fade', !set.has(k));
    e.group.classList.toggle('lit', set.has(k));
    if (e.text) e.text.classList.toggle('fade', !set.has(k));
    e.lit = set.has(k);
  });
  draw();
}

function calm() {
  byId('tip').hidden = true;
  if (chosen && chosen.label) light([nodes.indexOf(chosen)], chosen.links);
  else if (chosen) light([chosen.a, chosen.b], [edges.indexOf(chosen)]);
  else {
    for (const e of map.querySelectorAll('.fade, .lit')) e.classList.remove('fade', 'lit');
    for (const e of edges) e.lit = false;
    draw();
  }
}

function tip(e, text) {
  if (fingers.size) return;
  const t = byId('tip');
  t.textContent = text;
  t.hidden = false;
  t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + 'px';
  t.style.top = Math.min(e.clientY + 16, innerHeight - t.offsetHeight - 8) + 'px';
}
