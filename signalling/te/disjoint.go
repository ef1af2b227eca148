package te

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Avoid is what a path has to avoid that shares no link with this one, no risk of its links, and, with nodes, no router
// but the ends.
func (p Path) Avoid(nodes bool) (a Avoid) {
	for i, h := range p.Hops {
		a = a.And(h.avoid())
		if nodes && i < len(p.Hops)-1 {
			a.Nodes = append(a.Nodes, h.Remote)
		}
	}
	return a
}

func (h Hop) avoid() (a Avoid) {
	for _, i := range []netip.Addr{h.Local, h.Remote} {
		if i.IsValid() {
			a.Links = append(a.Links, i)
		}
	}
	a.SRLGs = h.SRLGs
	return a
}

// Bypass finds a path for the tunnel of a facility backup (RFC 4090): from the router before a hop of a path to the one
// after it, without its link and what shares a risk with that. With node, it goes to the router after that, and
// avoids the one between. The request has the other constraints; its ends are not read.
func (d *Database) Bypass(p Path, hop int, node bool, q Request) (Path, error) {
	if hop < 0 || hop >= len(p.Hops) {
		return Path{}, fmt.Errorf("bypass of hop %d: the path has %d", hop, len(p.Hops))
	}
	h := p.Hops[hop]
	q.From, q.To = h.Local, h.Remote
	q.Avoid = q.Avoid.And(h.avoid())
	if node {
		if hop == len(p.Hops)-1 {
			return Path{}, fmt.Errorf("bypass of router %s: the path ends there", h.To)
		}
		q.To = p.Hops[hop+1].Remote
		q.Avoid.Nodes = append(q.Avoid.Nodes, h.Remote)
	}
	return d.Path(q)
}

// Paths finds the k shortest paths without loops, the best first (Yen's algorithm); fewer if there are not so many. It
// takes no Via.
func (d *Database) Paths(q Request, k int) ([]Path, error) {
	if len(q.Via) > 0 {
		return nil, fmt.Errorf("%d paths from %s to %s: not with steps to go through", k, q.From, q.To)
	}
	s, err := d.search(q)
	if err != nil {
		return nil, err
	}
	found, err := s.several(k)
	if err != nil {
		return nil, err
	}
	paths := make([]Path, 0, len(found))
	for _, w := range found {
		paths = append(paths, s.path(w))
	}
	return paths, nil
}

func (s *search) several(k int) ([]walk, error) {
	clean := slices.Clone(s.no)
	first, err := s.walk()
	if err != nil {
		return nil, err
	}
	found := []walk{first}
	var candidates []walk
	for len(found) < k {
		last := found[len(found)-1]
		for i := range last {
			s.no = slices.Clone(clean)
			if spur := s.spur(found, last[:i]); spur != nil && !slices.ContainsFunc(candidates,
				func(w walk) bool { return slices.Equal(w, spur) }) {
				candidates = append(candidates, spur)
			}
		}
		if len(candidates) == 0 {
			break
		}
		best := 0
		for i := range candidates {
			if s.compare(candidates[i], candidates[best]) < 0 {
				best = i
			}
		}
		found = append(found, candidates[best])
		candidates = slices.Delete(candidates, best, best+1)
	}
	return found, nil
}

// spur finds the best way on from the end of a root that no path with this root has.
func (s *search) spur(found []walk, root walk) walk {
	at := s.from
	for _, c := range root {
		s.no[at] = true
		at = c.in.node
	}
	s.taken = make(map[crossing]bool)
	for _, w := range found {
		if len(w) > len(root) && slices.Equal(w[:len(root)], root) {
			s.taken[w[len(root)]] = true
		}
	}
	ways, last := s.shortest(at, s.to, len(root), anywhere)
	if last == none {
		return nil
	}
	return slices.Concat(root, s.walkTo(ways, last))
}

func (s *search) compare(a, b walk) int {
	p, q := s.path(a), s.path(b)
	return cmp.Or(cmp.Compare(p.Cost, q.Cost), cmp.Compare(len(a), len(b)), cmp.Compare(q.Unreserved, p.Unreserved),
		slices.CompareFunc(a, b, func(x, y crossing) int {
			return cmp.Or(cmp.Compare(x.in.node, y.in.node), cmp.Compare(x.link, y.link))
		}))
}
