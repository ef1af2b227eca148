package routing

import (
	"bytes"
	"fmt"
	"strings"
)

// text collects the lines of a configuration.
type text struct {
	buf    bytes.Buffer
	indent string
	step   string // what one level of nesting is indented by
}

// line writes one line.
func (t *text) line(format string, args ...any) {
	fmt.Fprintf(&t.buf, t.indent+format+"\n", args...)
}

// block writes head, what body writes one level deeper, and tail; nothing at all if body writes nothing.
func (t *text) block(head, tail string, body func()) {
	start := t.buf.Len()
	t.line("%s", head)
	inside := t.buf.Len()
	t.indent += t.step
	body()
	t.indent = strings.TrimSuffix(t.indent, t.step)
	if t.buf.Len() == inside {
		t.buf.Truncate(start)
		return
	}
	t.line("%s", tail)
}
