package rsvp

import (
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Labels takes the changes of labels out of what Take would give, so that they can be carried out before any message
// tells of them.
func (r *Router) Labels() []LabelChange {
	all := r.out.Labels
	r.out.Labels = nil
	return all
}

// Uninstalled tells that an entry cannot be installed, before Take gives the messages that tell of its label. The LSP
// is then refused as one for which there is no label is: the ingress is told, and nothing is left of it here. An entry
// by which an LSP begins stays as it is: its owner knows already.
func (r *Router) Uninstalled(now time.Duration, e Entry) {
	r.advance(now)
	s := r.lsps[e.Key]
	if s == nil || s.resv == nil || s.in == nil || s.entry() != e {
		return
	}
	var untold []*lsp
	r.out.Send = slices.DeleteFunc(r.out.Send, func(m Send) bool {
		if !slices.Contains(m.of, s) {
			return false
		}
		untold = append(untold, m.of...)
		return true
	})
	failure := problem(message.LabelAllocation)
	failure.Flags = message.PathStateRemoved
	r.pathErr(s.in, s.path.hop.Addr, s.path, failure)
	r.remove(s, true, true)
	r.sendResvs(untold) // of the others that share the reservation
}
