package mapping

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Impossible says for which node no host was found, and what was wrong with each host.
type Impossible struct {
	Node    string            // empty: What is wrong with the request as a whole
	What    string            // such as "3 nodes, of which 1 may be on each of 2 hosts"
	Reasons map[string]string // by host
	// Proved is true if there is no mapping, whatever is done with other nodes; else none was found.
	Proved bool
}

// Error lists at most eight hosts for a reason.
func (e *Impossible) Error() string {
	if e.Node == "" {
		return "map the network: " + e.What
	}
	text := "map the network: no host can take node " + e.Node
	if !e.Proved {
		text += " beside the others"
	}
	if len(e.Reasons) == 0 {
		return text + ": there is none"
	}
	const shown = 8
	hosts := map[string][]string{}
	for host, why := range e.Reasons {
		hosts[why] = append(hosts[why], host)
	}
	var lines []string
	for why, names := range hosts {
		slices.Sort(names)
		if more := len(names) - shown; more > 0 {
			names = append(names[:shown:shown], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+why)
	}
	slices.Sort(lines)
	return text + ": " + strings.Join(lines, "; ")
}

// Unwrap makes errors.Is(err, ErrImpossible) true.
func (e *Impossible) Unwrap() error { return ErrImpossible }

// hopeless is an *Impossible where no search is needed to see that there is no mapping.
func (p *problem) hopeless() error {
	for n := range p.may {
		if !slices.Contains(p.may[n], true) {
			return &Impossible{Node: p.r.Nodes[n].Name, Proved: true, Reasons: p.reasons(n,
				func(h int) string { return p.whyFull(n, h, p.room[h]) })}
		}
	}
	for _, limit := range []struct {
		each, places int
		what         string
	}{{p.r.PerHost, len(p.s.Hosts), "hosts"}, {p.r.PerSite, p.sites, "sites"}} {
		if nodes := len(p.r.Nodes); limit.each > 0 && nodes > limit.each*limit.places {
			return &Impossible{Proved: true, What: fmt.Sprintf(
				"it has %d nodes, of which %d may be on each of %d %s",
				nodes, limit.each, limit.places, limit.what)}
		}
	}
	return nil
}

// reasons says for each host why it cannot take node n: the rule that keeps it from there, or what full says.
func (p *problem) reasons(n int, full func(h int) string) map[string]string {
	all := make(map[string]string, len(p.s.Hosts))
	for h := range p.s.Hosts {
		host := &p.s.Hosts[h]
		why := p.r.Nodes[n].whyNot(host)
		if why == "" {
			why = full(h)
		}
		all[host.Name] = why
	}
	return all
}

// impossible says why a node that the state has no host for has none.
func (st *state) impossible() *Impossible {
	n := slices.Index(st.at, nowhere)
	find := newFinder(st.problem)
	reach := map[int][]float64{} // by link: the prices of ways to each place
	for _, l := range st.linksOf[n] {
		if host := st.at[st.other(l, n)]; host != nowhere {
			find.spread(st.left, l, host, nowhere)
			reach[l] = slices.Clone(find.dist)
		}
	}
	return &Impossible{Node: st.r.Nodes[n].Name, Reasons: st.reasons(n, func(h int) string {
		return st.whyMissing(n, h, reach)
	})}
}

// whyMissing says why node n, which has no host, is not on host h, which no rule keeps it from.
func (st *state) whyMissing(n, h int, reach map[int][]float64) string {
	if why := st.whyFull(n, h, st.free[h]); why != "" {
		return why
	}
	for _, m := range st.apart[n] {
		if st.at[m] == h {
			return fmt.Sprintf("has node %s, which it has to be apart from", st.r.Nodes[m].Name)
		}
	}
	switch {
	case st.strays(n, h):
		return fmt.Sprintf("the node would have to move, and %d have moved, as many as may", st.moved)
	case st.r.PerHost > 0 && st.nodesAt[h] >= st.r.PerHost:
		return fmt.Sprintf("has %d of the nodes, the most that a host may have", st.nodesAt[h])
	case st.r.PerSite > 0 && st.nodesIn[st.site[h]] >= st.r.PerSite:
		return fmt.Sprintf("its site has %d of the nodes, the most that one may have", st.nodesIn[st.site[h]])
	}
	for _, l := range st.linksOf[n] {
		if prices, placed := reach[l]; placed && math.IsInf(prices[h], 1) {
			other := st.other(l, n)
			return fmt.Sprintf("no path to %s, where node %s is, has %s", st.s.Hosts[st.at[other]].Name,
				st.r.Nodes[other].Name, st.r.Links[l].wants())
		}
	}
	return fmt.Sprintf("the bandwidth around it is too little for all %d links of the node", len(st.linksOf[n]))
}

// wants says what a link asks of its path.
func (l *Link) wants() string {
	text := bits(l.Bandwidth)
	if l.Delay > 0 {
		text += fmt.Sprintf(" and at most %.4g ms", l.Delay*1000)
	}
	return text
}

// bits prints a rate as iproute2 does.
func bits(rate float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if rate >= unit.size {
			return fmt.Sprintf("%.4g %s", rate/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.4g bit/s", rate)
}
