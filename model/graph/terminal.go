package graph

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

const (
	maxMapNodes = 80 // more are listed
	minMapWidth = 40 // cells; a narrower terminal gets the list
	maxEdgeDots = 40 // length of an edge in a computed layout, so that small networks stay small
)

// Terminal draws a map into a terminal of width by height cells, legend and attribution below it. A slice that would
// not be readable there is listed instead, one interface a line. color allows escape sequences; nothing else is
// sent but printable characters, whatever the names are.
func Terminal(w io.Writer, s *slice.Slice, st *slice.Status, width, height int, color bool) error {
	p := newPicture(s, st)
	b := bufio.NewWriter(w)
	footer := legend(p, color)
	if s.Attribution != "" {
		footer += printable(s.Attribution) + "\n"
	}
	drawn := ""
	if rows := height - 1 - footerRows(footer, width); p.nodes() <= maxMapNodes &&
		width >= minMapWidth && rows >= 8 {
		drawn = drawMap(p, width, rows, color)
	}
	if drawn == "" {
		drawn = list(p, color)
	}
	fmt.Fprintf(b, "%s%s", drawn, footer)
	return b.Flush()
}

// footerRows is how many rows the text takes, with long lines wrapped.
func footerRows(footer string, width int) (n int) {
	for _, line := range strings.Split(strings.TrimSuffix(footer, "\n"), "\n") {
		n += 1 + lipgloss.Width(line)/max(width, 1)
	}
	return n
}

// drawMap gives the map; nothing where there is no room for all names.
func drawMap(p *picture, width, height int, color bool) string {
	cells, rows := p.fit(width, height)
	c := newCanvas(width, rows)
	for i := range p.vertices { // marks first, so that names keep clear of them
		v := &p.vertices[i]
		c.text(cells[i].column, cells[i].row, string(mark(v.kind)), markInk(v))
	}
	for i := range p.edges {
		c.edge(&p.edges[i], cells)
	}
	if !c.names(p, cells) {
		return ""
	}
	return c.String(color)
}

// cell is a cell of the canvas.
type cell struct{ column, row int }

func (at cell) dot() point { return point{float64(2*at.column) + 0.5, float64(4*at.row) + 1.5} }

// fit scales the picture to the canvas and gives each vertex a cell of its own. One axis can be stretched
// by up to a half more than the other, because terminals are wider than networks.
func (p *picture) fit(width, height int) (cells []cell, rows int) {
	low, high := p.bounds(func(int) bool { return true })
	const margin = 3 // columns left and right, for names
	dotsX, dotsY := float64(2*(width-2*margin)-2), float64(4*(height-1)-4)
	scaleX, scaleY := dotsX/math.Max(high.x-low.x, 1e-9), dotsY/math.Max(high.y-low.y, 1e-9)
	scaleX, scaleY = math.Min(scaleX, 1.5*scaleY), math.Min(scaleY, 1.5*scaleX)
	if !p.geographic {
		scaleX, scaleY = math.Min(scaleX, maxEdgeDots), math.Min(scaleY, maxEdgeDots)
	}
	rows = min(height, int((high.y-low.y)*scaleY/4)+3)
	left := (float64(2*width) - (high.x-low.x)*scaleX) / 2

	taken := make(map[cell]bool)
	cells = make([]cell, len(p.vertices))
	for i := range p.vertices {
		at := p.vertices[i].at
		wanted := cell{int(left+(at.x-low.x)*scaleX) / 2, 1 + int((at.y-low.y)*scaleY)/4}
		cells[i] = nearestFree(wanted, taken, width, rows)
		for d := -1; d <= 1; d++ { // no two marks side by side
			taken[cell{cells[i].column + d, cells[i].row}] = true
		}
	}
	return cells, rows
}

// nearestFree searches in growing rings. A canvas has more cells than a map has nodes, so one is free.
func nearestFree(wanted cell, taken map[cell]bool, width, rows int) cell {
	best, distance := wanted, math.Inf(1)
	for reach := 0; reach < max(width, rows) && math.IsInf(distance, 1); reach++ {
		for row := max(0, wanted.row-reach); row <= min(rows-1, wanted.row+reach); row++ {
			for column := max(0, wanted.column-2*reach); column <= min(width-1,
				wanted.column+2*reach); column++ {
				at := cell{column, row}
				d := math.Hypot(float64(column-wanted.column), 2*float64(row-wanted.row))
				if !taken[at] && d < distance {
					best, distance = at, d
				}
			}
		}
	}
	return best
}

// edge draws one edge; edges between the same vertices are drawn side by side.
func (c *canvas) edge(e *edge, cells []cell) {
	from, to := cells[min(e.a, e.b)].dot(), cells[max(e.a, e.b)].dot()
	length := math.Hypot(to.x-from.x, to.y-from.y)
	if length == 0 {
		return
	}
	const laneGap = 3 // dots
	shift := point{-(to.y - from.y) / length * laneGap * e.offset(),
		(to.x - from.x) / length * laneGap * e.offset()}
	k := inkLine
	switch {
	case e.down:
		k = inkDown
	case e.note != "":
		k = inkShaped
	}
	a := point{from.x + shift.x, from.y + shift.y}
	b := point{to.x + shift.x, to.y + shift.y}
	if !e.down {
		c.line(a, b, k)
		return
	}
	const dash = 6 // dots
	for t := 0.0; t < length; t += 2 * dash {
		u := math.Min(t+dash, length)
		c.line(point{a.x + (b.x-a.x)*t/length, a.y + (b.y-a.y)*t/length},
			point{a.x + (b.x-a.x)*u/length, a.y + (b.y-a.y)*u/length}, k)
	}
}

// names writes the nodes' names where they cover no mark, no other name, and as few cells with lines as possible. LANs
// are named where room is left. It reports whether all nodes have their names.
func (c *canvas) names(p *picture, cells []cell) bool {
	order := make([]int, len(p.vertices))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { // nodes before LANs, long names first
		va, vb := &p.vertices[order[a]], &p.vertices[order[b]]
		if (va.kind == lan) != (vb.kind == lan) {
			return vb.kind == lan
		}
		return lipgloss.Width(va.label()) > lipgloss.Width(vb.label())
	})
	for _, i := range order {
		v := &p.vertices[i]
		k := inkText
		if v.down() {
			k = inkDown
		}
		if !c.name(cells[i], v.label(), k) && !c.name(cells[i], printable(v.name), k) && v.kind != lan {
			return false
		}
	}
	return true
}

// name writes a name near a mark, if there is room.
func (c *canvas) name(mark cell, name string, k ink) bool {
	at, ok := c.room(mark, lipgloss.Width(name))
	if ok {
		c.text(at.column, at.row, name, k)
	}
	return ok
}

// room finds the best cell for a name near a mark: right, left, above, below, then further around.
func (c *canvas) room(at cell, width int) (best cell, ok bool) {
	least := math.MaxInt
	try := func(column, row, dislike int) {
		if n, free := c.cost(column, row, width); free && n+dislike < least {
			best, least, ok = cell{column, row}, n+dislike, true
		}
	}
	try(at.column+2, at.row, 0)
	try(at.column-1-width, at.row, 0)
	for _, row := range []int{1, -1} {
		try(at.column-width/2, at.row+row, 2)
		for shift := 1; shift <= width; shift++ {
			try(at.column-width/2+shift, at.row+row, 3+shift/2)
			try(at.column-width/2-shift, at.row+row, 3+shift/2)
		}
	}
	return best, ok
}

func mark(k slice.Kind) rune {
	switch k {
	case slice.Host:
		return '■'
	case slice.Switch:
		return '◆'
	case slice.Uplink:
		return '▲'
	case slice.Program:
		return '◇'
	case lan:
		return '•'
	default:
		return '●'
	}
}

func markInk(v *vertex) ink {
	switch {
	case v.down():
		return inkDown
	case v.kind == slice.Host:
		return inkHost
	case v.kind == slice.Switch, v.kind == slice.Uplink, v.kind == lan:
		return inkSwitch
	default:
		return inkRouter
	}
}

// legend explains the marks, and counts what is drawn and what is down.
func legend(p *picture, color bool) string {
	counts := p.counts()
	words := make([]string, 0, len(counts))
	for _, c := range counts {
		word := c.text
		if color && c.ink != blank {
			word = "\x1b[" + sgr[c.ink] + "m" + word + "\x1b[0m"
		}
		if c.mark != 0 {
			m := string(c.mark)
			if color {
				m = "\x1b[" + sgr[c.markInk] + "m" + m + "\x1b[0m"
			}
			word = m + " " + word
		}
		words = append(words, word)
	}
	return strings.Join(words, "   ") + "\n"
}

// count is one entry of the legend.
type count struct {
	text    string
	ink     ink
	mark    rune
	markInk ink
}

func (p *picture) counts() (out []count) {
	kinds := []struct {
		kind slice.Kind
		noun string
	}{{slice.Router, "router"}, {slice.Program, "program"}, {slice.Host, "host"}, {slice.Switch, "switch"},
		{slice.Uplink, "uplink"}, {lan, "LAN"}}
	down := 0
	for _, k := range kinds {
		n := 0
		for i := range p.vertices {
			if v := &p.vertices[i]; v.kind == k.kind {
				n++
				if v.down() {
					down++
				}
			}
		}
		if n > 0 {
			out = append(out, count{wording.Count(n, k.noun), blank, mark(k.kind),
				markInk(&vertex{kind: k.kind})})
		}
	}
	links, cut, shaped := p.countLinks()
	out = append(out, count{text: wording.Count(links, "link")})
	if shaped > 0 {
		out = append(out, count{text: fmt.Sprintf("%d shaped", shaped), ink: inkShaped})
	}
	if down > 0 {
		out = append(out, count{text: wording.Count(down, "node") + " down", ink: inkDown})
	}
	if cut > 0 {
		out = append(out, count{text: wording.Count(cut, "link") + " down", ink: inkDown})
	}
	return out
}

// countLinks counts links, a LAN as one.
func (p *picture) countLinks() (all, down, shaped int) {
	seen := make(map[*slice.Link]bool)
	marked := make(map[*slice.Link]bool)
	for i := range p.edges {
		e := &p.edges[i]
		if !seen[e.link] {
			seen[e.link] = true
			all++
			if e.down {
				down++
			}
		}
		if e.note != "" && !marked[e.link] {
			marked[e.link] = true
			shaped++
		}
	}
	return all, down, shaped
}
