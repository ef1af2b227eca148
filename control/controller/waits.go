package controller

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/model/mapping"
)

// together lists nodes that wait for each other, directly or by others: they have to be on one host. Those that have to
// be on two are left out: settleWaits says so.
func (p *placing) together(nodes []mapping.Node) (all [][]string) {
	pins, waits := map[string]string{}, map[string][]string{}
	for i := range nodes {
		pins[nodes[i].Name] = nodes[i].Host
	}
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		for _, w := range n.WaitFor {
			if _, there := pins[w.Node]; there && !p.apart[n.Name] && !p.apart[w.Node] {
				waits[n.Name] = append(waits[n.Name], w.Node)
				waits[w.Node] = append(waits[w.Node], n.Name)
			}
		}
	}
	seen := map[string]bool{}
	for i := range nodes {
		unit := reached(nodes[i].Name, waits, seen)
		if len(unit) > 1 && countPins(unit, pins) < 2 {
			all = append(all, unit)
		}
	}
	return all
}

// reached lists a name and all those that are reached from it, but for what was seen before.
func reached(from string, next map[string][]string, seen map[string]bool) (all []string) {
	if seen[from] {
		return nil
	}
	all, seen[from] = []string{from}, true
	for i := 0; i < len(all); i++ { // all grows
		for _, name := range next[all[i]] {
			if !seen[name] {
				all, seen[name] = append(all, name), true
			}
		}
	}
	return all
}

// countPins counts the hosts that nodes are pinned to.
func countPins(nodes []string, pins map[string]string) int {
	hosts := map[string]bool{}
	for _, name := range nodes {
		if pins[name] != "" {
			hosts[pins[name]] = true
		}
	}
	return len(hosts)
}

// part lets nodes that wait for each other be on different hosts if not all of them can stay where they are.
func (p *placing) part(unit, stay []string) bool {
	homeless := func(name string) bool { return p.now(name) == "" }
	if len(unit) == 1 || len(stay) > 0 && !slices.ContainsFunc(unit, homeless) {
		return false
	}
	for _, name := range unit {
		p.apart[name] = true
	}
	return true
}

// noteHeld says which nodes stay on a host that they should leave, because others that stay wait for them, or they for
// these.
func (p *placing) noteHeld(together [][]string, m mapping.Mapping) {
	for _, unit := range together {
		for _, name := range unit {
			if n := p.next.Node(name); !p.stuck[name] && p.leaving(n) && m[name] == p.now(name) {
				p.notes = append(p.notes, fmt.Sprintf(
					"%s stays on %s: it waits for nodes that stay there, or they wait for it",
					name, m[name]))
			}
		}
	}
}

// checkWaits finds nodes that would wait for nodes of other hosts: no host tells another one what its nodes do.
func (p *placing) checkWaits() (faults []Fault) {
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		for _, w := range n.WaitFor {
			other := p.next.Node(w.Node)
			if other == nil || other.Host == n.Host {
				continue
			}
			faults = append(faults, Fault{
				Location: "nodes." + n.Name + ".wait_for",
				Message: fmt.Sprintf("node %s waits for %s, and they are on two hosts, %s and %s: "+
					"give both the same host:, or only one", n.Name, w.Node, n.Host, other.Host),
			})
		}
	}
	return faults
}

// settleWaits refuses these nodes, or notes them where no user waits for the answer.
func (p *placing) settleWaits() error {
	faults := p.checkWaits()
	if len(faults) > 0 && !p.background {
		return unplaceable(p.next.Name, faults)
	}
	for _, f := range faults {
		p.notes = append(p.notes, f.Message)
	}
	return nil
}
