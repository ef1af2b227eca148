package graph

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"
)

// printable puts a question mark in place of what a terminal or a parser could take for a command: control and
// format characters, line ends and broken UTF-8.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// pad fills a text with blanks to a width in terminal cells.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-lipgloss.Width(s)))
}
