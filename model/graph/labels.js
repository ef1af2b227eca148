// Where labels stand: names of nodes, notes of links, names of interfaces. Each covers no mark and no other label, and
// no line where there is a free spot. Pure: places are numbers, in pixels; page.js draws.

const fine = 5; // pixels of a cell of the sheet

// newSheet gives a sheet of the screen that remembers what is taken, and which cells lines pass.
function newSheet(width, height) {
  const columns = Math.ceil(width / fine) + 1, rows = Math.ceil(height / fine) + 1;
  const lines = new Uint8Array(columns * rows), taken = new Uint8Array(columns * rows);
  const cells = (box, visit) => {
    const left = Math.max(0, Math.floor(box.x0 / fine)), right = Math.min(columns - 1, Math.floor(box.x1 / fine));
    const top = Math.max(0, Math.floor(box.y0 / fine)), bottom = Math.min(rows - 1, Math.floor(box.y1 / fine));
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) visit(row * columns + column);
    }
  };
  return {
    // line marks the cells that a curve passes; at(t) is its point for t from 0 to 1.
    line(at, length) {
      const steps = Math.max(1, Math.ceil(length / fine * 2));
      for (let i = 0; i <= steps; i++) {
        const { x, y } = at(i / steps);
        if (x >= 0 && y >= 0 && x < width && y < height) {
          lines[Math.floor(y / fine) * columns + Math.floor(x / fine)] = 1;
        }
      }
    },
    take(box) { cells(box, i => { taken[i] = 1; }); },
    // cost counts the cells with lines in a box; Infinity where something else is.
    cost(box) {
      let n = 0;
      cells(box, i => { n += taken[i] ? Infinity : lines[i]; });
      return n;
    },
  };
}

// boxOf is the box of a label whose text has its middle at x and its base line at y.
function boxOf(spot, width, height) {
  return { x0: spot.x - width / 2 - 2, x1: spot.x + width / 2 + 2, y0: spot.y - height + 2, y1: spot.y + 3 };
}

// place takes the spot that covers the fewest lines, the first of equals, and gives it; null where none is free of
// marks and labels, or all cover more lines than most.
function place(sheet, spots, width, height, most = Infinity) {
  let best = null, least = Infinity;
  for (const spot of spots) {
    const cost = sheet.cost(boxOf(spot, width, height));
    if (cost < least) { best = spot; least = cost; }
    if (least === 0) break;
  }
  if (!best || least > most) return null;
  sheet.take(boxOf(best, width, height));
  return best;
}

// aroundNode gives the spots for the name of a node: below, above, beside it, then at its corners.
function aroundNode(x, y, radius, width) {
  const gap = radius + 3, half = width / 2, beside = gap + half + 2;
  return [
    { x, y: y + gap + 10 }, { x, y: y - gap - 2 }, { x: x + beside, y: y + 4 }, { x: x - beside, y: y + 4 },
    { x: x + half + gap / 2, y: y + gap + 10 }, { x: x - half - gap / 2, y: y + gap + 10 },
    { x: x + half + gap / 2, y: y - gap - 2 }, { x: x - half - gap / 2, y: y - gap - 2 },
    { x, y: y + gap + 24 }, { x, y: y - gap - 16 },
  ];
}

// besideLine gives the spots for a label of a link: on both sides of the line, near some of its points.
function besideLine(at, parts, width) {
  const spots = [], step = .01;
  for (const t of parts) {
    const here = at(t), a = at(Math.max(0, t - step)), b = at(Math.min(1, t + step));
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const nx = -(b.y - a.y) / length, ny = (b.x - a.x) / length;
    const away = Math.abs(nx) * (width / 2 + 2) + Math.abs(ny) * 6 + fine + 1;
    for (const side of [1, -1]) spots.push({ x: here.x + side * nx * away, y: here.y + side * ny * away + 4 });
  }
  return spots;
}
