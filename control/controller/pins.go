package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// checkPins looks at what the topology says of hosts: it names those that exist, that can take the node, and it names
// one where a node has something of one machine.
func (p *placing) checkPins() (faults []Fault) {
	names := slices.Sorted(maps.Keys(p.byName))
	problems := Problems(p.hosts)
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		add := func(format string, args ...any) {
			faults = append(faults, Fault{Location: "nodes." + n.Name + ".host",
				Message: "node " + n.Name + " " + fmt.Sprintf(format, args...)})
			if p.unasked && p.was[n.Name] != nil {
				p.stuck[n.Name] = true
			}
		}
		pin := n.Placement.Host
		h := p.byName[pin]
		switch {
		case pin == "":
			if what := anchored(n); what != "" {
				p.anchor(n, what, add)
			}
		case h == nil:
			hint := "the cluster has " + list(names)
			if meant := wording.DidYouMean(pin, names); meant != "" {
				hint = meant
			}
			add("is to run on host %q, which does not exist: %s", pin, hint)
		case p.now(n.Name) == pin: // it is there
		case !h.Alive:
			add("is to run on host %s, which is lost since %s", pin,
				h.Since.Local().Format("2006-01-02 15:04:05"))
		case problems[pin] != "":
			add("is to run on host %s, which %s", pin, problems[pin])
		case h.Policy.Draining:
			add("is to run on host %s, which is being drained: to end that, `pergola host uncordon %[1]s`",
				pin)
		case h.Policy.Cordoned:
			add("is to run on host %s, which is cordoned: to end that, `pergola host uncordon %[1]s`", pin)
		}
	}
	return faults
}

// anchor keeps a node that has something of one machine on that machine. Of a new one, it must be known which that is.
func (p *placing) anchor(n *slice.Node, what string, add func(format string, args ...any)) {
	switch here := p.now(n.Name); {
	case here != "":
		p.stuck[n.Name] = true
		if p.byName[here].Policy.Draining {
			p.notes = append(p.notes, fmt.Sprintf("%s stays on %s: it has %s", n.Name, here, what))
		}
	case len(p.hosts) > 1:
		add("has %s, so it must be said which: write host: with one of %s", what,
			list(slices.Sorted(maps.Keys(p.byName))))
	}
}

// list words names, of which there may be many.
func list(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// anchored says what a node has of one machine alone; empty: nothing.
func anchored(n *slice.Node) string {
	switch {
	case n.Kind == slice.Uplink:
		return "the network of a machine"
	case len(n.Binds) > 0:
		return "paths of a machine (binds)"
	case n.Rootfs.Kind == slice.RootfsDir:
		return "a directory of a machine for its file system (rootfs)"
	case n.Rootfs.Kind == slice.RootfsLayout:
		return "an image in a directory of a machine"
	}
	return ""
}

// passedOver notes what a topology says of hosts that means nothing here: this machine is in no cluster.
func passedOver(s *slice.Slice) []string {
	nodes := 0
	for i := range s.Nodes {
		if p := s.Nodes[i].Placement; p.Host != "" || len(p.Labels) > 0 || p.Reschedule != "" {
			nodes++
		}
	}
	if nodes == 0 {
		return nil
	}
	return []string{fmt.Sprintf("what the topology says of the hosts of %s is passed over: this "+
		"machine is in no cluster", wording.Count(nodes, "node"))}
}
