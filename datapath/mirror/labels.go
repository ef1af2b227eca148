package mirror

import (
	"errors"
	"net/netip"

	"github.com/pergola-net/pergola/datapath/fib"
)

// setLabels changes labels, of a session too that runs.
func (n *node) setLabels(l Labels) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.out != nil {
		if err := l.write(n.out, n.labels); err != nil {
			return err // it is not what the router has: Set is to be called again
		}
	}
	n.labels = l
	return nil
}

// labelled gives a router that nothing was written of its labels, before frames come to it.
func (n *node) labelled(out *fib.Router) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out = out
	return n.labels.write(out, Labels{})
}

// Unrouted lists the prefixes whose frames are to get labels, and do not, because the router has no route to them by
// next hops.
func (m *Mirror) Unrouted(name string) ([]netip.Prefix, error) {
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
	return out.Unrouted(), nil
}

// write makes a router that has the labels of before have these. What has not changed costs no write.
func (l Labels) write(out *fib.Router, before Labels) error {
	var errs []error
	if l.Space != before.Space {
		errs = append(errs, out.SetLabelSpace(l.Space))
	}
	set := func(p netip.Prefix, ftn uint32) { errs = append(errs, out.SetFTN(p, ftn)) }
	for p := range before.FTNs {
		if l.FTNs[p] == 0 {
			set(p, 0)
		}
	}
	for p, ftn := range l.FTNs {
		if before.FTNs[p] != ftn {
			set(p, ftn)
		}
	}
	return errors.Join(errs...)
}
