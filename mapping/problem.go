package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// problem is a substrate and a request with numbers for names. Places are the hosts, and after them the routers.
type problem struct {
	s *Substrate
	r *Request

	kinds  []string    // of capacity, that some node demands
	demand [][]float64 // by node and kind
	room   [][]float64 // by host and kind: what is left
	filled []float64   // by host: the greatest of the shares that are in use, 0 to 1
	may    [][]bool    // by node and host: nothing but other nodes can keep it from there
	site   []int       // by host
	sites  int

	ends    [][2]int  // by link: its nodes
	worth   []float64 // by link: what a hop of it costs
	linksOf [][]int   // by node, those that cost most first
	weight  []float64 // by node: the worth of its links
	apart   [][]int   // by node: those that may not be on its host

	arcs     [][]arc   // by place: the trunks that leave it
	spare    []float64 // by trunk: the bandwidth that is left
	price    []float64 // by trunk: of a bit/s, in hops
	strength []float64 // by host: the bandwidth around it and the room in it

	wake  float64 // cost of using a host that is asleep
	home  []int   // by node: the host that it is on now, if it may stay there; else nowhere
	moves int     // how many nodes may leave theirs; unbounded: any number
}

const unbounded = -1

// delayTolerance is the part of a delay bound by which a sum of delays may exceed it.
const delayTolerance = 1e-9

// arc is a trunk in one direction.
type arc struct{ to, trunk int32 }

const (
	// tolerance is how much more may be held than there is: sums of fractions are not exact.
	tolerance = 1e-6
	// crowding is how many hops more a full trunk costs than an empty one. So of two ways that are equally long,
	// links take the emptier one, and what is nearly full stays for requests that have no other way.
	crowding = 0.5
	// crowdedHosts is the same for hosts: the part of a hop that each link of a node costs more on a full one.
	crowdedHosts = 0.1
)

func newProblem(s *Substrate, r *Request) (*problem, error) {
	p := &problem{s: s, r: r}
	places, err := numbers("host or router", hostNames(s))
	if err != nil {
		return nil, err
	}
	if err := p.readTrunks(places); err != nil {
		return nil, err
	}
	names := make([]string, len(r.Nodes))
	for i := range r.Nodes {
		names[i] = r.Nodes[i].Name
	}
	nodes, err := numbers("node", names)
	if err != nil {
		return nil, err
	}
	if err := p.readLinks(nodes); err != nil {
		return nil, err
	}
	if err := p.readApart(nodes); err != nil {
		return nil, err
	}
	if err := p.readCapacities(); err != nil {
		return nil, err
	}
	p.readSites()
	p.readRules()
	p.rankHosts()
	return p, nil
}

// prefer reads the options that say what is wanted.
func (p *problem) prefer(o *Options) error {
	if bad(o.Wake) || o.Moves < 0 || o.Moves > 0 && o.Now == nil {
		return fmt.Errorf("to wake a host costs %v, and %d nodes may move: give no negative figures, and say "+
			"where the nodes are that may move", o.Wake, o.Moves)
	}
	p.wake = o.Wake
	if len(p.worth) > 0 {
		p.wake *= slices.Max(p.worth)
	}
	p.home, p.moves = slices.Repeat([]int{nowhere}, len(p.r.Nodes)), unbounded
	if o.Moves == 0 {
		return nil
	}
	p.moves = o.Moves
	number := make(map[string]int, len(p.s.Hosts))
	for h := range p.s.Hosts {
		number[p.s.Hosts[h].Name] = h
	}
	for n := range p.home {
		if h, known := number[o.Now.Hosts[p.r.Nodes[n].Name]]; known && p.may[n][h] {
			p.home[n] = h
		}
	}
	return nil
}

func hostNames(s *Substrate) []string {
	names := make([]string, 0, len(s.Hosts)+len(s.Routers))
	for i := range s.Hosts {
		names = append(names, s.Hosts[i].Name)
	}
	return append(names, s.Routers...)
}

// numbers gives each name its place in the list.
func numbers(what string, names []string) (map[string]int, error) {
	all := make(map[string]int, len(names))
	for i, name := range names {
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("a %s called %s is there twice", what, name)
		}
		all[name] = i
	}
	return all, nil
}

func (p *problem) readTrunks(places map[string]int) error {
	p.arcs = make([][]arc, len(places))
	for i := range p.s.Trunks {
		t := &p.s.Trunks[i]
		a, knownA := places[t.A]
		b, knownB := places[t.B]
		switch {
		case !knownA || !knownB:
			return fmt.Errorf("the trunk between %s and %s has an end that is no host or router", t.A, t.B)
		case a == b:
			return fmt.Errorf("a trunk joins %s to itself", t.A)
		case bad(t.Bandwidth), bad(t.Used), bad(t.Delay):
			return fmt.Errorf("the trunk between %s and %s has a negative figure, or one that is no number",
				t.A, t.B)
		}
		p.arcs[a] = append(p.arcs[a], arc{int32(b), int32(i)})
		p.arcs[b] = append(p.arcs[b], arc{int32(a), int32(i)})
		spare, price := math.Inf(1), 1.0
		if t.Bandwidth > 0 {
			spare = max(t.Bandwidth-t.Used, 0)
			price += crowding * min(t.Used/t.Bandwidth, 1)
		}
		p.spare, p.price = append(p.spare, spare), append(p.price, price)
	}
	return nil
}

// bad reports whether a figure cannot be an amount.
func bad(amount float64) bool { return amount < 0 || math.IsNaN(amount) || math.IsInf(amount, 0) }

func (p *problem) readLinks(nodes map[string]int) error {
	p.linksOf, p.weight = make([][]int, len(nodes)), make([]float64, len(nodes))
	for l := range p.r.Links {
		link := &p.r.Links[l]
		a, knownA := nodes[link.A]
		b, knownB := nodes[link.B]
		switch {
		case !knownA || !knownB:
			return fmt.Errorf("the link between %s and %s has an end that is no node", link.A, link.B)
		case a == b:
			return fmt.Errorf("a link joins node %s to itself", link.A)
		case bad(link.Bandwidth), bad(link.Delay):
			return fmt.Errorf("the link between %s and %s has a negative figure, or one that is no number",
				link.A, link.B)
		}
		p.ends = append(p.ends, [2]int{a, b})
	}
	p.weigh()
	return nil
}

// weigh gives links without a bandwidth a thousandth of what the greatest costs, so that they are not longer than need
// be.
func (p *problem) weigh() {
	most := 0.0
	for l := range p.r.Links {
		most = max(most, p.r.Links[l].Bandwidth)
	}
	if most == 0 {
		most = 1000
	}
	p.worth = make([]float64, len(p.r.Links))
	for l := range p.r.Links {
		p.worth[l] = max(p.r.Links[l].Bandwidth, most/1000)
		for _, n := range p.ends[l] {
			p.linksOf[n] = append(p.linksOf[n], l)
			p.weight[n] += p.worth[l]
		}
	}
	for _, links := range p.linksOf {
		slices.SortStableFunc(links, func(a, b int) int { return cmp.Compare(p.worth[b], p.worth[a]) })
	}
}

func (p *problem) readApart(nodes map[string]int) error {
	p.apart = make([][]int, len(nodes))
	for _, group := range p.r.Apart {
		for i, name := range group {
			n, known := nodes[name]
			if !known {
				return fmt.Errorf("%s is to be apart from others, and is no node", name)
			}
			for _, other := range group[:i] {
				if other == name {
					return fmt.Errorf("node %s is to be apart from itself", name)
				}
				m := nodes[other]
				p.apart[n], p.apart[m] = append(p.apart[n], m), append(p.apart[m], n)
			}
		}
	}
	return nil
}

func (p *problem) readCapacities() error {
	wanted := map[string]bool{}
	for i := range p.r.Nodes {
		for name, amount := range p.r.Nodes[i].Demand {
			if bad(amount) {
				return fmt.Errorf("node %s demands %v of %s", p.r.Nodes[i].Name, amount, name)
			}
			wanted[name] = true
		}
	}
	p.kinds = slices.Sorted(maps.Keys(wanted))
	for i := range p.r.Nodes {
		p.demand = append(p.demand, p.amounts(p.r.Nodes[i].Demand))
	}
	p.filled = make([]float64, len(p.s.Hosts))
	for h := range p.s.Hosts {
		host := &p.s.Hosts[h]
		room, used := p.amounts(host.Capacity), p.amounts(host.Used)
		for k := range room {
			if bad(room[k]) || bad(used[k]) {
				return fmt.Errorf("host %s has %v of %s, of which %v are used", host.Name, room[k],
					p.kinds[k], used[k])
			}
			if room[k] > 0 {
				p.filled[h] = max(p.filled[h], min(used[k]/room[k], 1))
			}
			room[k] = max(room[k]-used[k], 0)
		}
		p.room = append(p.room, room)
	}
	return nil
}

// amounts gives amounts by name as amounts by kind.
func (p *problem) amounts(byName map[string]float64) []float64 {
	all := make([]float64, len(p.kinds))
	for k, name := range p.kinds {
		all[k] = byName[name]
	}
	return all
}

func (p *problem) readSites() {
	number := map[string]int{}
	p.site = make([]int, len(p.s.Hosts))
	for h := range p.s.Hosts {
		name := p.s.Hosts[h].Site
		n, known := number[name]
		if !known || name == "" {
			n = p.sites
			p.sites++
			number[name] = n
		}
		p.site[h] = n
	}
}

// rankHosts finds out how good a place each host is to begin: by its room, and by the bandwidth that leaves it.
func (p *problem) rankHosts() {
	most := 1.0
	for _, spare := range p.spare {
		if !math.IsInf(spare, 1) {
			most = max(most, spare)
		}
	}
	p.strength = make([]float64, len(p.s.Hosts))
	for h := range p.strength {
		for _, a := range p.arcs[h] {
			p.strength[h] += min(p.spare[a.trunk], most) / most
		}
		p.strength[h] *= 1 - p.filled[h]
	}
}
