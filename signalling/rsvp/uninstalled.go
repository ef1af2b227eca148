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

// Causes of Uninstalled: it cannot be written, or the router has no time for it.
var (
	NoLabel     = problem(message.LabelAllocation)
	NoProcessor = message.ErrorSpec{Code: message.AdmissionFailure, Value: message.BandwidthUnavailable}
)

const maxText = 255 // bytes of a message.UserError

// Uninstalled tells that an entry cannot be installed, and why, before Take gives the messages that tell of its label.
// The LSP is then refused: the ingress is told, and nothing is left of it here. An entry by which an LSP begins stays
// as it is: its owner knows already. why is for people; empty: nothing is to be said.
func (r *Router) Uninstalled(now time.Duration, e Entry, cause message.ErrorSpec, why string) {
	r.advance(now)
	s := r.lsps[e.Key]
	if s == nil || s.resv == nil || s.entry() != e {
		return
	}
	if s.in == nil { // what would tell a receiver that it has its reservation
		r.out.Send = slices.DeleteFunc(r.out.Send, func(m Send) bool { return slices.Contains(m.of, s) })
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
	cause.Flags = message.PathStateRemoved
	var said []message.UserError
	if why != "" {
		said = append(said, message.UserError{Text: why[:min(len(why), maxText)]})
	}
	r.pathErr(s.in, s.path.hop.Addr, s.path, cause, said...)
	r.remove(s, true, true)
	r.sendResvs(untold) // of the others that share the reservation
}
