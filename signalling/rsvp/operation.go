package rsvp

import "github.com/pergola-net/pergola/signalling/rsvp/message"

// EgressLabel is which label the egress of an LSP asks for (RFC 3209, section 4.1.1.1).
type EgressLabel uint8

const (
	// ImplicitNull has the router before take the label off (penultimate hop popping), so that the egress looks at
	// packets once.
	ImplicitNull EgressLabel = iota
	// ExplicitNull keeps a label, and with it the traffic class: 0, or 2 for IPv6, the same for all LSPs.
	ExplicitNull
	// OwnLabel is one for each LSP, by which the egress tells them apart.
	OwnLabel
)

// Operation is what is done at a router to packets of an LSP.
type Operation string

// Operations. Bypass is pushed after each of those that send packets on, if there is one.
const (
	Push    Operation = "push"    // they begin here: Out is put on, and they are sent to Next
	Plain   Operation = "plain"   // they begin here, and are sent to Next, the egress, without a label
	Swap    Operation = "swap"    // In gives place to Out, and they are sent to Next
	Pop     Operation = "pop"     // In is taken off, and they are sent to Next
	Deliver Operation = "deliver" // In is taken off, and the router looks at what is below; all LSPs may share In
	Nothing Operation = "nothing" // they end here and come without a label: there is nothing to install
)

// Operation of an entry follows from its labels.
func (e Entry) Operation() Operation {
	bare := e.HasOut && e.Out == message.ImplicitNull
	switch {
	case !e.HasIn && bare:
		return Plain
	case !e.HasIn:
		return Push
	case bare:
		return Pop
	case e.HasOut:
		return Swap
	case e.In == message.ImplicitNull:
		return Nothing
	}
	return Deliver
}

const etherTypeIPv6 = 0x86dd

// lastLabel is the label of an LSP that ends here. Without a label, and with one that all LSPs share, only IP can be
// told from what else an LSP may carry: others get a label of their own.
func (r *Router) lastLabel(s *lsp) (message.Label, bool) {
	kind := s.path.request.EtherType
	switch {
	case s.kept != nil: // that of before a restart
		return s.kept.In, true
	case kind != etherTypeIPv4 && kind != etherTypeIPv6 || r.config.Egress == OwnLabel:
		return r.labels.take()
	case r.config.Egress == ImplicitNull:
		return message.ImplicitNull, true
	case kind == etherTypeIPv6:
		return message.IPv6ExplicitNull, true
	}
	return message.IPv4ExplicitNull, true
}

// acceptable tells whether packets of an LSP can be sent by a label that the next router has given.
func acceptable(l message.Label, q message.LabelRequest) bool {
	switch l {
	case message.IPv4ExplicitNull:
		return q.EtherType == etherTypeIPv4
	case message.IPv6ExplicitNull:
		return q.EtherType == etherTypeIPv6
	case message.ImplicitNull:
		return q.EtherType == etherTypeIPv4 || q.EtherType == etherTypeIPv6
	}
	return l >= firstLabel
}
