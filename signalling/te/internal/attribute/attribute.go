// Package attribute is what OSPF (RFC 3630, 4203) and IS-IS (RFC 5305, 5307) say alike of a link: the content of their
// sub-TLVs.
package attribute

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"github.com/pergola-net/pergola/signalling/te"
)

// Kind is what a sub-TLV says.
type Kind uint8

// What sub-TLVs say of a link.
const (
	Local     Kind = iota + 1 // an IPv4 address; of several the first counts
	Remote                    // likewise
	TEMetric                  // 24 or 32 bits
	Bandwidth                 // all bandwidths are floats, in bytes a second
	Reservable
	Unreserved // by priority
	Groups
	SRLGs // any number
)

// name and size of the content in bytes; 0: a multiple of four.
var kinds = map[Kind]struct {
	name string
	size int
}{
	Local: {"local address", 0}, Remote: {"remote address", 0}, TEMetric: {"TE metric", 0},
	Bandwidth: {"bandwidth", 4}, Reservable: {"reservable bandwidth", 4}, Groups: {"groups", 4},
	Unreserved: {"unreserved bandwidth", 4 * te.Priorities}, SRLGs: {"SRLGs", 0},
}

// Read changes a link by the content of a sub-TLV.
func Read(l *te.Link, k Kind, v []byte) error {
	if err := read(l, k, v); err != nil {
		return fmt.Errorf("%s of a link: %w", kinds[k].name, err)
	}
	return nil
}

func read(l *te.Link, k Kind, v []byte) (err error) {
	size := kinds[k].size
	if size > 0 && len(v) != size || k != TEMetric && len(v)%4 != 0 {
		return fmt.Errorf("%d bytes", len(v))
	}
	switch k {
	case Local:
		l.Local, err = address(v)
	case Remote:
		l.Remote, err = address(v)
	case TEMetric:
		l.TEMetric, err = metric(v)
	case Bandwidth:
		l.Bandwidth, err = bandwidth(v)
	case Reservable:
		l.Reservable, err = bandwidth(v)
	case Unreserved:
		for p := 0; p < te.Priorities && err == nil; p++ {
			l.Unreserved[p], err = bandwidth(v[4*p:])
		}
	case Groups:
		l.Groups = binary.BigEndian.Uint32(v)
	case SRLGs:
		for ; len(v) > 0; v = v[4:] {
			l.SRLGs = append(l.SRLGs, binary.BigEndian.Uint32(v))
		}
	}
	return err
}

// address is the first of a list; without one, or if it is 0.0.0.0, there is none.
func address(v []byte) (a netip.Addr, err error) {
	if len(v) < 4 {
		return a, fmt.Errorf("%d bytes", len(v))
	}
	if a = netip.AddrFrom4([4]byte(v)); a.IsUnspecified() {
		a = netip.Addr{}
	}
	return a, nil
}

func metric(v []byte) (m uint32, err error) {
	if len(v) != 3 && len(v) != 4 {
		return 0, fmt.Errorf("%d bytes", len(v))
	}
	for _, b := range v {
		m = m<<8 | uint32(b)
	}
	return m, nil
}

func bandwidth(v []byte) (uint64, error) {
	return te.BandwidthOf(math.Float32frombits(binary.BigEndian.Uint32(v)))
}

// Write gives the content of a sub-TLV; nil: the link has nothing of the kind.
func Write(l te.Link, k Kind) (v []byte) {
	float := func(b uint64) { v = binary.BigEndian.AppendUint32(v, math.Float32bits(te.Float(b))) }
	switch k {
	case Local:
		v = l.Local.AsSlice()
	case Remote:
		v = l.Remote.AsSlice()
	case TEMetric:
		if l.TEMetric > 0 {
			v = binary.BigEndian.AppendUint32(v, l.TEMetric)
		}
	case Bandwidth:
		float(l.Bandwidth)
	case Reservable:
		float(l.Reservable)
	case Unreserved:
		for _, b := range l.Unreserved {
			float(b)
		}
	case Groups:
		if l.Groups > 0 {
			v = binary.BigEndian.AppendUint32(v, l.Groups)
		}
	case SRLGs:
		for _, s := range l.SRLGs {
			v = binary.BigEndian.AppendUint32(v, s)
		}
	}
	return v
}
