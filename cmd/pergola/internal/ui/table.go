package ui

import (
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

// Table writes a table to the results. It is as wide as its content; on a terminal that is narrower the last column,
// where the long texts are, is wrapped.
func (t *Terminal) Table(b *Table) {
	header, cell := lipgloss.NewStyle(), lipgloss.NewStyle()
	if t.IsTTY() {
		header = t.Styles.Faint
	}
	last := len(b.Columns) - 1
	widths := b.fit(t.Width())
	pad := func(s lipgloss.Style, column int) lipgloss.Style {
		if column < last {
			s = s.PaddingRight(gap)
		}
		if widths != nil {
			s = s.Width(widths[column])
		}
		return s
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
	for line := range strings.SplitSeq(drawn.String(), "\n") {
		t.Print("%s", strings.TrimRight(line, " "))
	}
}

const gap = 2 // blanks between columns

// fit gives the widths of the columns, gaps included, where a table is wider than limit and its last column can be
// wrapped between words; else nil, and the terminal may tear the lines.
func (b *Table) fit(limit int) []int {
	widths := make([]int, len(b.Columns))
	total := 0
	for i, name := range b.Columns {
		widths[i] = lipgloss.Width(name)
		for _, row := range b.Rows {
			widths[i] = max(widths[i], lipgloss.Width(row[i]))
		}
		if i < len(b.Columns)-1 {
			widths[i] += gap
		}
		total += widths[i]
	}
	last := len(widths) - 1
	rest := limit - (total - widths[last])
	if limit == 0 || total <= limit || rest < b.longestWord(last) {
		return nil
	}
	widths[last] = rest
	return widths
}

func (b *Table) longestWord(column int) (n int) {
	for _, row := range b.Rows {
		for word := range strings.FieldsSeq(row[column]) {
			n = max(n, lipgloss.Width(word))
		}
	}
	return n
}
