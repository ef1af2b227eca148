package message

import (
	"fmt"
	"net/netip"
)

// Types of what routes consist of.
const (
	subIPv4     = 1
	subIPv6     = 2
	subLabel    = 3
	subAS       = 32
	loose       = 0x80
	prefixV4    = 8
	prefixV6    = 20
	labelLength = 8
)

// ExplicitRoute is the way that an LSP is to take. RFC 3209 has it end with the removal of the last step.
type ExplicitRoute struct{ Steps []Step }

// Step is a step of an explicit route. One of Prefix, AS and Raw says where to.
type Step struct {
	Loose  bool
	Prefix netip.Prefix
	AS     uint16 // 0: none
	// Raw is a step of another type: its bytes after type and length.
	Type uint8
	Raw  []byte
}

func readExplicitRoute(r *reader) Object {
	var route ExplicitRoute
	for r.more() {
		head, n := r.u8(), int(r.u8())
		s := Step{Loose: head&loose != 0}
		switch t := head &^ loose; {
		case n < 4 || n%4 != 0:
			r.fail("a step of %d bytes", n)
		case t == subIPv4 && n == prefixV4:
			s.Prefix = readPrefix(r, r.v4())
		case t == subIPv6 && n == prefixV6:
			s.Prefix = readPrefix(r, r.v6())
		case t == subAS && n == 4:
			if s.AS = r.u16(); s.AS == 0 {
				r.fail("autonomous system 0")
			}
		case t == subIPv4 || t == subIPv6 || t == subAS:
			r.fail("a step of type %d has %d bytes", t, n)
		default:
			s.Type, s.Raw = t, append([]byte(nil), r.take(n-2)...)
		}
		route.Steps = append(route.Steps, s)
	}
	return route
}

func readPrefix(r *reader, a netip.Addr) netip.Prefix {
	bits := int(r.u8())
	r.skip(1)
	if bits > a.BitLen() {
		r.fail("a prefix of %d bits", bits)
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}
func (ExplicitRoute) kind() Kind { return Kind{classExplicitRoute, 1} }
func (e ExplicitRoute) write(w *writer) {
	for _, s := range e.Steps {
		s.write(w)
	}
}
func (s Step) write(w *writer) {
	head := func(t uint8, n int) {
		if s.Loose {
			t |= loose
		}
		w.u8(t)
		w.u8(uint8(n))
	}
	switch {
	case s.Prefix.IsValid():
		if s.Prefix.Addr().Is4() {
			head(subIPv4, prefixV4)
		} else {
			head(subIPv6, prefixV6)
		}
		w.addr(s.Prefix.Addr())
		w.u8(uint8(s.Prefix.Bits()))
		w.u8(0)
	case s.AS != 0:
		head(subAS, 4)
		w.u16(s.AS)
	default:
		n := len(s.Raw) + 2
		switch s.Type {
		case subIPv4, subIPv6, subAS:
			w.fail("a step of type %d without its content", s.Type)
		}
		if s.Type&loose != 0 || n < 4 || n%4 != 0 || n > 255 {
			w.fail("a step of type %d and %d bytes", s.Type, n)
		}
		head(s.Type, n)
		w.bytes(s.Raw)
	}
}
func (s Step) String() string {
	word := "strict"
	if s.Loose {
		word = "loose"
	}
	switch {
	case s.Prefix.IsValid():
		return fmt.Sprintf("%s %s", word, s.Prefix)
	case s.AS != 0:
		return fmt.Sprintf("%s AS %d", word, s.AS)
	}
	return fmt.Sprintf("%s step of type %d", word, s.Type)
}

// Flags of a Record.
const (
	ProtectionAvailable = 1
	ProtectionInUse     = 2
	BandwidthProtected  = 4
	NodeProtected       = 8
	NodeID              = 0x20 // RFC 4561: the address is the router's, not an interface's
	GlobalLabel         = 1    // of a label: the router has one label space
)

// RecordRoute is the way that a message has come, the last router first.
type RecordRoute struct{ Records []Record }

// Record is an address, a label, or something of another type.
type Record struct {
	Addr    netip.Addr
	IsLabel bool
	Label   uint32
	Flags   uint8
	Type    uint8
	Raw     []byte
}

func readRecordRoute(r *reader) Object {
	var route RecordRoute
	for r.more() {
		t, n := r.u8(), int(r.u8())
		var rec Record
		switch {
		case n < 4 || n%4 != 0:
			r.fail("a record of %d bytes", n)
		case t == subIPv4 && n == prefixV4:
			rec.Addr = r.v4()
			r.skip(1)
			rec.Flags = r.u8()
		case t == subIPv6 && n == prefixV6:
			rec.Addr = r.v6()
			r.skip(1)
			rec.Flags = r.u8()
		case t == subLabel && n == labelLength && len(r.b) > 1 && r.b[1] == 1:
			rec.IsLabel, rec.Flags = true, r.u8()
			r.skip(1)
			rec.Label = r.u32()
		case t == subIPv4 || t == subIPv6:
			r.fail("a record of type %d has %d bytes", t, n)
		default:
			rec.Type, rec.Raw = t, append([]byte(nil), r.take(n-2)...)
		}
		route.Records = append(route.Records, rec)
	}
	return route
}
func (RecordRoute) kind() Kind { return Kind{classRecordRoute, 1} }
func (e RecordRoute) write(w *writer) {
	for _, rec := range e.Records {
		rec.write(w)
	}
}
func (rec Record) write(w *writer) {
	switch {
	case rec.Addr.IsValid():
		if rec.Addr.Is4() {
			w.bytes([]byte{subIPv4, prefixV4})
		} else {
			w.bytes([]byte{subIPv6, prefixV6})
		}
		w.addr(rec.Addr)
		w.u8(uint8(rec.Addr.BitLen()))
		w.u8(rec.Flags)
	case rec.IsLabel:
		w.bytes([]byte{subLabel, labelLength, rec.Flags, 1})
		w.u32(rec.Label)
	default:
		n := len(rec.Raw) + 2
		label := rec.Type == subLabel && n == labelLength && rec.Raw[1] == 1
		if rec.Type == subIPv4 || rec.Type == subIPv6 || label || n < 4 || n%4 != 0 || n > 255 {
			w.fail("a record of type %d and %d bytes", rec.Type, n)
		}
		w.u8(rec.Type)
		w.u8(uint8(n))
		w.bytes(rec.Raw)
	}
}
