// The panel beside the map, the search and the head; page.js comes before.

// --- The panel.

function select(kind, i) {
  chosen = kind === 'node' ? nodes[i] : edges[i];
  const panel = byId('panel');
  const button = html('button', 'close', '×');
  button.title = 'Close (Esc)';
  button.onclick = close;
  panel.replaceChildren(button, ...(kind === 'node' ? describeNode(chosen) : describeLink(chosen)));
  panel.hidden = false;
  panel.scrollTop = 0;
  history.replaceState(null, '', '#' + encodeURIComponent(kind === 'node' ? chosen.name : 'link:' + chosen.link));
  calm();
  reveal(kind === 'node' ? chosen : nodes[chosen.a]);
  draw();
}

function close() {
  chosen = null;
  byId('panel').hidden = true;
  history.replaceState(null, '', location.pathname + location.search);
  calm();
}

function facts(list) {
  const dl = html('dl');
  for (const f of list || []) dl.append(html('dt', '', f.key), html('dd', '', f.value));
  return dl;
}

function nodeLink(i, text) {
  const a = html('a', '', text || nodes[i].name);
  a.onclick = () => { select('node', i); };
  return a;
}

function describeNode(n) {
  const badge = { '': 'good', waiting: 'wait', bad: 'bad' }[tone(n)];
  const parts = [html('h2', '', n.name), html('div', 'badges', html('span', 'badge', n.kind),
    n.as ? html('span', 'badge', `AS ${n.as}`) : null,
    n.phase ? html('span', 'badge ' + badge, n.phase) : null)];
  if (n.message) parts.push(html('p', 'message', n.message));
  for (const s of n.sections || []) parts.push(html('h3', '', s.title), facts(s.facts));
  if (n.links.length) parts.push(html('h3', '', `${n.links.length} ${n.kind === 'lan' ? 'ends' : 'interfaces'}`));
  const self = nodes.indexOf(n);
  for (const k of n.links) parts.push(describeFace(edges[k], self));
  return parts;
}

function describeFace(e, self) {
  const mine = e.a === self, peer = mine ? e.b : e.a;
  const face = (mine ? e.ai : e.bi) || (mine ? e.bi : e.ai), other = mine ? e.bi : e.ai;
  const details = (nodes[nodes[self].kind === 'lan' ? peer : self].interfaces || []).find(x => x.name === face) || {};
  const row = html('div', 'row', html('b', '', face), html('span', '', '→ ',
    nodeLink(peer, nodes[peer].name + (other && nodes[self].kind !== 'lan' ? ':' + other : ''))));
  const card = html('div', 'face-card', row);
  for (const a of details.addresses || []) card.append(html('div', '', html('code', '', a)));
  const small = [e.down ? 'down' : '', e.note, ...(details.facts || [])].filter(Boolean).join(' · ');
  if (small) card.append(html('div', 'small', small));
  return card;
}

function describeLink(e) {
  const parts = [html('h2', '', e.link), html('div', 'badges', html('span', 'badge', 'link'),
    e.down ? html('span', 'badge bad', 'down') : data.live ? html('span', 'badge good', 'up') : null,
    e.note ? html('span', 'badge wait', e.note) : null)];
  for (const [i, name] of [[e.a, e.ai], [e.b, e.bi]]) {
    const details = (nodes[i].interfaces || []).find(x => x.name === name) || {};
    const card = html('div', 'face-card', html('div', 'row', nodeLink(i), html('b', '', name)));
    for (const a of details.addresses || []) card.append(html('div', '', html('code', '', a)));
    if (details.facts) card.append(html('div', 'small', details.facts.join(' · ')));
    parts.push(card);
  }
  return parts;
}

// reveal brings a node into the free part of the screen.
function reveal(n) {
  const x = sx(n), y = sy(n), wide = innerWidth > 720;
  if (x > 40 && x < innerWidth - (wide ? 400 : 40) && y > 40 && y < innerHeight * (wide ? .9 : .45) &&
    !(wide && x < 340 && y < 200)) return;
  view.x += innerWidth / 2 - (wide ? 20 : 0) - x;
  view.y += innerHeight * (wide ? .5 : .25) - y;
  draw();
}

// --- Search.

const search = byId('search'), found = byId('found');
let hits = [], at = 0;
function look() {
  const q = search.value.trim().toLowerCase();
  hits = [];
  if (q) {
    nodes.forEach((n, i) => {
      const where = n.name.toLowerCase().indexOf(q);
      const address = (n.text || []).find(t => t.toLowerCase().includes(q));
      if (where >= 0) hits.push({ rank: where ? 1 : 0, name: n.name, why: n.kind, go: () => { select('node', i); } });
      else if (address) hits.push({ rank: 2, name: n.name, why: address, go: () => { select('node', i); } });
    });
    edges.forEach((e, k) => {
      if (e.link.toLowerCase().includes(q) && nodes[e.b].kind !== 'lan') hits.push({
        rank: 3, name: e.link, why: 'link', go: () => { select('link', k); } });
    });
    hits.sort((a, b) => a.rank - b.rank);
    hits = hits.slice(0, 12);
  }
  at = 0;
  found.replaceChildren(...hits.map((h, i) => {
    const li = html('li', i === at ? 'on' : '', h.name, html('small', '', h.why));
    li.onclick = () => { h.go(); search.value = ''; look(); };
    return li;
  }));
}
search.addEventListener('input', look);
search.addEventListener('keydown', e => {
  if (e.key === 'Escape') { search.value = ''; look(); search.blur(); }
  if (e.key === 'Enter' && hits[at]) { hits[at].go(); search.value = ''; look(); search.blur(); }
  if (e.key !== 'ArrowDown' && e.key !== 'ArrowUp' || !hits.length) return;
  e.preventDefault();
  at = (at + (e.key === 'ArrowDown' ? 1 : hits.length - 1)) % hits.length;
  [...found.children].forEach((li, i) => li.classList.toggle('on', i === at));
});

// --- Head and legend.

function head() {
  byId('counts').append(...data.counts.flatMap((c, i) => [i ? ' · ' : '', c.bad ? html('b', '', c.text) : c.text]));
  for (const kind of ['router', 'program', 'host', 'switch', 'uplink', 'lan']) {
    if (!nodes.some(n => n.kind === kind)) continue;
    const icon = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    icon.setAttribute('viewBox', '-1.6 -1.6 3.2 3.2');
    element(element(icon, 'g', { class: 'node ' + kind }), 'path', { class: 'shape', d: shapes[kind] });
    byId('legend').append(html('span', '', icon, kind === 'lan' ? 'LAN' : kind));
  }
  for (const [name, text, any] of [['', 'link', true], ['shaped', 'shaped', edges.some(e => e.note)],
    ['down', 'down', edges.some(e => e.down)]]) {
    if (!any) continue;
    const icon = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    element(icon, 'path', { class: 'link ' + name, d: 'M0 8H16' });
    byId('legend').append(html('span', '', icon, text));
  }
}

head();
fit();
if (location.hash) {
  const name = decodeURIComponent(location.hash.slice(1));
  const i = nodes.findIndex(n => n.name === name), k = edges.findIndex(e => 'link:' + e.link === name);
  drawNow();
  if (i >= 0) select('node', i); else if (k >= 0) select('link', k);
}
