package graph

import (
	"math"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// canvas is a sheet of terminal cells. Lines are drawn with braille dots, 2 by 4 in a cell; text lies above them.
type canvas struct {
	width, height int
	dots          []uint8
	runes         []rune // 0: no text; -1: the right half of a wide character
	inks          []ink
}

// ink is a colour of the canvas; the greater covers the smaller.
type ink uint8

const (
	blank ink = iota
	inkLine
	inkShaped
	inkDown
	inkText
	inkRouter
	inkHost
	inkSwitch
)

// sgr are the terminal's codes (ECMA-48, SGR) for inks: the sixteen colours that every theme chooses for itself.
var sgr = [...]string{blank: "0", inkLine: "90", inkShaped: "33", inkDown: "31", inkText: "0", inkRouter: "36;1",
	inkHost: "32", inkSwitch: "35;1"}

func newCanvas(width, height int) *canvas {
	n := width * height
	return &canvas{width: width, height: height, dots: make([]uint8, n), runes: make([]rune, n),
		inks: make([]ink, n)}
}

// braille gives the bit of a dot within its cell (Unicode, block U+2800).
var braille = [4][2]uint8{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// dot sets one dot; x and y count dots.
func (c *canvas) dot(x, y int, k ink) {
	if x < 0 || y < 0 || x >= 2*c.width || y >= 4*c.height {
		return
	}
	cell := y/4*c.width + x/2
	c.dots[cell] |= braille[y%4][x%2]
	c.inks[cell] = max(c.inks[cell], k)
}

// line draws from one dot to another.
func (c *canvas) line(from, to point, k ink) {
	steps := math.Max(math.Abs(to.x-from.x), math.Abs(to.y-from.y))
	for i := 0.0; i <= steps; i++ {
		t := i / math.Max(steps, 1)
		c.dot(int(math.Round(from.x+t*(to.x-from.x))), int(math.Round(from.y+t*(to.y-from.y))), k)
	}
}

// text writes into one row from a column on; what would not fit is cut.
func (c *canvas) text(column, row int, s string, k ink) {
	for _, r := range s {
		w := lipgloss.Width(string(r))
		if w == 0 {
			continue
		}
		if row < 0 || row >= c.height || column < 0 || column+w > c.width {
			return
		}
		cell := row*c.width + column
		c.runes[cell], c.inks[cell] = r, k
		if w == 2 {
			c.runes[cell+1] = -1
		}
		column += w
	}
}

// cost says how bad it is to write width cells here: cells with lines count two, lines beside them one. ok is false
// where there is other text, names in the cell beside included, or no room.
func (c *canvas) cost(column, row, width int) (n int, ok bool) {
	if row < 0 || row >= c.height || column < 0 || column+width > c.width {
		return 0, false
	}
	for x := max(column-1, 0); x < min(column+width+1, c.width); x++ {
		cell := row*c.width + x
		within := x >= column && x < column+width
		if c.runes[cell] != 0 && (within || c.inks[cell] == inkText) {
			return 0, false
		}
		switch {
		case c.dots[cell] == 0 || c.runes[cell] != 0:
		case within:
			n += 2
		default:
			n++
		}
	}
	return n, true
}

// String gives the rows without trailing blanks.
func (c *canvas) String(color bool) string {
	var b strings.Builder
	for row := range c.height {
		end := (row + 1) * c.width
		for end > row*c.width && c.runes[end-1] == 0 && c.dots[end-1] == 0 {
			end--
		}
		last := blank
		for cell := row * c.width; cell < end; cell++ {
			if k := c.inks[cell]; color && sgr[k] != sgr[last] {
				b.WriteString("\x1b[0;" + sgr[k] + "m")
				last = k
			}
			switch {
			case c.runes[cell] > 0:
				b.WriteRune(c.runes[cell])
			case c.runes[cell] < 0: // covered by the character before
			case c.dots[cell] != 0:
				b.WriteRune(0x2800 + rune(c.dots[cell]))
			default:
				b.WriteByte(' ')
			}
		}
		if last != blank && color {
			b.WriteString("\x1b[0m")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
