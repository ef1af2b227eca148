// Package events has what happens to slices: events, and a bus within the server that keeps the most recent ones and
// delivers new ones to its readers.
package events

import "time"

// Event is one thing that happened. Node and Link are empty where the event is not about one.
type Event struct {
	Seq     uint64    `json:"seq"` // counts the events of one server process, from 1
	Time    time.Time `json:"time"`
	Slice   string    `json:"slice,omitempty"`
	Node    string    `json:"node,omitempty"`
	Link    string    `json:"link,omitempty"`
	Kind    Kind      `json:"kind"`
	Message string    `json:"message"`
}

// Kind says what sort of thing happened.
type Kind string

// The kinds of event.
const (
	SliceApplied  Kind = "slice-applied"  // a new version of a slice was accepted
	SliceSettled  Kind = "slice-settled"  // the hosts have nothing left to do for it
	SliceDeleting Kind = "slice-deleting" // a slice is to be removed
	SliceGone     Kind = "slice-gone"     // nothing of it is left
	NodeChanged   Kind = "node-changed"   // a node entered another phase
	NodeWanted    Kind = "node-wanted"    // a user asked for start, stop, pause, resume or restart
	LinkChanged   Kind = "link-changed"   // a link went up or down
	LinkWanted    Kind = "link-wanted"    // a user asked for a link's state or shape
	LSPChanged    Kind = "lsp-changed"    // an LSP that is signalled went up or down, or is another one
	LSPWanted     Kind = "lsp-wanted"     // a user asked for an LSP, or for another path of one
	Failed        Kind = "failed"         // an action failed; it is tried again
	HostRefused   Kind = "host-refused"   // a machine used a revoked certificate

	AuthorityEnds Kind = "authority-ends" // the cluster's certificate authority expires within months
)
