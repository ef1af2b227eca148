package graph

import (
	"testing"

	"github.com/dop251/goja"
)

// TestLabelsKeepClearOfLines runs labels.js: a star of many links, at the middle of which a name has no free spot
// beside it, and nodes around whose names have.
func TestLabelsKeepClearOfLines(t *testing.T) {
	vm := goja.New()
	result, err := vm.RunString(labelsJS + `
		const middle = { x: 400, y: 300 }, count = 12, placed = [];
		const sheet = newSheet(800, 600);
		const ends = [], lines = [];
		for (let i = 0; i < count; i++) {
			const angle = i * 2 * Math.PI / count;
			ends.push({ x: 400 + 200 * Math.cos(angle), y: 300 + 200 * Math.sin(angle) });
		}
		for (const n of [middle, ...ends]) sheet.take({ x0: n.x - 8, x1: n.x + 8, y0: n.y - 8, y1: n.y + 8 });
		for (const n of ends) {
			const at = t => ({ x: middle.x + t * (n.x - middle.x), y: middle.y + t * (n.y - middle.y) });
			lines.push(at);
			sheet.line(at, 200);
		}
		// crossed counts the points of lines in a label, at every pixel.
		function crossed(spot, width, height) {
			let n = 0;
			for (const at of lines) for (let i = 0; i <= 200; i++) {
				const { x, y } = at(i / 200);
				if (Math.abs(x - spot.x) < width / 2 && y > spot.y - height && y < spot.y) n++;
			}
			return n;
		}
		function overlap(a, b) { return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1; }
		function put(spots, width, height, most) {
			const spot = place(sheet, spots, width, height, most);
			if (!spot) return null;
			const half = width / 2, top = spot.y - height + 4;
			const box = { x0: spot.x - half, x1: spot.x + half, y0: top, y1: spot.y };
			for (const other of placed)
				if (overlap(box, other)) throw new Error('two labels lie over each other');
			placed.push(box);
			return spot;
		}
		const names = ends.map(n => put(aroundNode(n.x, n.y, 8, 60), 60, 12));
		const faces = lines.map(at => put(besideLine(at, [.85, .8, .75, .7, .65], 24), 24, 11, 0));
		[...names.map(s => s ? crossed(s, 60, 10) : -1), ...faces.map(s => s ? crossed(s, 24, 9) : -1)]
	`)
	if err != nil {
		t.Fatal(err)
	}
	var across []int
	if err := vm.ExportTo(result, &across); err != nil {
		t.Fatal(err)
	}
	if len(across) != 24 {
		t.Fatalf("%d labels", len(across))
	}
	for i, n := range across {
		if n != 0 {
			t.Errorf("label %d: %d points of lines lie in it (-1: it found no spot)", i, n)
		}
	}
}
