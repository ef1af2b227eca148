package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// placing is the placement of one slice. It is pure: all that it depends on is in it.
type placing struct {
	next       *slice.Slice       // its nodes get hosts, its links tunnels, its interfaces MTUs
	prev       *slice.Slice       // the running version, or nil
	top        *topology.Topology // what next was made from, to locate faults; nil where no user asked
	home       string             // the member whose root asks, on that machine itself; empty: none
	generation int64              // of next
	hosts      []store.HostState
	used       map[string]usage    // what other slices use, by host
	reported   map[string]int64    // the generations that hosts' statuses of this slice bear, by host
	named      map[string][]string // the hosts whose statuses name a node, by node
	// hosts that have been lost for so long that they have ended what may start elsewhere
	lost map[string]bool
	// background is true where no user waits for the answer: a node that contradicts the cluster is left where it
	// is, and the others are placed.
	background bool

	byName map[string]*store.HostState
	was    map[string]*slice.Node // nodes of prev, by name
	stuck  map[string]bool        // nodes that stay whatever there is
	apart  map[string]bool        // nodes that need not be where those are for which they wait
	moves  map[string]string      // the hosts that nodes were moved away from, by node
	notes  []string               // what a user should know
}

// place gives every node a host, or returns a *Refusal with the reason why there is none. Nodes that run stay where
// they are, as long as that is allowed; one that should leave and that no other host can take stays too, with a note.
func (p *placing) place() error {
	p.byName, p.was = map[string]*store.HostState{}, map[string]*slice.Node{}
	p.stuck, p.apart, p.moves = map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range p.hosts {
		p.byName[p.hosts[i].Name] = &p.hosts[i]
	}
	if p.prev != nil {
		p.prev = withHost(p.prev, p.founder())
		for i := range p.prev.Nodes {
			p.was[p.prev.Nodes[i].Name] = &p.prev.Nodes[i]
		}
	}
	if faults := p.checkPins(); len(faults) > 0 && !p.background {
		return unplaceable(p.next.Name, faults)
	}
	for {
		m, err := p.mapNodes()
		if err != nil {
			return err
		}
		noted := len(p.notes)
		for i := range p.next.Nodes {
			if n := &p.next.Nodes[i]; n.Kind != slice.Switch {
				p.assign(n, m[n.Name])
			}
		}
		if err := p.settleWaits(); err != nil {
			return err
		}
		if err := p.numberTunnels(); err != nil {
			return err
		}
		misfits := p.fitMTUs()
		if len(misfits) > 0 && !p.background {
			return unplaceable(p.next.Name, faultsOf(misfits))
		}
		kept := p.keepMisfits(misfits)
		if len(kept) == 0 {
			return nil
		}
		p.notes = append(p.notes[:noted], kept...)
		clear(p.moves)
	}
}

func unplaceable(name string, faults []Fault) *Refusal {
	r := refuse(Invalid, "network %s does not fit the cluster: %s", name, faults[0].Message)
	if more := len(faults) - 1; more > 0 {
		r.Message += fmt.Sprintf(" (and %d more)", more)
	}
	r.Faults = faults
	return r
}

// founder is the host that has nodes which are older than the cluster: the only one that reports the slice; empty if
// none or several do.
func (p *placing) founder() string {
	var hosts []string
	for i := range p.hosts {
		if _, reports := p.reported[p.hosts[i].Name]; reports {
			hosts = append(hosts, p.hosts[i].Name)
		}
	}
	if len(hosts) != 1 {
		return ""
	}
	return hosts[0]
}

// withHost places the nodes that have no host on host.
func withHost(s *slice.Slice, host string) *slice.Slice {
	if host == "" || !hasUnplaced(s) {
		return s
	}
	next := *s
	next.Nodes = slices.Clone(s.Nodes)
	for i := range next.Nodes {
		if n := &next.Nodes[i]; n.Kind != slice.Switch {
			n.Host = cmp.Or(n.Host, host)
		}
	}
	return &next
}

// now is the host that a node runs on and may stay on for the time being; empty where it has none.
func (p *placing) now(node string) string {
	was := p.was[node]
	if was == nil || p.byName[was.Host] == nil {
		return ""
	}
	return was.Host
}

// free reports whether a node's host is lost and has certainly ended it: then it may start elsewhere.
func (p *placing) free(n *slice.Node) bool {
	was := p.was[n.Name]
	if was == nil || was.Placement.Reschedule != slice.RescheduleAlways ||
		n.Placement.Reschedule != slice.RescheduleAlways {
		return false
	}
	// it may have come back since it was found lost
	if h := p.byName[was.Host]; !p.lost[was.Host] || h != nil && h.Alive {
		return false
	}
	// The host acts on the version that it received last.
	return p.reported[was.Host] >= was.Placement.Since
}

// freed are the lost hosts whose nodes start elsewhere without a release by the host.
func (p *placing) freed() (hosts []string) {
	for node, host := range p.moves {
		if p.byName[host] != nil && p.free(p.next.Node(node)) && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// mapNodes chooses the hosts.
func (p *placing) mapNodes() (mapping.Mapping, error) {
	const most = 32 // attempts to find out what has to stay; after that, all stays that may
	request, now := p.request()
	stays := map[string]string{} // why nodes stay that should go
	substrate := p.substrate()
	request.Together = p.together(request.Nodes)
	if _, err := mapping.Greedy(substrate, request, now); !p.background && errors.Is(err, mapping.ErrImpossible) {
		for i := range request.Links { // if the MTU is the reason, fitMTUs explains it better
			request.Links[i].MTU = 0
		}
	}
	for try := 1; ; try++ {
		request.Together = p.together(request.Nodes)
		m, err := mapping.Greedy(substrate, request, now)
		var impossible *mapping.Impossible
		if !errors.As(err, &impossible) {
			p.noteStays(stays, m)
			p.noteHeld(request.Together, m)
			return m, err
		}
		unit := append([]string{impossible.Node}, impossible.With...)
		stay := slices.DeleteFunc(slices.Clone(unit), func(name string) bool {
			return stays[name] != "" || !p.mayStay(p.next.Node(name))
		})
		switch {
		case p.background && p.part(unit, stay):
			continue
		case len(stay) == 0:
			return nil, p.noHostFor(impossible)
		}
		for _, name := range stay {
			delete(impossible.Reasons, p.now(name))
		}
		why := cmp.Or(reasons(impossible), "there is none")
		for i := range request.Nodes {
			n := &request.Nodes[i]
			if slices.Contains(stay, n.Name) || try == most && p.leaving(p.next.Node(n.Name)) {
				hold(n, p.was[n.Name].Host, now)
				stays[n.Name], p.stuck[n.Name] = why, true
			}
		}
		substrate = p.substrate()
	}
}

// noteStays says which nodes stay where they should not be, and why, by node.
func (p *placing) noteStays(stays map[string]string, m mapping.Mapping) {
	for _, name := range slices.Sorted(maps.Keys(stays)) {
		where := "stays on " + m[name]
		if p.byName[m[name]] == nil {
			where = "has no host since " + m[name] + " was removed"
		}
		p.notes = append(p.notes, fmt.Sprintf("%s %s: no other host can take it: %s", name, where, stays[name]))
	}
}

// mayStay reports whether a node can be left where it is when no other host takes it: one that only should go, or any
// where no user waits for the answer.
func (p *placing) mayStay(n *slice.Node) bool {
	return p.leaving(n) || p.background && p.was[n.Name] != nil
}

// leaving reports whether it is for its host's sake that a node cannot stay.
func (p *placing) leaving(n *slice.Node) bool {
	here := p.now(n.Name)
	return here != "" && n.Placement.Host == "" && (p.byName[here].Policy.Draining || p.free(n))
}

func (p *placing) noHostFor(err *mapping.Impossible) *Refusal {
	reason := Conflict
	what := err.Node
	if len(err.With) > 0 {
		what += " and those that wait for it, or it for them (" + list(err.With) + ")"
	}
	why := fmt.Sprintf("no host can take node %s: %s", what, cmp.Or(reasons(err), "there is none"))
	for _, name := range append([]string{err.Node}, err.With...) {
		if advice := p.consentFor(p.next.Node(name), err.Reasons); advice != "" {
			reason = Forbidden
			why += "; " + advice
			break
		}
	}
	r := refuse(reason, "network %s: %s", p.next.Name, why)
	r.Faults = []Fault{{Location: "nodes." + err.Node, Message: why}}
	return r
}

// reasons says why the hosts cannot take a node, without its name.
func reasons(err *mapping.Impossible) string {
	_, text, _ := strings.Cut(err.Error(), "no host can take it: ")
	return text
}

// request is the slice as package mapping sees it, and where its nodes are.
func (p *placing) request() (mapping.Request, mapping.Mapping) {
	ipv6 := slices.ContainsFunc(p.hosts, func(h store.HostState) bool { return isIPv6(h.Address) })
	r := mapping.Request{Links: joints(p.next, ipv6), Strategy: mapping.Spread}
	if p.next.Strategy == slice.Pack {
		r.Strategy = mapping.Pack
	}
	now, needs := mapping.Mapping{}, p.needs()
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		if n.Kind == slice.Switch {
			continue
		}
		r.Nodes = append(r.Nodes, mapping.Node{
			Name: n.Name, Demand: mapping.Demand(n),
			Host: n.Placement.Host, Labels: n.Placement.Labels, Needs: needs[n.Name],
			Ports: portNames(p.keptPorts(n)), Rate: uint64(n.ReservedOutside()), Barred: p.barred(n),
		})
		here := p.now(n.Name)
		switch {
		case p.stuck[n.Name], p.background && here != "" && !p.leaving(n):
			hold(&r.Nodes[len(r.Nodes)-1], p.was[n.Name].Host, now)
		case here != "" && !p.free(n):
			now[n.Name] = here
		}
	}
	return r, now
}

// keptPorts gives the ports that a node has wherever it will be. What its processes have bound is of the host where
// they run: it keeps the node from no other one.
func (p *placing) keptPorts(n *slice.Node) []slice.HostPort {
	kept := *n
	if p.now(n.Name) == "" || p.free(n) || p.leaving(n) {
		kept.BoundPorts = nil
	}
	return kept.HostPorts()
}

func portNames(ports []slice.HostPort) (all []string) {
	for _, p := range ports {
		all = append(all, p.String())
	}
	return all
}

// hold makes a node stay on a host, also where it would not be put today.
func hold(n *mapping.Node, host string, now mapping.Mapping) {
	n.Host, n.Labels, n.Needs, n.Barred = host, nil, nil, nil
	now[n.Name] = host
}

// needs lists, by node, what its host's kernel must have: for what the node sends, and for what a switch sends to it.
func (p *placing) needs() map[string][]string {
	all, switches := map[string][]string{}, map[string]bool{}
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		switches[n.Name] = n.Kind == slice.Switch
		reserves := func(i slice.Interface) bool { return i.Reserved() != 0 }
		if slices.ContainsFunc(n.Interfaces, reserves) { // a class at its host's card
			all[n.Name] = append(all[n.Name], hosts.FeatureHTB)
		}
	}
	for i := range p.next.Links {
		l := &p.next.Links[i]
		for _, e := range l.Ends {
			for _, feature := range features(e.Shape) {
				for _, n := range l.Ends {
					if (n.Is(e) || switches[e.Node]) && !slices.Contains(all[n.Node], feature) {
						all[n.Node] = append(all[n.Node], feature)
					}
				}
			}
		}
	}
	return all
}

// features are what a kernel needs for a treatment of frames.
func features(s slice.Shape) (list []string) {
	if s.NeedsHTB() {
		list = append(list, hosts.FeatureHTB)
	}
	if s.NeedsNetem() {
		list = append(list, hosts.FeatureNetem)
	}
	return list
}

// substrate is the cluster as package mapping sees it. What this slice already uses always fits: hosts may have less
// than they had when it was placed, and that is no reason to move nodes that run.
func (p *placing) substrate() mapping.Substrate {
	own := map[string]usage{}
	if p.prev != nil {
		own = usageOf(p.prev)
	}
	problems := Problems(p.hosts)
	var s mapping.Substrate
	for i := range p.hosts {
		h := &p.hosts[i]
		mine, others := own[h.Name], p.used[h.Name]
		carrier, _ := underlay(h)
		to := mapping.Host{
			Name: h.Name, Labels: h.Policy.LabelsOver(h.Labels), Features: h.Features, Busy: h.Load,
			Capacity: mapping.Each(capacityOf(&h.Host), mine.Resources, math.Max),
			Rate:     carrier.Rate, MTU: carrier.MTU,
			Cordoned: h.Policy.Cordoned, Draining: h.Policy.Draining, Closed: problems[h.Name],
		}
		to.Ports = maps.Clone(others.ports)
		maps.DeleteFunc(to.Ports, func(port, _ string) bool { return mine.ports[port] != "" })
		if !h.Alive {
			to.Closed = "is lost"
		}
		to.Used = mapping.Each(others.Resources, to.Capacity.Minus(mine.Resources), math.Min)
		if to.Rate > 0 {
			to.Rate = max(to.Rate, mine.rate)
			to.UsedRate = min(others.rate, to.Rate-mine.rate)
		}
		s.Hosts = append(s.Hosts, to)
	}
	for name := range p.stuck {
		gone := p.was[name].Host
		added := slices.ContainsFunc(s.Hosts, func(h mapping.Host) bool { return h.Name == gone })
		if p.byName[gone] == nil && !added {
			s.Hosts = append(s.Hosts, mapping.Host{Name: gone, Closed: "does not exist",
				Capacity: own[gone].Resources})
		}
	}
	return s
}

// capacityOf is what a host has for nodes.
func capacityOf(h *hosts.Host) mapping.Resources {
	all := mapping.Reserved(h.Reservable)
	all[mapping.Cores] += h.Cores
	all[mapping.Memory] += float64(h.Memory)
	return all
}

// readReports notes the generation and the nodes that each host reports.
func (p *placing) readReports(reports map[string]slice.Status) {
	p.reported, p.named = make(map[string]int64, len(reports)), map[string][]string{}
	for host, st := range reports {
		p.reported[host] = st.Generation
		for node := range st.Nodes {
			p.named[node] = append(p.named[node], host)
		}
	}
}

// assign puts a node on a host, and notes the hosts that must release it first.
func (p *placing) assign(n *slice.Node, host string) {
	n.Host, n.Left, n.Placement.Since = host, nil, 0
	left := p.holders(n, host)
	_, returns := left[host] // which may run it as an older version wants it
	maps.DeleteFunc(left, func(h string, generation int64) bool {
		reported, has := p.reported[h]
		return p.byName[h] == nil || h == host || has && reported >= generation
	})
	if len(left) > 0 {
		n.Left = left
		for _, h := range slices.Sorted(maps.Keys(left)) {
			if !p.byName[h].Alive {
				p.notes = append(p.notes,
					fmt.Sprintf("%s starts on %s when %s has released it, but %[3]s is lost: "+
						"if it is lost for good, `pergola host rm --force %[3]s`",
						n.Name, host, h))
			}
		}
	}
	was := p.was[n.Name]
	switch {
	case was == nil || was.Host != host:
		n.BoundPorts = nil
	case p.background: // which may have moved it at first
		n.BoundPorts = was.BoundPorts
	}
	if n.Placement.Reschedule != slice.RescheduleAlways {
		return
	}
	switch {
	case was != nil && was.Host == host && was.Placement.Reschedule == slice.RescheduleAlways:
		n.Placement.Since = was.Placement.Since
	case was != nil && was.Host == host, returns:
		n.Placement.Since = p.generation
	}
}

// holders gives the hosts that may run a node until they hear that it is to be on a host, each with the generation that
// says so.
func (p *placing) holders(n *slice.Node, host string) map[string]int64 {
	was := p.was[n.Name]
	if was == nil { // a host may not have received yet that an older version's node of that name was removed
		left := map[string]int64{}
		for _, h := range p.named[n.Name] {
			left[h] = p.generation
		}
		return left
	}
	left := maps.Clone(was.Left)
	if left == nil {
		left = map[string]int64{}
	}
	switch {
	case was.Host == "": // it is older than the cluster: any host may have it
		for h := range p.byName {
			left[h] = p.generation
		}
	case was.Host != host:
		p.moves[n.Name] = was.Host
		if !p.free(n) {
			left[was.Host] = p.generation
		}
	}
	return left
}
