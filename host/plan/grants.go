package plan

import (
	"fmt"

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
	for _, h := range n.Holds() {
		if _, ok := p.Terms.Covers(name, h); !ok {
			return fmt.Sprintf("host %s does not let it have %s: %s (if it had it before: apply it again; "+
				"from before an upgrade, nobody's consent is known)",
				p.Host, h, hosts.Advice(p.Host, h))
		}
	}
	return ""
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
		if dir, ok := p.Terms.Covers(name, h); ok && dir != "" {
			dirs[h.Path] = dir
		}
	}
	return dirs
}
