package report

import (
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/events"
)

// Event is one line: time, kind, what it is about, what happened.
func Event(e events.Event, t *ui.Terminal) string {
	about := e.Slice
	for _, part := range []string{e.Node, e.Link} {
		if part != "" {
			about += "/" + part
		}
	}
	kind := strings.Replace(string(e.Kind), "slice-", "network-", 1) // the API's word, and that of users
	padded := kind + strings.Repeat(" ", max(0, len("network-deleting")-len(kind)))
	if e.Kind == events.Failed {
		padded = t.Paint(t.Styles.Bad, padded)
	}
	words := []string{t.Paint(t.Styles.Faint, e.Time.Local().Format("2006-01-02 15:04:05.000")), padded}
	for _, w := range []string{about, e.Message} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "  ")
}
