package message

import (
	"fmt"
	"net/netip"
)

// Session names a tunnel: all LSPs with one session share the tunnel (RFC 3209, section 4.6.1).
type Session struct {
	End      netip.Addr // the egress
	Tunnel   uint16
	Extended netip.Addr // as a rule the ingress; zero: any
}

func readSession(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object {
		s := Session{End: addr(r)}
		r.skip(2)
		s.Tunnel = r.u16()
		s.Extended = addr(r)
		return s
	}
}
func (s Session) kind() Kind { return Kind{classSession, byFamily(s.End, 7, 8)} }
func (s Session) write(w *writer) {
	w.addr(s.End)
	w.u16(0)
	w.u16(s.Tunnel)
	w.sameAddr(s.Extended, s.End.Is4())
}
func (s Session) String() string {
	return fmt.Sprintf("tunnel %d of %s to %s", s.Tunnel, s.Extended, s.End)
}

// SenderTemplate names one LSP of a session by its ingress and number.
type SenderTemplate struct {
	Sender netip.Addr
	LSP    uint16
}

func readSenderTemplate(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return SenderTemplate(readLSP(r, addr)) }
}

type lsp struct {
	Sender netip.Addr
	LSP    uint16
}

func readLSP(r *reader, addr func(*reader) netip.Addr) lsp {
	l := lsp{Sender: addr(r)}
	r.skip(2)
	l.LSP = r.u16()
	return l
}
func (l lsp) write(w *writer) {
	w.addr(l.Sender)
	w.u16(0)
	w.u16(l.LSP)
}
func (s SenderTemplate) kind() Kind      { return Kind{classSenderTemplate, byFamily(s.Sender, 7, 8)} }
func (s SenderTemplate) write(w *writer) { lsp(s).write(w) }

// FilterSpec names, in a Resv, the LSP that a label is for.
type FilterSpec struct {
	Sender netip.Addr
	LSP    uint16
}

func readFilterSpec(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return FilterSpec(readLSP(r, addr)) }
}
func (f FilterSpec) kind() Kind      { return Kind{classFilterSpec, byFamily(f.Sender, 7, 8)} }
func (f FilterSpec) write(w *writer) { lsp(f).write(w) }

// FlowSession is the session of a flow that has no label (RFC 2205).
type FlowSession struct {
	Dest     netip.Addr
	Protocol uint8
	Flags    uint8
	Port     uint16
}

func readFlowSession(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { return FlowSession{addr(r), r.u8(), r.u8(), r.u16()} }
}
func (s FlowSession) kind() Kind { return Kind{classSession, byFamily(s.Dest, 1, 2)} }
func (s FlowSession) write(w *writer) {
	w.addr(s.Dest)
	w.u8(s.Protocol)
	w.u8(s.Flags)
	w.u16(s.Port)
}

// FlowTemplate is the sender of a flow that has no label.
type FlowTemplate struct {
	Source netip.Addr
	Port   uint16
}

func readFlowTemplate(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { l := readLSP(r, addr); return FlowTemplate{l.Sender, l.LSP} }
}
func (f FlowTemplate) kind() Kind      { return Kind{classSenderTemplate, byFamily(f.Source, 1, 2)} }
func (f FlowTemplate) write(w *writer) { lsp{f.Source, f.Port}.write(w) }

// FlowFilter is, in a Resv, the sender of a flow that has no label.
type FlowFilter struct {
	Source netip.Addr
	Port   uint16
}

func readFlowFilter(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object { l := readLSP(r, addr); return FlowFilter{l.Sender, l.LSP} }
}
func (f FlowFilter) kind() Kind      { return Kind{classFilterSpec, byFamily(f.Source, 1, 2)} }
func (f FlowFilter) write(w *writer) { lsp{f.Source, f.Port}.write(w) }
