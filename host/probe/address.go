package probe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// targets gives what the To of a check stands for: an address, or both addresses of a node, as far as the sender has
// the family.
func (c Checker) targets(from, to string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(to); err == nil {
		return []netip.Addr{a}, nil
	}
	n, sender := c.Slice.Node(to), c.Slice.Node(from)
	if n == nil || sender == nil {
		return nil, fmt.Errorf("no node %s, and no address", to)
	}
	var all []netip.Addr
	for _, ipv6 := range []bool{false, true} {
		a, ok := c.address(n, ipv6)
		if _, can := c.address(sender, ipv6); ok && can {
			all = append(all, a)
		}
	}
	for _, node := range []*slice.Node{sender, n} {
		if !Declares(node) && len(c.Addresses[node.Name]) == 0 {
			return nil, fmt.Errorf("%s has no address: the file gives it none, and its kernel has none",
				node.Name)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s and %s have no address family in common", from, to)
	}
	return all, nil
}

// source is the sender's own address of the target's family: the one that others have a route back to. (The kernel
// would take that of the link, which is not announced beyond an autonomous system.)
func (c Checker) source(from string, target netip.Addr) netip.Addr {
	if target.IsLinkLocalUnicast() {
		return netip.Addr{}
	}
	if n := c.Slice.Node(from); n != nil {
		a, _ := c.address(n, target.Is6())
		return a
	}
	return netip.Addr{}
}

// nodesOf names the nodes that have the addresses; an address of no node stands for itself, a hop that does not answer
// is "?".
func (c Checker) nodesOf(hops []netip.Addr) []string {
	owner := map[netip.Addr]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Addresses)) {
		for _, a := range c.Addresses[name] {
			owner[a] = name
		}
	}
	for i := range c.Slice.Nodes {
		n := &c.Slice.Nodes[i]
		for _, p := range n.Loopbacks {
			owner[p.Addr()] = n.Name
		}
		for _, port := range n.Interfaces {
			for _, p := range port.Addresses {
				owner[p.Addr()] = n.Name
			}
		}
	}
	names := make([]string, len(hops))
	for i, h := range hops {
		switch name, ok := owner[h]; {
		case ok:
			names[i] = name
		case h.IsValid():
			names[i] = h.String()
		default:
			names[i] = "?"
		}
	}
	return names
}
