package fastpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// ErrNotMirrored is the error of a question about a router of which there is no mirror.
var ErrNotMirrored = errors.New("it is not mirrored")

// Router says what the fast path does for one router.
func (f *FastPath) Router(id sliver.ID) (r api.RouterFastPath) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r = f.routerLocked(id)
	var now mirror.Counters
	if f.mirror != nil {
		if st, err := f.mirror.Status(id.String()); err == nil {
			now = st.Counters
		}
	}
	c := f.counts.of(id, now)
	r.Resyncs, r.IPv4.Left, r.IPv6.Left = uint64(c.Resyncs), uint64(c.Left[0]), uint64(c.Left[1])
	return r
}

// routerLocked is Router without the counters.
func (f *FastPath) routerLocked(id sliver.ID) (r api.RouterFastPath) {
	known, there := f.routers[id]
	switch {
	case f.trouble == nil && !there:
		return off("it does not run", "")
	case known.Off:
		return off("fastpath: off in the topology", "")
	case f.captures[id] > 0:
		return off("pergola capture takes its frames", "")
	}
	if f.trouble != nil || f.refused[id] != nil {
		return off("it cannot be mirrored", f.troubleLocked(id))
	}
	st, err := f.mirror.Status(id.String())
	if err != nil {
		return off("it cannot be mirrored", err.Error())
	}
	family := func(s mirror.FamilyStatus) api.FamilyFastPath {
		return api.FamilyFastPath{On: s.FastPath, Why: s.Why}
	}
	r = api.RouterFastPath{
		IPv4: family(st.IPv4), IPv6: family(st.IPv6),
		Routes: st.IPv4.Routes + st.IPv6.Routes, Neighbours: st.Neighbours,
	}
	for _, leg := range st.Off {
		r.Interfaces = append(r.Interfaces, api.InterfaceFastPath{
			Interface: leg.Interface, IPv4: leg.IPv4, IPv6: leg.IPv6,
		})
	}
	return r
}

// off is a router whose kernel forwards all frames.
func off(why, trouble string) api.RouterFastPath {
	family := api.FamilyFastPath{Why: []string{why}}
	return api.RouterFastPath{IPv4: family, IPv6: family, Trouble: trouble}
}

// Unmirrored says why a router has no mirror, without which it switches no labels; empty: it has one, be it on the fast
// path or off.
func (f *FastPath) Unmirrored(id sliver.ID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, there := f.routers[id]; {
	case f.trouble != nil, f.refused[id] != nil:
		return "it cannot be mirrored: " + f.troubleLocked(id)
	case !there || f.mirror == nil:
		return "it does not run"
	}
	return ""
}

// Unlabelled says why frames get no labels at the router where their LSP begins; empty: they do. Those of rules may be
// of either family.
func (f *FastPath) Unlabelled(id sliver.ID, l *slice.LSP) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.routerLocked(id)
	ruled, none := len(l.Match) > 0, !r.IPv4.On && !r.IPv6.On
	var why []string
	for i, family := range []api.FamilyFastPath{r.IPv4, r.IPv6} {
		has := func(p netip.Prefix) bool { return p.Addr().Is6() == (i == 1) }
		if !family.On && (slices.ContainsFunc(l.To, has) || ruled && none) {
			why = append(why, fmt.Sprintf("IPv%d is not on the fast path: %s", 4+2*i,
				cmp.Or(r.Trouble, strings.Join(family.Why, ", "))))
		}
	}
	if len(why) > 0 {
		return strings.Join(why, "; ")
	}
	if ruled && !f.routers[id].Labels.Rules {
		return "packets are about to get its label"
	}
	for _, p := range l.To {
		if f.routers[id].Labels.FTNs[p] == 0 {
			return "packets to " + p.String() + " are about to get its label"
		}
	}
	unrouted, err := f.mirror.Unrouted(id.String(), l.To)
	if err != nil {
		return err.Error()
	}
	for _, p := range unrouted {
		why = append(why, p.String())
	}
	if len(why) > 0 {
		return "has no route to " + strings.Join(why, ", ") + " by other routers"
	}
	return ""
}

// Trouble words what kept a router off the fast path at the last poll; empty: nothing did, or not for long.
func (f *FastPath) Trouble(id sliver.ID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.troubles[id]
}

// Punts counts the frames that the fast path handed to a router's kernel, by reason, since the router is known: also
// while it is read again, and while it does not run.
func (f *FastPath) Punts(ctx context.Context, id sliver.ID) (map[string]uint64, error) {
	return f.counts.punts(ctx, id)
}

// Usage says how full the fast path's memory is.
func (f *FastPath) Usage() api.FastPathMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fib == nil {
		return api.FastPathMemory{}
	}
	u := f.fib.Usage()
	share := func(used, bound int) api.Share { return api.Share{Used: int64(used), Bound: int64(bound)} }
	return api.FastPathMemory{
		Routers: share(u.Routers, u.RoutersBound), Nexthops: share(u.Nexthops, u.NexthopsBound),
		Neighbours: share(u.Neighbours, u.NeighboursBound),
		Bytes:      api.Share{Used: u.Bytes, Bound: u.BytesBound},
	}
}

// Verify compares the mirror of a router with its kernel. It fails with ErrNotMirrored if there is none.
func (f *FastPath) Verify(ctx context.Context, id sliver.ID) ([]mirror.Difference, error) {
	keeper := f.mirrorOf(id)
	if keeper == nil {
		return nil, ErrNotMirrored
	}
	found, err := keeper.Verify(ctx, id.String())
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", id.Node, err)
	}
	return found, nil
}

// mirrorOf gives the mirror if it is to be of a router.
func (f *FastPath) mirrorOf(id sliver.ID) mirrorKeeper {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.routers[id]; !known || f.refused[id] != nil {
		return nil
	}
	return f.mirror
}
