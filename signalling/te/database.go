// Package te is traffic engineering at the ingress of LSPs, without I/O and without a clock: a database of the links
// that routers advertise with their bandwidths, paths through it that meet constraints (CSPF), and the decision when a
// change of bandwidth is to be advertised.
//
// Packages below read and write what routing protocols carry: te/ospf, te/isis; te/frr is for FRR's commands.
package te

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Node is a router.
type Node struct {
	ID      string     // the routing protocol's: an OSPF router ID, an IS-IS system ID
	Address netip.Addr // an address of the router that is always reachable (TE router address); may be missing
	Name    string     // may be missing
}

// LinkID names one direction of a link. To is the router at the other end; of a network with several routers, it is
// the name of the network, and LAN is set. Addresses are those of the interfaces; they may be missing.
type LinkID struct {
	From, To      string
	LAN           bool
	Local, Remote netip.Addr
}

func (l LinkID) String() string {
	s := l.From + " to " + l.To
	if l.Local.IsValid() {
		s += " by " + l.Local.String()
	}
	return s
}

// Link is one direction of a link, as the router at its beginning advertises it.
type Link struct {
	LinkID
	Metric     uint32 // of the routing protocol; 0: not known, and the TE metric counts
	TEMetric   uint32 // 0: the metric counts
	Bandwidth  uint64 // bytes a second
	Reservable uint64 // by LSPs; may be more than there is
	Unreserved [Priorities]uint64
	Groups     uint32 // administrative groups, a bit each
	SRLGs      []uint32
}

// Database is a network as a router knows it. It does not change, and may be used by several goroutines.
type Database struct {
	nodes []Node
	links []Link
	index map[string]int32
	// addresses has the routers' own addresses and those of interfaces.
	addresses map[netip.Addr]int32
	out       [][]int32 // links, by the router where they begin
	ends      [][]end   // by link, where it leads to: one router, or all of a LAN, with the one where it begins
}

// end is a router at a link's other end, and its address there.
type end struct {
	node   int32
	remote netip.Addr
	// back is the other direction of the link; none if the router does not advertise it, and the link is not used.
	back int32
}

const none = -1

// New makes a database. Of nodes or links with the same name the first counts. A link from a router that is not there
// is left out; one to such a router leads nowhere.
func New(nodes []Node, links []Link) *Database {
	d := &Database{index: make(map[string]int32), addresses: make(map[netip.Addr]int32)}
	d.nodes = sorted(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	for i, n := range d.nodes {
		d.index[n.ID] = int32(i)
	}
	known := slices.DeleteFunc(slices.Clone(links), func(l Link) bool { _, ok := d.index[l.From]; return !ok })
	d.links = sorted(known, func(a, b Link) int { return a.LinkID.compare(b.LinkID) })
	d.join()
	d.name()
	return d
}

// sorted is a sorted copy, of equal ones the first.
func sorted[T any](all []T, compare func(T, T) int) []T {
	all = slices.Clone(all)
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
}

func (l LinkID) compare(o LinkID) int {
	lan := 0
	if l.LAN != o.LAN {
		lan = 1
		if o.LAN {
			lan = -1
		}
	}
	return cmp.Or(cmp.Compare(l.From, o.From), cmp.Compare(l.To, o.To), lan, l.Local.Compare(o.Local),
		l.Remote.Compare(o.Remote))
}

// join finds where links lead to.
func (d *Database) join() {
	d.out, d.ends = make([][]int32, len(d.nodes)), make([][]end, len(d.links))
	lans, between := make(map[string][]end), make(map[[2]string][]int32)
	for i, l := range d.links {
		if !l.LAN {
			between[[2]string{l.From, l.To}] = append(between[[2]string{l.From, l.To}], int32(i))
		} else if l.Local.IsValid() {
			lans[l.To] = append(lans[l.To], end{node: d.index[l.From], remote: l.Local, back: int32(i)})
		}
	}
	for i, l := range d.links {
		if l.LAN {
			d.ends[i] = lans[l.To]
		} else if to, ok := d.index[l.To]; ok {
			d.ends[i] = []end{d.back(l, to, between[[2]string{l.To, l.From}])}
		}
		from := d.index[l.From]
		d.out[from] = append(d.out[from], int32(i))
	}
}

// back finds the other direction of a link, by the addresses that are advertised. What one end does not say, the other
// may say, if there is no doubt which link it is.
func (d *Database) back(l Link, to int32, candidates []int32) end {
	e := end{node: to, remote: l.Remote, back: none}
	for _, i := range candidates {
		b := d.links[i]
		if !same(l.Local, b.Remote) || !same(l.Remote, b.Local) {
			continue
		}
		if e.back != none { // more than one
			e.remote = l.Remote
			break
		}
		e.back = i
		if !e.remote.IsValid() {
			e.remote = b.Local
		}
	}
	return e
}

// same tells whether two addresses can be the same one.
func same(a, b netip.Addr) bool { return !a.IsValid() || !b.IsValid() || a == b }

// name collects the addresses of routers. One that two routers have is the one's whose own address it is.
func (d *Database) name() {
	for _, l := range d.links {
		if l.Local.IsValid() {
			d.addresses[l.Local] = d.index[l.From]
		}
	}
	for i, n := range d.nodes {
		if a, err := netip.ParseAddr(n.ID); err == nil {
			d.addresses[a] = int32(i)
		}
	}
	for i, n := range d.nodes {
		if n.Address.IsValid() {
			d.addresses[n.Address] = int32(i)
		}
	}
}

// With is the database with other values of links that it has, as a router knows them of its own ones before it has
// told them. What is no link of it is ignored.
func (d *Database) With(links ...Link) *Database {
	c := *d
	c.links = slices.Clone(d.links)
	order := func(l Link, id LinkID) int { return l.LinkID.compare(id) }
	for _, l := range links {
		if i, ok := slices.BinarySearchFunc(c.links, l.LinkID, order); ok {
			c.links[i] = l
		}
	}
	return &c
}

// Nodes are the routers, by identifier.
func (d *Database) Nodes() []Node { return slices.Clone(d.nodes) }

// Links are the links, by their ends.
func (d *Database) Links() []Link { return slices.Clone(d.links) }

// Router finds a router by an address of its own or of one of its interfaces.
func (d *Database) Router(a netip.Addr) (Node, bool) {
	i, ok := d.addresses[a]
	if !ok {
		return Node{}, false
	}
	return d.nodes[i], true
}

// router is Router for requests.
func (d *Database) router(a netip.Addr) (int32, error) {
	if !a.IsValid() {
		return none, errors.New("no address")
	}
	i, ok := d.addresses[a]
	if !ok {
		return none, fmt.Errorf("no router with the address %s is in the traffic engineering database, "+
			"which has %d", a, len(d.nodes))
	}
	return i, nil
}
