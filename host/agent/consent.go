package agent

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// In a cluster, an agent makes no node that wants more of this machine itself than its root consented to, whatever the store says: every member
// can write that.

// withdraw forgets what a slice that goes had of this machine.
func (a *Agent) withdraw(ctx context.Context, name string) {
	if a.cfg.Consents == nil {
		return
	}
	if err := a.cfg.Consents.Forget(ctx, name); err != nil {
		a.cfg.Log.Warn("forget what a slice had of this machine", "slice", name, "error", err)
	}
}

// refuses says why a host does not let a node of a slice have what it wants of it; empty: it does.
func (p place) refuses(name string, n *slice.Node) string {
	if p.terms == nil || !p.owns(n) {
		return ""
	}
	for _, h := range n.Holds() {
		if _, ok := p.terms.Covers(name, h); !ok {
			return fmt.Sprintf("host %s does not let it have %s: %s (if it had it before: apply it again; from before an upgrade, nobody's consent is known)", p.host, h, hosts.Advice(p.host, h))
		}
	}
	return ""
}

// refusals lists them for a slice.
func (p place) refusals(s *slice.Slice) (all []string) {
	for i := range s.Nodes {
		if why := p.refuses(s.Name, &s.Nodes[i]); why != "" {
			all = append(all, "node "+s.Nodes[i].Name+": "+why)
		}
	}
	return all
}

// beneath gives, for paths of the machine that any slice may have, the directory that they must not lead out of.
func (p place) beneath(name string, n *slice.Node) map[string]string {
	if p.terms == nil {
		return nil
	}
	dirs := map[string]string{}
	for _, h := range n.Holds() {
		if dir, ok := p.terms.Covers(name, h); ok && dir != "" {
			dirs[h.Path] = dir
		}
	}
	return dirs
}
