package message

import (
	"fmt"
	"net/netip"
)

// Hop is the interface from which a message was sent (RSVP_HOP).
type Hop struct {
	Addr   netip.Addr
	Handle uint32 // logical interface handle: the sender's own name of the interface, returned as it is
}

func readHop(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return Hop{addr(r), r.u32()} }
}
func (h Hop) kind() Kind { return Kind{classHop, byFamily(h.Addr, 1, 2)} }
func (h Hop) write(w *writer) {
	w.addr(h.Addr)
	w.u32(h.Handle)
}

// TimeValues is the period of refreshes.
type TimeValues struct{ Milliseconds uint32 }

func readTimeValues(r *reader) Object {
	t := TimeValues{r.u32()}
	if t.Milliseconds == 0 {
		r.fail("a refresh period of 0")
	}
	return t
}
func (TimeValues) kind() Kind { return Kind{classTimeValues, 1} }
func (t TimeValues) write(w *writer) {
	if t.Milliseconds == 0 {
		w.fail("a refresh period of 0")
	}
	w.u32(t.Milliseconds)
}

// Style is how senders share a reservation.
type Style uint32

// The styles of RFC 2205.
const (
	WildcardFilter Style = 0x11
	FixedFilter    Style = 0x0a
	SharedExplicit Style = 0x12
)

func readStyle(r *reader) Object {
	s := Style(r.u32() & 0xffffff)
	switch s {
	case WildcardFilter, FixedFilter, SharedExplicit:
	default:
		r.fail("option vector %#x is no style", uint32(s))
	}
	return s
}
func (Style) kind() Kind        { return Kind{classStyle, 1} }
func (s Style) write(w *writer) { w.u32(uint32(s) & 0xffffff) }
func (s Style) String() string {
	switch s {
	case WildcardFilter:
		return "WF"
	case FixedFilter:
		return "FF"
	case SharedExplicit:
		return "SE"
	}
	return fmt.Sprintf("style %#x", uint32(s))
}

// Flags of an ErrorSpec.
const (
	InPlace          = 1 // the reservation before the failed one is still there
	NotGuilty        = 2
	PathStateRemoved = 4 // RFC 3473: the node that reports the error has removed its path state
)

// ErrorSpec says which node reports what.
type ErrorSpec struct {
	Node  netip.Addr
	Flags uint8
	Code  ErrorCode
	Value uint16
}

func readErrorSpec(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return ErrorSpec{addr(r), r.u8(), ErrorCode(r.u8()), r.u16()} }
}
func (e ErrorSpec) kind() Kind { return Kind{classErrorSpec, byFamily(e.Node, 1, 2)} }
func (e ErrorSpec) write(w *writer) {
	w.addr(e.Node)
	w.u8(e.Flags)
	w.u8(uint8(e.Code))
	w.u16(e.Value)
}
func (e ErrorSpec) String() string {
	return fmt.Sprintf("%s at %s", ErrorText(e.Code, e.Value), e.Node)
}

// ResvConfirm is the receiver that wants to be told of the reservation.
type ResvConfirm struct{ Receiver netip.Addr }

func readResvConfirm(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return ResvConfirm{addr(r)} }
}
func (c ResvConfirm) kind() Kind      { return Kind{classResvConfirm, byFamily(c.Receiver, 1, 2)} }
func (c ResvConfirm) write(w *writer) { w.addr(c.Receiver) }

// Scope is the senders that a wildcard reservation goes to; at least one, of one family.
type Scope struct{ Senders []netip.Addr }

func readScope(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object {
		s := Scope{Senders: []netip.Addr{addr(r)}}
		for r.more() {
			s.Senders = append(s.Senders, addr(r))
		}
		return s
	}
}
func (s Scope) kind() Kind {
	if len(s.Senders) == 0 {
		return Kind{classScope, 1}
	}
	return Kind{classScope, byFamily(s.Senders[0], 1, 2)}
}
func (s Scope) write(w *writer) {
	if len(s.Senders) == 0 {
		w.fail("no senders")
	}
	for _, a := range s.Senders {
		w.sameAddr(a, s.Senders[0].Is4())
	}
}

// PolicyData is not interpreted.
type PolicyData struct{ Data []byte }

func readPolicyData(r *reader) Object { return PolicyData{r.rest()} }
func (PolicyData) kind() Kind         { return Kind{classPolicyData, 1} }
func (p PolicyData) write(w *writer)  { w.bytes(p.Data) }
