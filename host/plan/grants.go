package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// In a cluster, a host makes no node that wants more of the machine itself than its root granted, whatever the store
// says: every member can write to the store.

// Refuses says why a host does not grant a node of a slice what it wants of the machine; empty where it does.
func (p Place) Refuses(name string, n *slice.Node) string {
	if p.Terms == nil || !p.Owns(n) {
		return ""
	}
	missing := slices.DeleteFunc(n.Holds(), func(h slice.Hold) bool {
		_, ok := p.Terms.Covers(name, h)
		return ok
	})
	if len(missing) == 0 {
		return ""
	}
	var names []string
	for _, h := range missing {
		names = append(names, h.String())
	}
	return fmt.Sprintf("host %s does not let it have %s: %s (if it had it before: apply it again; "+
		"from before an upgrade, nobody's consent is known)", p.Host, strings.Join(names, ", "),
		hosts.Advice(p.Host, p.Terms.Allowance, missing...))
}

// Grants gives those of a node's ports that the host grants the slice. A port of the topology that it does not grant
// has kept the node from being made; one that the node asked for while it ran is taken away when root of the machine
// no longer allows it.
func (p Place) Grants(name string, ports []slice.HostPort) []slice.HostPort {
	if p.Terms == nil {
		return ports
	}
	return slices.DeleteFunc(ports, func(port slice.HostPort) bool {
		_, ok := p.Terms.Covers(name, slice.Hold{Port: port.String()})
		return !ok
	})
}

// Refusals lists them for a slice.
func (p Place) Refusals(s *slice.Slice) (all []string) {
	for i := range s.Nodes {
		if why := p.Refuses(s.Name, &s.Nodes[i]); why != "" {
			all = append(all, "node "+s.Nodes[i].Name+": "+why)
		}
	}
	return all
}

// beneath gives, for each granted path of the machine, the directory that it must not lead out of.
func (p Place) beneath(name string, n *slice.Node) map[string]string {
	if p.Terms == nil {
		return nil
	}
	dirs := map[string]string{}
	for _, h := range n.Holds() {
		if h.Device { // it is one path, wherever that leads
			continue
		}
		if dir, ok := p.Terms.Covers(name, h); ok && dir != "" {
			dirs[h.Path] = dir
		}
	}
	return dirs
}

// NamedDevices gives those of a node's devices that the host's operator allows to every slice, by name. They may be
// such as no slice gets otherwise.
func (p Place) NamedDevices(n *slice.Node) (names []string) {
	for _, h := range n.Holds() {
		if _, ok := p.Allows.Covers(h); ok && h.Device {
			names = append(names, h.Path)
		}
	}
	return names
}
