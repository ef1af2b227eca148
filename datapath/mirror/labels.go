package mirror

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/pergola-net/pergola/datapath/fib"
)

// setLabels changes labels, of a session too that runs.
func (n *node) setLabels(l Labels) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.labels = l
	if n.out == nil {
		return nil
	}
	return l.write(n.out)
}

// labelled gives a router that nothing was written of its labels, before frames come to it.
func (n *node) labelled(out *fib.Router) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out = out
	return n.labels.write(out)
}

// Unrouted lists of some prefixes those whose frames are to get labels, and do not, because the router has no route to
// them by next hops.
func (m *Mirror) Unrouted(name string, some []netip.Prefix) ([]netip.Prefix, error) {
	n, err := m.node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	out := n.out
	n.mu.Unlock()
	if out == nil {
		return nil, nil
	}
	return out.Unrouted(some), nil
}

// Equal reports whether both say the same.
func (l Labels) Equal(o Labels) bool {
	return l.Space == o.Space && l.Rules == o.Rules && maps.Equal(l.FTNs, o.FTNs)
}

// write makes a router have these labels, whatever it has. What has not changed costs no write. On an error it has some
// of them: Set is to be called again.
func (l Labels) write(out *fib.Router) error {
	var errs []error
	space, rules, has := out.Labels()
	if l.Space != space || l.Rules != rules {
		errs = append(errs, out.SetLabelSpace(l.Space, l.Rules))
	}
	set := func(p netip.Prefix, ftn uint32) { errs = append(errs, out.SetFTN(p, ftn)) }
	for p := range has {
		if l.FTNs[p] == 0 {
			set(p, 0)
		}
	}
	for p, ftn := range l.FTNs {
		if has[p] != ftn {
			set(p, ftn)
		}
	}
	return errors.Join(errs...)
}
