// Package layout is what examples/programs/i3.c, a fast path as a packet program, reads: the ring as bytes of its
// memory, and filters as text. It is pure.
//
// The memory has three elements of Size bytes. Element 0 begins with the number of the ring in use, 1 or 2; 0: there is
// none, and all is punted. The others begin with a version, which is 0 while they are written.
package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/ident"
)

// Sizes of struct ring in i3.c.
const (
	Points     = 128 // of a ring
	Interfaces = 7   // of a node that the program knows, from 1
	Rings      = 2   // in elements 1 and 2

	Size      = atHops + Points*hopSize
	atAddress = 8
	atPort    = 12
	atOwn     = 16
	ownSize   = 8
	atPoints  = atOwn + (Interfaces+1)*ownSize
	pointSize = 16
	atHops    = atPoints + Points*pointSize
	hopSize   = 24
)

// enum hop_kind in i3.c.
const (
	unknown = iota
	own
	next
)

// MAC is an Ethernet address.
type MAC [6]byte

// Neighbor is how the node reaches an address: by an interface of this number, with these Ethernet addresses.
type Neighbor struct {
	Interface int
	To, From  MAC
}

// Node is what the program has to know of the node: what the server does not say.
type Node struct {
	Addr netip.AddrPort // of the server; IPv4
	MACs []MAC          // of interfaces 1, 2, ...
	// Reach says how an address is reached; false: it is not known.
	Reach func(netip.Addr) (Neighbor, bool)
}

// Ring gives a ring's bytes, but for the version, the first eight. Keys of servers that are not reached are punted; so
// are the highest ones, if there are more than Points intervals.
func (n *Node) Ring(r *chord.Routes) []byte {
	b := make([]byte, Size)
	address := n.Addr.Addr().As4()
	copy(b[atAddress:], address[:])
	binary.BigEndian.PutUint16(b[atPort:], n.Addr.Port())
	for i, mac := range n.MACs[:min(len(n.MACs), Interfaces)] {
		copy(b[atOwn+(i+1)*ownSize:], mac[:])
	}
	all := intervals(r)
	if len(all) > Points {
		all = append(all[:Points-1], interval{last: highest})
	}
	for i := range Points {
		one := all[min(i, len(all)-1)] // the search finds the first of those that are alike
		key := one.last.Bytes()
		binary.NativeEndian.PutUint64(b[atPoints+i*pointSize:], binary.BigEndian.Uint64(key[:8]))
		binary.NativeEndian.PutUint64(b[atPoints+i*pointSize+8:], binary.BigEndian.Uint64(key[8:]))
		n.putHop(b[atHops+i*hopSize:], one)
	}
	return b
}

func (n *Node) putHop(b []byte, i interval) {
	const atKind, atInterface = 18, 20
	if i.own {
		b[atKind] = own
		return
	}
	hop, number := n.hop(i.server)
	if hop == nil {
		b[atKind] = unknown
		return
	}
	copy(b, hop)
	b[atKind] = next
	binary.NativeEndian.PutUint32(b[atInterface:], uint32(number))
}

// hop gives struct hop up to the port, and the number of the interface; nil: the address is not reached.
func (n *Node) hop(to netip.AddrPort) (b []byte, number int) {
	if !to.Addr().Is4() {
		return nil, 0
	}
	neighbor, ok := n.Reach(to.Addr())
	if !ok {
		return nil, 0
	}
	b = append(append(b, neighbor.To[:]...), neighbor.From[:]...)
	address := to.Addr().As4()
	return binary.BigEndian.AppendUint16(append(b, address[:]...), to.Port()), neighbor.Interface
}

// Filters are filters as text, exactly as the platform lists them: what they do, by what names them.
type Filters map[string]string

// Add adds the program's filters that do what a fast path's filter says.
func (n *Node) Add(to Filters, f fastpath.Filter) {
	names := Names(f.Prefix)
	switch a := f.Action; {
	case a.Kind == fastpath.Redirect && len(a.Stack) == 1:
		to[names[0]] = "send 0" + arguments(a.Stack[0][:])
		return
	case a.Kind == fastpath.Deliver, a.Kind == fastpath.Multicast && len(a.To) <= Limits.Copies:
		if results := n.deliver(a.To); results != nil {
			for i, result := range results {
				to[names[i]] = result
			}
			return
		}
	}
	to[names[0]] = "punt"
}

// deliver gives the results of filters that send a packet to receivers, one each; nil: one of them is not reached.
func (n *Node) deliver(to []netip.AddrPort) (results []string) {
	for i, receiver := range to {
		hop, number := n.hop(receiver)
		if hop == nil {
			return nil
		}
		result := fmt.Sprintf("send %d", number)
		if i < len(to)-1 {
			result += " more"
		}
		if len(to) > 1 {
			hop = append(hop, byte(len(to)))
		}
		results = append(results, result+arguments(hop))
	}
	return results
}

// arguments are without zeros at the end, which all have.
func arguments(b []byte) string {
	if b = bytes.TrimRight(b, "\x00"); len(b) == 0 {
		return ""
	}
	return " args " + hex.EncodeToString(b)
}

// Names are what may name filters of the program for one of the fast path, the first match first: the priority is 8
// times the length of the prefix, and for the first of several receivers 7 more.
func Names(p ident.Prefix) []string {
	length := fmt.Sprintf("/%d", p.Bits)
	if p.Bits == 8*ident.Size {
		length = ""
	}
	names := make([]string, Limits.Copies)
	for i := range names {
		names[i] = fmt.Sprintf(
			"priority %d id=hex:%s%s",
			Limits.Copies*(p.Bits+1)-1-i,
			hex.EncodeToString(p.ID[:]),
			length,
		)
	}
	return names
}

// Limits is what the program can.
var Limits = fastpath.Limits{Copies: 8, Depth: 1}

// interval is one of keys from the one before, up to and with last, all of which go the same way.
type interval struct {
	last   ident.Key
	own    bool
	server netip.AddrPort // invalid: there is no way
}

var highest = ident.KeyFrom([ident.KeySize]byte(bytes.Repeat([]byte{0xff}, ident.KeySize)))

// intervals gives all keys, in order. Where one of the table's begins or ends, one of these ends.
func intervals(r *chord.Routes) (all []interval) {
	ends := []ident.Key{r.From, r.To, highest}
	for _, h := range r.Hops {
		ends = append(ends, h.From, h.To)
	}
	slices.SortFunc(ends, ident.Key.Compare)
	for _, k := range slices.Compact(ends) {
		one := interval{last: k, own: r.Owns(k)}
		if hop, ok := r.Next(k); ok && !one.own {
			one.server = hop.Addr
		}
		if i := len(all) - 1; i >= 0 && all[i].own == one.own && all[i].server == one.server {
			all[i].last = k
			continue
		}
		all = append(all, one)
	}
	return all
}
