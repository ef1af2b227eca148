package rtnl

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// native is the byte order of netlink, which is the machine's.
var native = binary.NativeEndian

// Attr is one encoded attribute (struct nlattr, linux/netlink.h), padded to four bytes.
type Attr []byte

// Bytes makes an attribute of a value as it is.
func Bytes(kind uint16, value []byte) Attr {
	a := make(Attr, 0, unix.SizeofRtAttr+Align(len(value)))
	a = native.AppendUint16(a, uint16(unix.SizeofRtAttr+len(value)))
	a = append(native.AppendUint16(a, kind), value...)
	return pad(a)
}

// U8 makes an attribute of a number of 8 bits.
func U8(kind uint16, v uint8) Attr { return Bytes(kind, []byte{v}) }

// U16 makes an attribute of a number of 16 bits, in the machine's byte order.
func U16(kind uint16, v uint16) Attr { return Bytes(kind, native.AppendUint16(nil, v)) }

// U32 makes an attribute of a number of 32 bits, in the machine's byte order.
func U32(kind uint16, v uint32) Attr { return Bytes(kind, native.AppendUint32(nil, v)) }

// U64 makes an attribute of a number of 64 bits, in the machine's byte order.
func U64(kind uint16, v uint64) Attr { return Bytes(kind, native.AppendUint64(nil, v)) }

// String makes an attribute of a string that ends with a zero byte.
func String(kind uint16, s string) Attr { return Bytes(kind, append([]byte(s), 0)) }

// Struct makes an attribute of a C struct: its fields have fixed sizes, and its padding is written out.
func Struct(kind uint16, v any) Attr { return Bytes(kind, Encode(v)) }

// Nest makes an attribute of attributes.
func Nest(kind uint16, children ...Attr) Attr { return Bytes(kind, nil).With(children...) }

// With adds attributes at the end of an attribute's value.
func (a Attr) With(children ...Attr) Attr {
	for _, c := range children {
		a = append(a, c...)
	}
	native.PutUint16(a, uint16(len(a)))
	return a
}

// Encode gives the bytes of a C struct: its fields have fixed sizes, and its padding is written out.
func Encode(v any) []byte {
	b, err := binary.Append(nil, native, v)
	if err != nil {
		panic(err) // only for a type that has no fixed size
	}
	return b
}

// Align rounds a length up to the next multiple of four, as netlink does.
func Align(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

func pad(b []byte) []byte {
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// Attrs walks over the attributes of a message, or over those inside an attribute, without a copy:
//
//	for a := rtnl.Attributes(b); a.Next(); { switch a.Kind { ... a.Value } }
type Attrs struct {
	Kind  uint16 // without the flags for nested attributes and for byte order
	Value []byte
	Whole []byte // the attribute with its header
	rest  []byte
	bad   bool
}

// Attributes begins before the first attribute.
func Attributes(b []byte) Attrs { return Attrs{rest: b} }

// Next steps to the next attribute. It is false at the end, and at bytes that are no attribute: then Err is not nil.
func (a *Attrs) Next() bool {
	if len(a.rest) < unix.SizeofRtAttr {
		a.bad = a.bad || len(a.rest) > 0
		return false
	}
	size := int(native.Uint16(a.rest))
	if size < unix.SizeofRtAttr || size > len(a.rest) {
		a.bad = true
		return false
	}
	a.Kind = native.Uint16(a.rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.Whole = a.rest[:size]
	a.Value = a.rest[unix.SizeofRtAttr:size]
	a.rest = a.rest[min(Align(size), len(a.rest)):]
	return true
}

// Err is ErrMalformed if bytes were no attribute, or a value had not the size of the number that was asked for.
func (a *Attrs) Err() error {
	if a.bad {
		return ErrMalformed
	}
	return nil
}

// U8 is the value as a number of 8 bits; 0 if it is shorter.
func (a *Attrs) U8() uint8 {
	if len(a.Value) < 1 {
		a.bad = true
		return 0
	}
	return a.Value[0]
}

// U32 is the value as a number of 32 bits in the machine's byte order; 0 if it is shorter.
func (a *Attrs) U32() uint32 {
	if len(a.Value) < 4 {
		a.bad = true
		return 0
	}
	return native.Uint32(a.Value)
}

// BigU32 is the value as a number of 32 bits in network byte order; 0 if it is shorter.
func (a *Attrs) BigU32() uint32 {
	if len(a.Value) < 4 {
		a.bad = true
		return 0
	}
	return binary.BigEndian.Uint32(a.Value)
}

// U64 is the value as a number of 64 bits in the machine's byte order; 0 if it is shorter.
func (a *Attrs) U64() uint64 {
	if len(a.Value) < 8 {
		a.bad = true
		return 0
	}
	return native.Uint64(a.Value)
}

// Text is the value as a string, up to the first zero byte.
func (a *Attrs) Text() string { return unix.ByteSliceToString(a.Value) }

// Address is the value as an IP address; invalid if it is none.
func (a *Attrs) Address() netip.Addr {
	addr, _ := netip.AddrFromSlice(a.Value)
	return addr
}

// Inside calls f for each attribute of a kind inside the value. What is malformed there is an error of a, too.
func (a *Attrs) Inside(kind uint16, f func(*Attrs)) {
	inner := Attributes(a.Value)
	for inner.Next() {
		if inner.Kind == kind {
			f(&inner)
		}
	}
	a.bad = a.bad || inner.bad
}
