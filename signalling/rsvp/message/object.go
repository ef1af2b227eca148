package message

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// Kind is what the header of an object says: its class number and C-Type.
type Kind struct{ Class, CType uint8 }

// Object is a part of a message: one of the types of this package.
type Object interface {
	kind() Kind
	// write appends the object without its header. A value that the wire cannot hold is an error.
	write(w *writer)
}

// Unknown is an object that is forwarded unchanged (class numbers from 192 on; RFC 2205, section 3.10).
type Unknown struct {
	Class, CType uint8
	Data         []byte
}

func (u Unknown) kind() Kind      { return Kind{u.Class, u.CType} }
func (u Unknown) write(w *writer) { w.bytes(u.Data) }

// Of gives the first object of a type.
func Of[T Object](m Message) (T, bool) {
	for _, o := range m.Objects {
		if found, ok := o.(T); ok {
			return found, true
		}
	}
	var none T
	return none, false
}

const objectHeader = 4

// decodeObject reads the object at the beginning of b, and gives its length. An object to ignore is nil.
func decodeObject(b []byte, base int) (Object, int, error) {
	if len(b) < objectHeader {
		return nil, 0, &Error{Offset: base, Reason: "an object's header is cut off"}
	}
	n, k := int(binary.BigEndian.Uint16(b)), Kind{b[2], b[3]}
	name := k.name()
	if n < objectHeader || n%4 != 0 || n > len(b) {
		return nil, 0, &Error{Object: name, Offset: base, Reason: fmt.Sprintf("length %d, of %d bytes left",
			n, len(b))}
	}
	c, known := classes[k.Class]
	if !known {
		return unknownClass(k, b[:n], base)
	}
	read, ok := c.types[k.CType]
	if !ok {
		return nil, n, &Error{Object: name, Offset: base + 3, Reason: fmt.Sprintf("C-Type %d is not known",
			k.CType),
			Code: UnknownCType, Value: uint16(k.Class)<<8 | uint16(k.CType)}
	}
	r := &reader{b: b[objectHeader:n], base: base + objectHeader}
	o := read(r)
	if r.err == "" && len(r.b) > 0 {
		r.fail("%d bytes more than the object has", len(r.b))
	}
	if r.err != "" {
		return nil, 0, &Error{Object: name, Offset: r.at, Reason: r.err}
	}
	return o, n, nil
}

// unknownClass is RFC 2205's section 3.10: the two high bits say what becomes of an object of an unknown class.
func unknownClass(k Kind, b []byte, base int) (Object, int, error) {
	switch {
	case k.Class == 0: // NULL: of any content, ignored
		return nil, len(b), nil
	case k.Class < 128:
		return nil, len(b), &Error{Object: k.name(), Offset: base + 2, Reason: "the class is not known",
			Code: UnknownClass, Value: uint16(k.Class)<<8 | uint16(k.CType)}
	case k.Class < 192:
		return nil, len(b), nil
	}
	return Unknown{k.Class, k.CType, append([]byte(nil), b[objectHeader:]...)}, len(b), nil
}

func (k Kind) name() string {
	if c, ok := classes[k.Class]; ok {
		return c.name
	}
	return fmt.Sprintf("object of class %d", k.Class)
}

func appendObject(b []byte, o Object) ([]byte, error) {
	start, k := len(b), o.kind()
	w := &writer{b: append(b, 0, 0, k.Class, k.CType)}
	o.write(w)
	n := len(w.b) - start
	switch {
	case w.err != "":
		return nil, fmt.Errorf("%s: %s", k.name(), w.err)
	case n%4 != 0 || n > maxLength:
		return nil, fmt.Errorf("%s: %d bytes are no object's length", k.name(), n)
	}
	binary.BigEndian.PutUint16(w.b[start:], uint16(n))
	return w.b, nil
}

// reader takes an object apart. After the first failure all it gives is zero.
type reader struct {
	b    []byte
	base int // of b in the message
	at   int // of the failure
	err  string
}

func (r *reader) fail(format string, args ...any) {
	if r.err == "" {
		r.err, r.at = fmt.Sprintf(format, args...), r.base
	}
}

func (r *reader) take(n int) []byte {
	if r.err == "" && len(r.b) < n {
		r.fail("%d bytes left, %d needed", len(r.b), n)
	}
	if r.err != "" {
		return make([]byte, n)
	}
	taken := r.b[:n]
	r.b, r.base = r.b[n:], r.base+n
	return taken
}

// more tells whether there is something left of a list.
func (r *reader) more() bool { return r.err == "" && len(r.b) > 0 }

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) skip(n int)  { r.take(n) }
func (r *reader) rest() []byte {
	return append([]byte(nil), r.take(len(r.b))...)
}

func (r *reader) v4() netip.Addr { return netip.AddrFrom4([4]byte(r.take(4))) }
func (r *reader) v6() netip.Addr { return netip.AddrFrom16([16]byte(r.take(16))) }

// rate is a number of bytes a second: not negative; infinite is allowed where the RFC allows it (peak rates).
func (r *reader) rate() float32 {
	f := math.Float32frombits(r.u32())
	if f != f || f < 0 || math.Signbit(float64(f)) {
		r.fail("%v is no rate", f)
	}
	return f
}

// writer puts an object together.
type writer struct {
	b   []byte
	err string
}

func (w *writer) fail(format string, args ...any) {
	if w.err == "" {
		w.err = fmt.Sprintf(format, args...)
	}
}
func (w *writer) bytes(b []byte)    { w.b = append(w.b, b...) }
func (w *writer) u8(v uint8)        { w.b = append(w.b, v) }
func (w *writer) u16(v uint16)      { w.b = binary.BigEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32)      { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64)      { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *writer) zero(n int)        { w.b = append(w.b, make([]byte, n)...) }
func (w *writer) addr(a netip.Addr) { w.sameAddr(a, a.Is4()) }

// sameAddr writes an address that has to be of the family of another one.
func (w *writer) sameAddr(a netip.Addr, four bool) {
	if !a.IsValid() || a.Is4() != four {
		w.fail("address %s is missing, or of the other family", a)
		return
	}
	w.bytes(a.AsSlice())
}
func (w *writer) rate(f float32) {
	if f != f || f < 0 || math.Signbit(float64(f)) {
		w.fail("%v is no rate", f)
	}
	w.u32(math.Float32bits(f))
}

// byFamily is the C-Type of an address.
func byFamily(a netip.Addr, four, six uint8) uint8 {
	if a.Is4() {
		return four
	}
	return six
}
