package message

// Flags of a SessionAttribute.
const (
	LocalProtection     = 1
	LabelRecording      = 2
	SharedStyle         = 4
	WantBandwidthBackup = 8
	WantNodeBackup      = 16
)

// Affinities are administrative groups, a bit each, that links must have or must not have.
type Affinities struct{ ExcludeAny, IncludeAny, IncludeAll uint32 }

// Allow tells whether an LSP may go by a link with administrative groups (RFC 3209, section 4.7.4).
func (a Affinities) Allow(groups uint32) bool {
	return groups&a.ExcludeAny == 0 && (a.IncludeAny == 0 || groups&a.IncludeAny != 0) &&
		groups&a.IncludeAll == a.IncludeAll
}

// SessionAttribute has an LSP's priorities: 0 is the highest, 7 the lowest.
type SessionAttribute struct {
	Setup, Holding uint8
	Flags          uint8
	Name           string
	Affinities     *Affinities
}

const lowestPriority = 7

func readSessionAttribute(affinities bool) func(*reader) Object {
	return func(r *reader) Object {
		var s SessionAttribute
		if affinities {
			s.Affinities = &Affinities{r.u32(), r.u32(), r.u32()}
		}
		s.Setup, s.Holding, s.Flags = r.u8(), r.u8(), r.u8()
		if s.Setup > lowestPriority || s.Holding > lowestPriority {
			r.fail("priorities %d and %d, at most %d", s.Setup, s.Holding, lowestPriority)
		}
		n := int(r.u8())
		s.Name = string(r.take(n))
		r.padding(n)
		return s
	}
}
func (s SessionAttribute) kind() Kind {
	if s.Affinities != nil {
		return Kind{classSessionAttribute, 1}
	}
	return Kind{classSessionAttribute, 7}
}
func (s SessionAttribute) write(w *writer) {
	if a := s.Affinities; a != nil {
		w.u32(a.ExcludeAny)
		w.u32(a.IncludeAny)
		w.u32(a.IncludeAll)
	}
	if s.Setup > lowestPriority || s.Holding > lowestPriority {
		w.fail("priorities %d and %d, at most %d", s.Setup, s.Holding, lowestPriority)
	}
	if len(s.Name) > 255 {
		w.fail("a name of %d bytes, at most 255", len(s.Name))
	}
	w.u8(s.Setup)
	w.u8(s.Holding)
	w.u8(s.Flags)
	w.u8(uint8(len(s.Name)))
	w.bytes([]byte(s.Name))
	w.pad(len(s.Name))
}

// padding follows n bytes, up to a multiple of four.
func (r *reader) padding(n int) { r.skip((4 - n%4) % 4) }
func (w *writer) pad(n int)     { w.zero((4 - n%4) % 4) }

// FastReroute asks for local protection (RFC 4090).
type FastReroute struct {
	Setup, Holding uint8
	HopLimit       uint8
	Flags          uint8 // 1: by detours, 2: by facility backup
	Bandwidth      float32
	Affinities     Affinities
}

func readFastReroute(r *reader) Object {
	f := FastReroute{Setup: r.u8(), Holding: r.u8(), HopLimit: r.u8(), Flags: r.u8(), Bandwidth: r.rate()}
	if f.Setup > lowestPriority || f.Holding > lowestPriority {
		r.fail("priorities %d and %d, at most %d", f.Setup, f.Holding, lowestPriority)
	}
	f.Affinities.IncludeAny, f.Affinities.ExcludeAny, f.Affinities.IncludeAll = r.u32(), r.u32(), r.u32()
	return f
}
func (FastReroute) kind() Kind { return Kind{classFastReroute, 1} }
func (f FastReroute) write(w *writer) {
	if f.Setup > lowestPriority || f.Holding > lowestPriority {
		w.fail("priorities %d and %d, at most %d", f.Setup, f.Holding, lowestPriority)
	}
	w.u8(f.Setup)
	w.u8(f.Holding)
	w.u8(f.HopLimit)
	w.u8(f.Flags)
	w.rate(f.Bandwidth)
	w.u32(f.Affinities.IncludeAny)
	w.u32(f.Affinities.ExcludeAny)
	w.u32(f.Affinities.IncludeAll)
}

// Attributes are properties of an LSP that routers may leave aside (LSP_ATTRIBUTES, RFC 5420).
type Attributes struct{ TLVs []TLV }

// RequiredAttributes are properties that every router on the way has to know (LSP_REQUIRED_ATTRIBUTES).
type RequiredAttributes struct{ TLVs []TLV }

// TLV is one property.
type TLV struct {
	Type  uint16
	Value []byte
}

// AttributeFlags is the type of the TLV with flags: bit 0 is the highest of its first byte.
const AttributeFlags = 1

const tlvHeader = 4

func readTLVs(r *reader) (all []TLV) {
	for r.more() {
		t := TLV{Type: r.u16()}
		n := int(r.u16()) - tlvHeader
		if n < 0 {
			r.fail("a TLV shorter than its header")
			return nil
		}
		t.Value = append([]byte(nil), r.take(n)...)
		r.padding(n)
		all = append(all, t)
	}
	return all
}
func writeTLVs(w *writer, all []TLV) {
	for _, t := range all {
		if len(t.Value) > maxLength-tlvHeader {
			w.fail("a TLV of %d bytes", len(t.Value))
		}
		w.u16(t.Type)
		w.u16(uint16(len(t.Value) + tlvHeader))
		w.bytes(t.Value)
		w.pad(len(t.Value))
	}
}
func readAttributes(r *reader) Object         { return Attributes{readTLVs(r)} }
func (Attributes) kind() Kind                 { return Kind{classAttributes, 1} }
func (a Attributes) write(w *writer)          { writeTLVs(w, a.TLVs) }
func readRequiredAttributes(r *reader) Object { return RequiredAttributes{readTLVs(r)} }
func (RequiredAttributes) kind() Kind         { return Kind{classRequiredAttributes, 1} }
func (a RequiredAttributes) write(w *writer)  { writeTLVs(w, a.TLVs) }
