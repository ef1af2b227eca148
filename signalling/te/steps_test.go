package te_test

import (
	"net/netip"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// drawn is a step, and what it means to the oracle.
type drawn struct {
	step   message.Step
	router netip.Addr
	by     netip.Addr // the interface at which it is entered; invalid: any
}

func (w world) steps(t *rapid.T) (all []drawn) {
	ways := w.ways()
	if len(ways) == 0 {
		return nil
	}
	for range rapid.IntRange(0, 2).Draw(t, "steps") {
		in := rapid.SampledFrom(ways).Draw(t, "step").in
		d := drawn{router: routerAddr(in.router), step: message.Step{Loose: rapid.Bool().Draw(t, "loose")}}
		a := d.router
		if rapid.Bool().Draw(t, "by its interface") {
			a = in.addr
			if !d.step.Loose {
				d.by = a
			}
		}
		d.step.Prefix = netip.PrefixFrom(a, 32)
		all = append(all, d)
	}
	return all
}

// owner is the router that has an interface.
func (w world) owner(a netip.Addr) netip.Addr {
	for _, x := range w.ways() {
		if x.in.addr == a {
			return routerAddr(x.in.router)
		}
	}
	return netip.Addr{}
}

// through tells whether a path goes through steps in their order.
func through(path []way, steps []drawn, at netip.Addr) bool {
	for _, s := range steps {
		if s.router == at {
			continue
		}
		for {
			if len(path) == 0 {
				return false
			}
			w := path[0]
			path, at = path[1:], routerAddr(w.in.router)
			if at == s.router && (!s.by.IsValid() || s.by == w.in.addr) {
				break
			}
			if !s.step.Loose {
				return false
			}
		}
	}
	return true
}
