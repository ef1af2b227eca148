// Package ospf is the traffic engineering LSAs of OSPFv2 (RFC 3630, and SRLGs of RFC 4203) as bytes, and a database
// made of them and of router LSAs. It does not flood.
package ospf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/internal/attribute"
)

const (
	headerLength = 20
	maxLength    = 1<<16 - 1
	typeRouter   = 1
	typeArea     = 10 // opaque, with the scope of an area
	opaqueTE     = 1
	tlvHeader    = 4
	tlvAddress   = 1
	tlvLink      = 2
	linkType     = 1 // sub-TLVs
	linkID       = 2
	pointToPoint = 1 // values of linkType
	multiAccess  = 2
	maxInstance  = 1<<24 - 1
	checksumAt   = 16
	optionExtern = 0x02
	optionOpaque = 0x40
)

// sub is what sub-TLVs of a link say; those that are not here are ignored.
var sub = map[uint16]attribute.Kind{3: attribute.Local, 4: attribute.Remote, 5: attribute.TEMetric,
	6: attribute.Bandwidth, 7: attribute.Reservable, 8: attribute.Unreserved, 9: attribute.Groups,
	16: attribute.SRLGs}

// order is that in which they are written.
var order = []uint16{3, 4, 5, 6, 7, 8, 9, 16}

// FirstSequence is the sequence number of a router's first LSA; the next ones are each larger by one.
const FirstSequence = -1<<31 + 1

// LSA is a traffic engineering LSA. RFC 3630 has an address or a link in each; FRR has both in one.
type LSA struct {
	Age      uint16 // seconds
	Router   netip.Addr
	Instance uint32 // of 24 bits: tells the router's LSAs apart
	Sequence int32
	Address  netip.Addr
	// Link has the router at its beginning, and at its end the neighbour's router ID, or the address of the
	// designated router of a LAN. The metric is not in it.
	Link *te.Link
}

var errCut = errors.New("it is cut off")

// Decode reads an LSA, with its header.
func Decode(b []byte) (LSA, error) {
	h, err := readHeader(b)
	if err != nil {
		return LSA{}, fmt.Errorf("OSPF LSA: %w", err)
	}
	if h.kind != typeArea || h.id>>24 != opaqueTE {
		return LSA{}, fmt.Errorf("OSPF LSA: type %d, opaque type %d; traffic engineering has 10 and 1", h.kind,
			h.id>>24)
	}
	l := LSA{Age: h.age, Router: h.router, Instance: h.id & maxInstance, Sequence: h.sequence}
	err = tlvs(b[headerLength:], func(kind uint16, v []byte) (err error) {
		switch kind {
		case tlvAddress:
			l.Address, err = address(v)
		case tlvLink:
			l.Link, err = readLink(h.router, v)
		}
		return err
	})
	if err != nil {
		return LSA{}, fmt.Errorf("OSPF traffic engineering LSA %d of %s: %w", l.Instance, l.Router, err)
	}
	return l, nil
}

// header is what is the same in all LSAs.
type header struct {
	age      uint16
	kind     uint8
	id       uint32
	router   netip.Addr
	sequence int32
	checksum uint16
}

func readHeader(b []byte) (h header, err error) {
	if len(b) < headerLength {
		return h, errCut
	}
	if n := binary.BigEndian.Uint16(b[18:]); int(n) != len(b) {
		return h, fmt.Errorf("length %d, of %d bytes", n, len(b))
	}
	if c0, c1 := fletcher(b[2:]); c0 != 0 || c1 != 0 {
		return h, errors.New("wrong checksum")
	}
	return header{age: binary.BigEndian.Uint16(b), kind: b[3], id: binary.BigEndian.Uint32(b[4:]),
		router: netip.AddrFrom4([4]byte(b[8:])), sequence: int32(binary.BigEndian.Uint32(b[12:])),
		checksum: binary.BigEndian.Uint16(b[checksumAt:])}, nil
}

// tlvs calls f with each TLV. They are padded to four bytes.
func tlvs(b []byte, f func(uint16, []byte) error) error {
	for len(b) > 0 {
		if len(b) < tlvHeader {
			return errCut
		}
		kind, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		b = b[tlvHeader:]
		if n > len(b) {
			return fmt.Errorf("a TLV of type %d has %d bytes, of %d that are left", kind, n, len(b))
		}
		if err := f(kind, b[:n]); err != nil {
			return err
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}

func address(v []byte) (netip.Addr, error) {
	if len(v) != 4 {
		return netip.Addr{}, fmt.Errorf("an address of %d bytes", len(v))
	}
	return netip.AddrFrom4([4]byte(v)), nil
}

func readLink(router netip.Addr, b []byte) (*te.Link, error) {
	l := &te.Link{LinkID: te.LinkID{From: router.String()}}
	seen := make(map[uint16]bool)
	err := tlvs(b, func(kind uint16, v []byte) error {
		if seen[kind] { // RFC 3630, section 2.4.2: the first one counts
			return nil
		}
		seen[kind] = true
		switch k, known := sub[kind]; {
		case kind == linkType && (len(v) != 1 || v[0] != pointToPoint && v[0] != multiAccess):
			return fmt.Errorf("a link of type %x", v)
		case kind == linkType:
			l.LAN = v[0] == multiAccess
		case kind == linkID:
			a, err := address(v)
			l.To = a.String()
			return err
		case known:
			return attribute.Read(l, k, v)
		}
		return nil
	})
	if err == nil && (!seen[linkType] || !seen[linkID]) {
		err = errors.New("a link without its type, or its other end")
	}
	if l.LAN {
		l.Remote = netip.Addr{} // 0.0.0.0, or the designated router's
	}
	return l, err
}

// Encode writes an LSA, with its header.
func (l LSA) Encode() ([]byte, error) {
	b := make([]byte, headerLength)
	binary.BigEndian.PutUint16(b, l.Age)
	b[2], b[3] = optionExtern|optionOpaque, typeArea
	if l.Instance > maxInstance || !l.Router.Is4() {
		return nil, fmt.Errorf("OSPF traffic engineering LSA %d of %s: instance of more than 24 bits, or no "+
			"router", l.Instance, l.Router)
	}
	binary.BigEndian.PutUint32(b[4:], opaqueTE<<24|l.Instance)
	copy(b[8:], l.Router.AsSlice())
	binary.BigEndian.PutUint32(b[12:], uint32(l.Sequence))
	if l.Address.IsValid() {
		b = appendTLV(b, tlvAddress, l.Address.AsSlice())
	}
	if l.Link != nil {
		link, err := appendLink(nil, *l.Link)
		if err != nil {
			return nil, fmt.Errorf("OSPF traffic engineering LSA %d of %s: %w", l.Instance, l.Router, err)
		}
		b = appendTLV(b, tlvLink, link)
	}
	if len(b) > maxLength {
		return nil, fmt.Errorf("OSPF traffic engineering LSA %d of %s: %d bytes", l.Instance, l.Router, len(b))
	}
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)))
	sign(b)
	return b, nil
}

func appendTLV(b []byte, kind uint16, v []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, make([]byte, (4-len(v)%4)%4)...)
}

func appendLink(b []byte, l te.Link) ([]byte, error) {
	to, err := netip.ParseAddr(l.To)
	if err != nil || !to.Is4() || l.Local.Is6() || l.Remote.Is6() {
		return nil, fmt.Errorf("the link %s: OSPFv2 names ends by IPv4 addresses", l.LinkID)
	}
	kind := byte(pointToPoint)
	if l.LAN {
		kind = multiAccess
	}
	b = appendTLV(b, linkType, []byte{kind})
	b = appendTLV(b, linkID, to.AsSlice())
	for _, t := range order {
		v := attribute.Write(l, sub[t])
		if len(v) > maxLength {
			return nil, fmt.Errorf("the link %s: %d bytes of sub-TLV %d", l.LinkID, len(v), t)
		}
		if v != nil {
			b = appendTLV(b, t, v)
		}
	}
	return b, nil
}

// fletcher is the sum of RFC 905, annex B; both parts are 0 over what has a right checksum in it.
func fletcher(b []byte) (c0, c1 int) {
	for _, v := range b {
		c0 = (c0 + int(v)) % 255
		c1 = (c1 + c0) % 255
	}
	return c0, c1
}

// sign writes the checksum: over all but the age (RFC 2328, section 12.1.7).
func sign(b []byte) {
	b[checksumAt], b[checksumAt+1] = 0, 0
	c0, c1 := fletcher(b[2:])
	x := ((len(b)-checksumAt-1)*c0 - c1) % 255
	if x <= 0 {
		x += 255
	}
	y := 510 - c0 - x
	if y > 255 {
		y -= 255
	}
	b[checksumAt], b[checksumAt+1] = byte(x), byte(y)
}
