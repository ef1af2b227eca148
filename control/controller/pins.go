package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// checkPins checks what the topology says about hosts: a pin names a host that exists and can take the node, and a node
// that needs a resource of one machine has a pin.
func (p *placing) checkPins() (faults []Fault) {
	names := slices.Sorted(maps.Keys(p.byName))
	problems := Problems(p.hosts)
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		add := func(format string, args ...any) {
			faults = append(faults, Fault{Location: "nodes." + n.Name + ".host",
				Message: "node " + n.Name + " " + fmt.Sprintf(format, args...)})
			if p.background && p.was[n.Name] != nil {
				p.stuck[n.Name] = true
			}
		}
		pin := n.Placement.Host
		h := p.byName[pin]
		switch {
		case pin == "":
			if what := localResource(n); what != "" {
				p.keepOnMachine(n, what, add)
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

// keepOnMachine keeps a node that needs a resource of one machine on that machine. A new node must have a pin.
func (p *placing) keepOnMachine(n *slice.Node, what string, add func(format string, args ...any)) {
	switch here := p.now(n.Name); {
	case here != "":
		p.stuck[n.Name] = true
		if p.byName[here].Policy.Draining {
			p.notes = append(p.notes, fmt.Sprintf("%s stays on %s: it has %s", n.Name, here, what))
		}
	case len(p.hosts) > 1:
		add("has %s: write on which one, as host: with one of %s", what,
			list(slices.Sorted(maps.Keys(p.byName))))
	}
}

// noteVolumes says which volumes stay behind.
func (p *placing) noteVolumes() {
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		if from := p.moves[n.Name]; from != "" && len(n.Volumes) > 0 {
			p.notes = append(p.notes, fmt.Sprintf(
				"%s moves to %s without what is in its volumes, which stay on %s",
				n.Name, n.Host, from))
		}
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

// localResource names what a node needs that only one machine has; empty: nothing.
func localResource(n *slice.Node) string {
	switch {
	case n.Kind == slice.Uplink:
		return "the network of a machine"
	case len(n.Binds) > 0:
		return "paths of a machine (binds)"
	case n.HasOwnDevices():
		return "devices of a machine (devices)"
	case n.Rootfs.Kind == slice.RootfsDir:
		return "a directory of a machine for its file system (rootfs)"
	case n.Rootfs.Kind == slice.RootfsLayout:
		return "an image in a directory of a machine"
	}
	return ""
}

// ignoredPins warns that what a topology says about hosts has no effect: this machine is in no cluster.
func ignoredPins(s *slice.Slice) []string {
	nodes := 0
	for i := range s.Nodes {
		if p := s.Nodes[i].Placement; p.Host != "" || len(p.Labels) > 0 || p.Reschedule != "" {
			nodes++
		}
	}
	if nodes == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the host settings of %s in the topology have no effect: this "+
		"machine is in no cluster", wording.Count(nodes, "node"))}
}
