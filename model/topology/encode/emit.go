package encode

import (
	"bytes"
	"strings"
)

// lineWidth is up to where a map or list is written in one line.
const lineWidth = 100

// emitEntry writes a key with its value at an indentation. Sections and the entries of a section stand below each
// other; what is in them stands in one line where it fits.
func emitEntry(out *bytes.Buffer, p pair, indent int) {
	margin := strings.Repeat(" ", indent)
	switch value := p.value.(type) {
	case string:
		out.WriteString(strings.TrimRight(margin+p.key+": "+value, " ") + "\n")
		return
	case block:
		out.WriteString(margin + p.key + ": ")
		emitBlock(out, value, indent+2)
		return
	case list:
		if len(value) == 0 {
			out.WriteString(margin + p.key + ": []\n")
			return
		}
	}
	if line, ok := flow(p.value); ok && indent > 0 && indent+len(p.key)+2+len(line) <= lineWidth {
		out.WriteString(margin + p.key + ": " + line + "\n")
		return
	}
	out.WriteString(margin + p.key + ":\n")
	emitValue(out, p.value, indent+2)
}

// emitValue writes a map or list, one element a line or more.
func emitValue(out *bytes.Buffer, tree any, indent int) {
	margin := strings.Repeat(" ", indent)
	switch value := tree.(type) {
	case object:
		for _, p := range value {
			emitEntry(out, p, indent)
		}
	case list:
		for _, element := range value {
			out.WriteString(margin + "- ")
			if line, ok := flow(element); ok && indent+2+len(line) <= lineWidth {
				out.WriteString(line + "\n")
				continue
			}
			switch element := element.(type) {
			case string:
				out.WriteString(element + "\n")
			case block:
				emitBlock(out, element, indent+2)
			default:
				var inner bytes.Buffer
				emitValue(&inner, element, indent+2)
				out.Write(inner.Bytes()[indent+2:]) // the first line stands behind the dash
			}
		}
	}
}

func emitBlock(out *bytes.Buffer, text block, indent int) {
	sign := "|"
	if !strings.HasSuffix(string(text), "\n") {
		sign = "|-"
	}
	out.WriteString(sign + "\n")
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		out.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+line, " ") + "\n")
	}
}

// flow writes a tree in one line, if it has no text of several lines.
func flow(tree any) (string, bool) {
	var parts []string
	switch value := tree.(type) {
	case string:
		return value, true
	case object:
		for _, p := range value {
			text, ok := flow(p.value)
			if !ok {
				return "", false
			}
			parts = append(parts, strings.TrimRight(p.key+": "+text, " "))
		}
		return "{" + strings.Join(parts, ", ") + "}", true
	case list:
		for _, element := range value {
			text, ok := flow(element)
			if !ok {
				return "", false
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ", ") + "]", true
	}
	return "", false
}
