package ui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
)

// Table is a result in rows. Columns are separated by two blanks and nothing else, so that awk and a person read
// the same lines.
type Table struct {
	Columns []string
	Rows    [][]string
	// Style gives the style of a cell by row and column; nil, or a false answer, leaves it plain.
	Style func(row, column int) (lipgloss.Style, bool)
}

// Row appends a row. An empty cell is shown as a dash: every line has the same number of words.
func (b *Table) Row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	b.Rows = append(b.Rows, cells)
}

// Table writes a table to the results. It is as wide as its content; a terminal that is narrower gets wrapped
// cells instead of torn lines.
func (t *Terminal) Table(b *Table) {
	header, cell := lipgloss.NewStyle(), lipgloss.NewStyle()
	if t.IsTTY() {
		header = t.Styles.Faint
	}
	last := len(b.Columns) - 1
	pad := func(s lipgloss.Style, column int) lipgloss.Style {
		if column == last {
			return s
		}
		return s.PaddingRight(2)
	}
	drawn := table.New().Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderColumn(false).BorderHeader(false).
		Headers(b.Columns...).Rows(b.Rows...).
		StyleFunc(func(row, column int) lipgloss.Style {
			if row == table.HeaderRow {
				return pad(header, column)
			}
			if b.Style != nil && t.IsTTY() {
				if s, ok := b.Style(row, column); ok {
					return pad(s, column)
				}
			}
			return pad(cell, column)
		})
	text := drawn.String()
	if limit := t.Width(); limit > 0 && lipgloss.Width(text) > limit {
		text = drawn.Width(limit).String()
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(t.Out, strings.TrimRight(line, " "))
	}
}
