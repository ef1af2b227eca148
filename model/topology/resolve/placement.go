package resolve

import (
	"maps"
	"regexp"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// hostPattern takes what machines are called, with their domain or without.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// placement is where a node may run, and whether it is rescheduled when its host is lost. Values that equal the default
// are left empty.
func (r *resolver) placement(n *node) slice.Placement {
	a := &n.all
	if a.Host != "" && !hostPattern.MatchString(a.Host) {
		r.Add(n.at.At("host"), "write a name that pergola host ls shows", "%q is not a name of a host", a.Host)
	}
	for _, key := range slices.Sorted(maps.Keys(a.HostLabels)) {
		if key == "" || a.HostLabels[key] == "" {
			r.Add(n.at.At("host_labels").At(key), "write such as rack: a",
				"a label of a host has a name and a value")
		}
	}
	out := slice.Placement{Host: a.Host, Labels: a.HostLabels}
	if a.Reschedule != slice.RescheduleAlways {
		return out
	}
	// A node with one host cannot be rescheduled. This is an error where the node itself asks for it, and ignored
	// where the defaults do.
	holds := slices.DeleteFunc(n.out.Holds(), func(h slice.Hold) bool { return !h.OfOneMachine() })
	switch {
	case len(holds) > 0 && n.own.Reschedule != "":
		r.Add(n.at.At("reschedule"),
			"leave out one of them; an archive or an image of a registry is everywhere",
			"%q has %s of one machine (%s), so it cannot start elsewhere", n.name, holds[0], holds[0].Field)
	case len(holds) > 0:
	case a.Host == "":
		out.Reschedule = slice.RescheduleAlways
	case n.own.Host != "" && n.own.Reschedule != "":
		r.Add(n.at.At("reschedule"), "leave out one of them; host_labels leave a choice",
			"%q runs on host %s alone, so it cannot start elsewhere", n.name, a.Host)
	}
	return out
}

// tunnel is what carries a link's frames between hosts, if its ends are on several.
func (l *link) tunnel() slice.Tunnel {
	t := slice.Tunnel{DSCP: l.DSCP == file.DSCPCopy}
	if l.Tunnel == slice.VXLAN {
		t.Kind = slice.VXLAN
	}
	if l.floods() {
		t.StormControl = checked(l.StormControl.Frames())
	}
	return t
}

// floods reports whether a frame may go to several of the link's machines.
func (l *link) floods() bool {
	return l.lan() || slices.ContainsFunc(l.ends, func(p *port) bool { return p.node.kind == slice.Switch })
}

// tunnelSwitches gives switches the tunnels that the links plugged into them ask for.
func (r *resolver) tunnelSwitches() {
	for _, l := range r.links {
		if l.in.StormControl != "" && !l.floods() {
			r.Add(l.at.At("storm_control"), "leave it out",
				"the link joins two nodes: storm control is for LANs, and links of switches")
		}
	}
	for _, n := range r.nodes {
		if n.kind != slice.Switch {
			continue
		}
		for i, p := range n.interfaces {
			t := p.link.tunnel()
			if i > 0 && t != n.out.Tunnel {
				r.Add(p.link.at, "write the same in all of them, or in defaults: {link: ...}",
					"links of switch %q differ in tunnel, dscp or storm_control, but between two "+
						"hosts it has one tunnel", n.name)
				break
			}
			n.out.Tunnel = t
		}
	}
}
