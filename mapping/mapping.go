// Package mapping places a virtual network on hosts, and its links on paths through the network between these: virtual
// network embedding (Fischer, Botero, Beck, de Meer and Hesselbach, "Virtual Network Embedding: A Survey", IEEE
// Communications Surveys & Tutorials 15(4), 2013).
//
// Package model/mapping, by which the controller places nodes today, knows the hosts' interfaces and not what is
// between them. This one knows trunks, their bandwidth and delay, and what a link costs on its way.
//
// A request is mapped in two stages. First it is built up many times, each time from another host: the node with the
// most bandwidth there, then always the node with the most bandwidth to nodes that have a host, on the host where its
// links to these cost least. So nodes and links are mapped together (Lischka and Karl, "A Virtual Network Mapping
// Algorithm based on Subgraph Isomorphism Detection", VISA 2009), and hosts are tried in an order that knows the
// bandwidth around them (Gong, Wen, Zhu and Lee, "Toward Profit-Seeking Virtual Network Embedding Algorithm via Global
// Resource Capacity", INFOCOM 2014). Then the best mapping is taken apart in places and put together again (Shaw,
// "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems", CP 1998): nodes move and
// change places, and their links get new paths.
//
// It is pure: values in, values out. Equal inputs, which include a seed, give equal outputs.
package mapping

import (
	"errors"
	"fmt"
)

// Mapping says where a request is.
type Mapping struct {
	Hosts map[string]string // by node: its host
	// Paths are, by link of the divided request, the trunks from the host of its end A to that of its end B, as
	// indices into those of the substrate; none where both ends are on one host.
	Paths [][]int
}

// Cost is the bandwidth that a mapping takes of all trunks together, which is what a mapping can save: the demands of
// nodes are the same on any host.
func (m *Mapping) Cost(r *Request) float64 {
	sum, d := 0.0, r.Divided()
	for l := range d.Links {
		sum += d.Links[l].Bandwidth * float64(len(m.Paths[l]))
	}
	return sum
}

// Woken are the hosts that are asleep and that a mapping uses, in the order of the substrate.
func (m *Mapping) Woken(s *Substrate) (names []string) {
	used := map[string]bool{}
	for _, h := range m.Hosts {
		used[h] = true
	}
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.Asleep && used[h.Name] {
			names = append(names, h.Name)
		}
	}
	return names
}

// Moves counts the nodes that are on another host than in an earlier mapping.
func (m *Mapping) Moves(earlier *Mapping) (count int) {
	for n, h := range m.Hosts {
		if was, had := earlier.Hosts[n]; had && was != h {
			count++
		}
	}
	return count
}

// Options bound the search. The zero value is a good choice.
type Options struct {
	Seed uint64
	// Effort is how many times the search looks at a trunk before it ends; 0: DefaultEffort. A mapping is built up
	// at least once. The processor time that it takes is proportional to it: 10 ns each, or less.
	Effort int
	// Known are mappings of the same request. Of those that keep all constraints, the best is where the search
	// begins: the result is no worse.
	Known []Mapping
	// Now is where the request is, and Moves is how many of its nodes may be on other hosts afterwards; 0: any
	// number. A node that is on none now, or on one that may not have it any more, does not count.
	Now   *Mapping
	Moves int
	// Wake is what the use of a host that is asleep costs, in hops of the link with the most bandwidth: so others
	// are preferred, and the request is on few of these. 0: nothing.
	Wake float64
	// Stop is asked between steps whether the search is to end; nil: it never is. With it, equal inputs need not
	// give equal outputs.
	Stop func() bool
}

// DefaultEffort is the effort of a search for which none is given.
const DefaultEffort = 10_000_000

// ErrImpossible is wrapped by every *Impossible.
var ErrImpossible = errors.New("no mapping found")

// Map maps a request onto a substrate. The error is an *Impossible, or says what is wrong with the input. It is a
// heuristic: it can fail where a mapping exists, unless the *Impossible says that there is none.
func Map(s Substrate, r Request, o Options) (Mapping, error) {
	r = r.Divided()
	p, err := newProblem(&s, &r)
	if err == nil {
		err = p.prefer(&o)
	}
	if err != nil {
		return Mapping{}, fmt.Errorf("map the network: %w", err)
	}
	if err := p.hopeless(); err != nil {
		return Mapping{}, err
	}
	best := newSearch(p, o).run()
	if best.missing > 0 {
		return Mapping{}, best.impossible()
	}
	return best.mapping(), nil
}
