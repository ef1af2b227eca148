package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/claims"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/slice"
)

// fresh is how long a port that was bound stays claimed before a socket is there: one of TCP is seen when it listens.
const fresh = 10 * time.Second

// mostBound is how many ports one sliver keeps from others by binding them. It can have slice.MaxHostPorts; of what it
// binds, some may be refused.
const mostBound = 4 * slice.MaxHostPorts

// binder is a sliver whose processes reserve ports by binding them, as it was seen last.
type binder struct {
	device
	netns   claims.NetNS
	sockets []socket
	ports   []slice.HostPort // that it has bound, mostBound at most; see bound
}

// Bound lists the ports that processes have bound, by their slivers' owners, of slivers that reserve ports so: those
// that are reserved, and those that are to be. pids are the first processes of slivers by owner. It makes the claims
// what they are to be: a port that is reserved, or that a process of the machine has, can be bound by no other sliver;
// one that nobody has bound any longer is free, and so is what a sliver binds beyond mostBound ports. If it cannot find
// out, that is logged, and no sliver is listed.
func (g *Gateway) Bound(ctx context.Context, pids map[string]int) (map[string][]slice.HostPort, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all, err := g.bound(pids)
	if err == nil {
		g.unread = ""
	} else if err.Error() != g.unread { // once, not with every observation
		g.unread = err.Error()
		g.log.Error("cannot read which ports nodes have bound", "error", err)
	}
	return all, nil
}

func (g *Gateway) bound(pids map[string]int) (map[string][]slice.HostPort, error) {
	there, err := g.devices()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(there, func(d device) bool { return d.node.binds() }) {
		return nil, g.endClaims()
	}
	if err := g.openClaims(); err != nil {
		return nil, err
	}
	binders, err := g.look(there, pids)
	if err != nil {
		return nil, err
	}
	own, err := readSockets()
	if err != nil {
		return nil, err
	}
	has, err := g.claims.All()
	if err != nil {
		return nil, err
	}
	for i := range binders {
		binders[i].ports = binders[i].bound(has)
	}
	give, release := settle(has, reserved(there, binders, own), binders)
	for p, to := range give {
		if err := g.claims.Give(p, to); err != nil {
			return nil, err
		}
	}
	for _, p := range release {
		if err := g.claims.Release(p); err != nil {
			return nil, err
		}
	}
	all := map[string][]slice.HostPort{}
	for _, b := range binders {
		all[b.node.Owner] = b.ports
		if err := g.claims.Bind(b.netns, b.claimer()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// look finds the slivers that reserve ports by binding them, and lets no others do so any longer. A sliver that ended
// is none, though its process's number may be that of a process of the machine by now.
func (g *Gateway) look(there []device, pids map[string]int) (all []binder, err error) {
	machine, err := claims.Here()
	if err != nil {
		return nil, err
	}
	g.binders = map[string]claims.NetNS{}
	for _, d := range there {
		pid := pids[d.node.Owner]
		if !d.node.binds() || pid == 0 {
			continue
		}
		b := binder{device: d}
		err := in(pid, func() (err error) {
			if b.sockets, err = readSockets(); err == nil {
				b.netns, err = claims.Here()
			}
			return err
		})
		if errors.Is(err, netns.ErrGone) || b.netns == machine {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sockets of %s: %w", d.node.Owner, err)
		}
		g.binders[d.node.Owner] = b.netns
		all = append(all, b)
	}
	return all, g.claims.Retain(func(n claims.NetNS) bool {
		return slices.ContainsFunc(all, func(b binder) bool { return b.netns == n })
	})
}

// letBind lets the processes of a sliver claim ports by binding them.
func (g *Gateway) letBind(pid int, d device) error {
	if err := g.openClaims(); err != nil {
		return err
	}
	b := binder{device: d}
	if err := in(pid, func() (err error) {
		b.netns, err = claims.Here()
		return err
	}); err != nil {
		return err
	}
	if g.binders == nil {
		g.binders = map[string]claims.NetNS{}
	}
	g.binders[d.node.Owner] = b.netns
	return g.claims.Bind(b.netns, b.claimer())
}

// claimer is the sliver as the kernel knows it.
func (b *binder) claimer() claims.Binder {
	return claims.Binder{
		Address: b.inner(), First: b.node.Bind.First, Last: b.node.Bind.Last, More: mostBound - len(b.ports),
	}
}

// Unclaim takes a port back from a sliver that has bound it: it cannot be reserved. Its socket stays as it is.
func (g *Gateway) Unclaim(owner string, p slice.HostPort) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ns, known := g.binders[owner]
	if !known || g.claims == nil {
		return nil
	}
	whose, claimed, err := g.claims.Of(claimOf(p))
	if err == nil && claimed && whose == ns {
		err = g.claims.Release(claimOf(p))
	}
	if err != nil {
		return fmt.Errorf("take port %s back from %s: %w", p, owner, err)
	}
	return nil
}

// reserved says whose ports are: slivers' to which they lead, and Nobody's that processes of the machine have, whose
// sockets are own.
func reserved(there []device, binders []binder, own []socket) map[claims.Port]claims.NetNS {
	all := map[claims.Port]claims.NetNS{{Protocol: unix.IPPROTO_UDP, Number: constants.VXLANPort}: claims.Nobody}
	for _, s := range own {
		if s.chosen || s.port.Protocol == unix.IPPROTO_TCP {
			all[s.port] = claims.Nobody
		}
	}
	for _, d := range there {
		whose := claims.Nobody
		if i := slices.IndexFunc(binders, func(b binder) bool { return b.index == d.index }); i >= 0 {
			whose = binders[i].netns
		}
		for _, p := range d.node.Ports {
			all[claimOf(p)] = whose
		}
	}
	return all
}

// settle says which claims are to be others than they are.
func settle(has map[claims.Port]claims.Claim, reserved map[claims.Port]claims.NetNS, binders []binder) (
	give map[claims.Port]claims.NetNS, release []claims.Port) {
	give = maps.Clone(reserved)
	bound := map[claims.Port]bool{} // by the sliver that has claimed it
	for _, b := range binders {
		for _, p := range b.ports {
			if is, claimed := has[claimOf(p)]; claimed && is.NetNS == b.netns {
				bound[claimOf(p)] = true
			}
		}
	}
	for p, is := range has {
		if to, wanted := reserved[p]; wanted {
			if to == is.NetNS {
				delete(give, p) // it is as it is to be
			}
			continue
		}
		if !bound[p] {
			release = append(release, p)
		}
	}
	return give, release
}

// bound lists the ports that a sliver has bound: those that it has claimed, and those of sockets that were there before
// it could, or whose claim was refused. What is reserved for it comes first, if there are too many.
func (b *binder) bound(has map[claims.Port]claims.Claim) (all []slice.HostPort) {
	open := map[claims.Port]bool{} // where its sockets are; true: a process chose one of them
	for _, s := range b.sockets {
		if s.isOutside(b.inner()) && b.node.Bind.Has(s.port.Number) {
			open[s.port] = open[s.port] || s.chosen
		}
	}
	for p, is := range has {
		if is.NetNS != b.netns || !b.node.Bind.Has(p.Number) {
			continue
		}
		if _, held := open[p]; held || is.Age < fresh {
			open[p] = true
		}
	}
	for p, bound := range open {
		if bound {
			all = append(all, hostPortOf(p))
		}
	}
	later := func(p slice.HostPort) int {
		if slices.Contains(b.node.Ports, p) {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(p, q slice.HostPort) int { return cmp.Or(later(p)-later(q), p.Compare(q)) })
	all = all[:min(len(all), mostBound)]
	slices.SortFunc(all, slice.HostPort.Compare)
	return all
}

func (g *Gateway) openClaims() (err error) {
	if g.claims == nil {
		g.claims, err = claims.Open(g.pins, g.tell)
	}
	return err
}

// endClaims ends all claims, if there are any.
func (g *Gateway) endClaims() error {
	err := g.close()
	g.binders = nil
	if claims.Present(g.pins) {
		err = errors.Join(err, claims.Remove(g.pins))
	}
	return err
}

// Close lets go of the machine's part, which stays.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.close()
}

func (g *Gateway) close() (err error) {
	if g.claims != nil {
		err = g.claims.Close()
		g.claims = nil
	}
	return err
}

var protocols = map[string]uint16{slice.TCP: unix.IPPROTO_TCP, slice.UDP: unix.IPPROTO_UDP}

func claimOf(p slice.HostPort) claims.Port {
	return claims.Port{Protocol: protocols[p.Protocol], Number: p.Port}
}

func hostPortOf(p claims.Port) slice.HostPort {
	for name, number := range protocols {
		if number == p.Protocol {
			return slice.HostPort{Protocol: name, Port: p.Number}
		}
	}
	return slice.HostPort{}
}
