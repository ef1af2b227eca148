package te

import (
	"math"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Path finds the path of the least metric that meets the constraints (CSPF). Of equal ones it takes the one with the
// fewest hops, since each hop reserves; of these the one that has the most left unreserved; then the order of
// identifiers decides, so that the same database gives the same path. The error is a *NoPath if there is none.
func (d *Database) Path(q Request) (Path, error) {
	s, err := d.search(q)
	if err != nil {
		return Path{}, err
	}
	w, err := s.walk()
	if err != nil {
		return Path{}, err
	}
	return s.path(w), nil
}

// search is the work for one request.
type search struct {
	*Database
	q        Request
	from, to int32
	want     uint64
	// no has nodes that must not be used: those to avoid, and those that the path has been through.
	no      []bool
	avoided []bool   // those of no that are to avoid
	refused []reason // by link
	credit  map[int32]uint64
	// taken are ways that others have: of the k shortest paths.
	taken map[crossing]bool
}

func (d *Database) search(q Request) (*search, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	from, err := d.router(q.From)
	if err != nil {
		return nil, &NoPath{From: q.From.String(), To: q.To.String(), Reason: err.Error()}
	}
	to, err := d.router(q.To)
	if err != nil {
		return nil, &NoPath{From: q.From.String(), To: q.To.String(), Reason: err.Error()}
	}
	if from == to {
		return nil, &NoPath{From: q.From.String(), To: q.To.String(), Reason: "both are of one router"}
	}
	s := &search{Database: d, q: q, from: from, to: to, want: asked(q.Bandwidth), no: make([]bool, len(d.nodes)),
		avoided: make([]bool, len(d.nodes)), refused: make([]reason, len(d.links))}
	for _, a := range q.Avoid.Nodes {
		if i, ok := d.addresses[a]; ok {
			s.no[i], s.avoided[i] = true, true
		}
	}
	s.share()
	s.prune()
	return s, nil
}

// share finds the links on which the LSP shares what it holds.
func (s *search) share() {
	h := s.q.Replaces
	if h == nil || h.Holding > s.q.Setup {
		return // what is held at a worse priority was never taken from this one's bandwidth
	}
	held := make(map[LinkID]bool, len(h.Path.Hops))
	for _, hop := range h.Path.Hops {
		held[hop.Link] = true
	}
	s.credit = make(map[int32]uint64, len(held))
	for i, l := range s.links {
		if held[l.LinkID] {
			s.credit[int32(i)] = h.Bandwidth
		}
	}
}

func (s *search) unreserved(link int32) uint64 {
	return s.links[link].Unreserved[s.q.Setup] + s.credit[link]
}

// prune finds for each link why the path cannot have it.
func (s *search) prune() {
	avoid, groups := make(map[netip.Addr]bool), make(map[uint32]bool)
	for _, a := range s.q.Avoid.Links {
		avoid[a] = true
	}
	for _, g := range s.q.Avoid.SRLGs {
		groups[g] = true
	}
	a := s.q.Affinities
	for i, l := range s.links {
		switch {
		// First: it also keeps the path from the other direction of the link.
		case l.Local.IsValid() && avoid[l.Local] || !l.LAN && l.Remote.IsValid() && avoid[l.Remote]:
			s.refused[i] = excludedLink
		case slices.ContainsFunc(l.SRLGs, func(g uint32) bool { return groups[g] }):
			s.refused[i] = sharedRisk
		case !a.Allow(l.Groups):
			s.refused[i] = wrongGroups
		case s.unreserved(int32(i)) < s.want:
			s.refused[i] = tooLittle
		}
	}
}

// refuses tells why a path may not go by a link to a router.
func (s *search) refuses(link int32, to end) reason {
	switch {
	case s.refused[link] != usable:
		return s.refused[link]
	case to.back == none:
		return oneWay
	case s.refused[to.back] == excludedLink:
		return excludedLink
	case !to.remote.IsValid():
		return unnumbered
	case s.avoided[to.node]:
		return excludedNode
	case s.no[to.node], s.taken[crossing{link, to}]:
		return visited
	}
	return usable
}

func (s *search) metric(link int32) uint64 {
	first, second := s.links[link].TEMetric, s.links[link].Metric
	if s.q.IGP {
		first, second = second, first
	}
	if first == 0 {
		first = second
	}
	return uint64(max(first, 1))
}

// anywhere is a step that constrains nothing.
var anywhere = message.Step{Loose: true}

// walk is a path as links and where they are left.
type walk []crossing

type crossing struct {
	link int32
	in   end
}

// walk goes through the steps of Via, and to the end.
func (s *search) walk() (walk, error) {
	var all walk
	at := s.from
	for _, step := range append(s.q.Via[:len(s.q.Via):len(s.q.Via)], message.Step{Loose: true,
		Prefix: netip.PrefixFrom(s.q.To, s.q.To.BitLen())}) {
		to, err := s.router(step.Prefix.Addr())
		if err != nil {
			return nil, s.noPath(at, step, err.Error())
		}
		if to == at {
			continue
		}
		ways, last := s.shortest(at, to, len(all), step)
		if last == none {
			return nil, s.explain(at, to, len(all), step)
		}
		part := s.walkTo(ways, last)
		all = append(all, part...)
		s.no[at] = true
		for _, c := range part {
			s.no[c.in.node] = true
		}
		at = to
	}
	return all, nil
}

// walkTo is the way that ends with a label.
func (s *search) walkTo(ways []label, last int32) walk {
	var w walk
	for i := last; ways[i].before != none; i = ways[i].before {
		w = append(w, crossing{ways[i].link, s.ends[ways[i].link][ways[i].end]})
	}
	slices.Reverse(w)
	return w
}

func (s *search) path(w walk) Path {
	p := Path{Unreserved: math.MaxUint64}
	for _, c := range w {
		l := s.links[c.link]
		p.Cost += s.metric(c.link)
		p.Unreserved = min(p.Unreserved, s.unreserved(c.link))
		p.Hops = append(p.Hops, Hop{Link: l.LinkID, From: l.From, To: s.nodes[c.in.node].ID, Local: l.Local,
			Remote: c.in.remote, SRLGs: l.SRLGs})
	}
	return p
}

// shortest is Dijkstra's algorithm. With a limit of hops, a router keeps a longer way with fewer hops beside a shorter
// one with more of them: labels are final in the order of better, so that each one must have fewer hops than the last.
func (s *search) shortest(from, to int32, hops int, step message.Step) (done []label, last int32) {
	fewest := slices.Repeat([]int32{math.MaxInt32}, len(s.nodes))
	waiting := queue{best: make([]label, len(s.nodes)), several: s.q.Hops > 0}
	waiting.push(label{hops: int32(hops), unreserved: math.MaxUint64, node: from, before: none})
	for len(waiting.heap) > 0 {
		l := waiting.pop()
		if l.hops >= fewest[l.node] {
			continue
		}
		if fewest[l.node] = l.hops; s.q.Hops == 0 {
			fewest[l.node] = 0
		}
		at := int32(len(done))
		done = append(done, l)
		if l.node == to {
			return done, at
		}
		if int(l.hops) == s.q.Hops && l.hops > 0 || !step.Loose && l.node != from {
			continue
		}
		for _, link := range s.out[l.node] {
			for i, to := range s.ends[link] {
				if to.node == l.node || l.hops+1 >= fewest[to.node] || !s.allows(link, to, step) {
					continue
				}
				waiting.offer(label{cost: l.cost + s.metric(link), hops: l.hops + 1, node: to.node,
					unreserved: min(l.unreserved, s.unreserved(link)), link: link, end: int32(i),
					before: at})
			}
		}
	}
	return done, none
}

func (s *search) allows(link int32, to end, step message.Step) bool {
	return s.refuses(link, to) == usable && s.enters(step, to)
}

// enters tells whether a strict step allows a router to be entered there: if it is an interface of the router, by it.
func (s *search) enters(step message.Step, to end) bool {
	a := step.Prefix.Addr()
	if step.Loose || to.remote == a {
		return true
	}
	n := s.nodes[to.node]
	return n.Address == a || n.ID == a.String()
}
