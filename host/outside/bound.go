package outside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/claims"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// fresh is how long a port that was bound stays claimed before a socket is there: one of TCP is seen when it listens.
const fresh = 10 * time.Second

// binder is a sliver whose processes reserve ports by binding them, as it was seen last.
type binder struct {
	device
	netns   claims.NetNS
	sockets []socket
}

// Bound lists the ports that processes have bound, by their slivers' owners, of slivers that reserve ports so: those
// that are reserved, and those that are to be. pids are the first processes of slivers by owner. It makes the claims
// what they are to be: a port that is reserved, or that a process of the machine has, can be bound by no other sliver;
// one that nobody has bound any longer is free. If it cannot find out, that is logged, and no sliver is listed.
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
		all[b.node.Owner] = b.bound(has)
	}
	return all, nil
}

// look finds the slivers that reserve ports by binding them, and lets them do so, and no others.
func (g *Gateway) look(there []device, pids map[string]int) (all []binder, err error) {
	g.binders = map[string]claims.NetNS{}
	for _, d := range there {
		pid := pids[d.node.Owner]
		if !d.node.binds() || pid == 0 {
			continue
		}
		b := binder{device: d}
		err := in(pid, func() (err error) {
			b.sockets, err = readSockets()
			return err
		})
		if errors.Is(err, netns.ErrGone) {
			continue
		}
		if err == nil {
			b.netns, err = g.letBind(pid, d)
		}
		if err != nil {
			return nil, fmt.Errorf("sockets of %s: %w", d.node.Owner, err)
		}
		all = append(all, b)
	}
	return all, g.claims.Retain(func(n claims.NetNS) bool {
		return slices.ContainsFunc(all, func(b binder) bool { return b.netns == n })
	})
}

// letBind lets the processes of a sliver claim ports by binding them.
func (g *Gateway) letBind(pid int, d device) (ns claims.NetNS, err error) {
	if err := g.openClaims(); err != nil {
		return 0, err
	}
	if err := in(pid, func() (err error) {
		ns, err = claims.Here()
		return err
	}); err != nil {
		return 0, err
	}
	if g.binders == nil {
		g.binders = map[string]claims.NetNS{}
	}
	g.binders[d.node.Owner] = ns
	return ns, g.claims.Bind(ns, claims.Binder{
		Address: d.inner(), First: d.node.Bind.First, Last: d.node.Bind.Last,
	})
}

// Unclaim takes a port back from a sliver that has bound it: it cannot be reserved. Its socket stays as it is.
func (g *Gateway) Unclaim(owner string, p slice.HostPort) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ns, known := g.binders[owner]
	if !known || g.claims == nil {
		return nil
	}
	has, err := g.claims.All()
	if err == nil && has[claimOf(p)].NetNS == ns {
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
	all := map[claims.Port]claims.NetNS{{Protocol: unix.IPPROTO_UDP, Number: slice.VXLANPort}: claims.Nobody}
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
	for p, is := range has {
		if to, wanted := reserved[p]; wanted {
			if to == is.NetNS {
				delete(give, p) // it is as it is to be
			}
			continue
		}
		i := slices.IndexFunc(binders, func(b binder) bool { return b.netns == is.NetNS })
		if i < 0 || !binders[i].holds(p, is) {
			release = append(release, p)
		}
	}
	return give, release
}

// holds reports whether a claim of the sliver is still one.
func (b *binder) holds(p claims.Port, is claims.Claim) bool {
	return is.Age < fresh || slices.ContainsFunc(b.sockets, func(s socket) bool {
		return s.port == p && s.isOutside(b.inner())
	})
}

// bound lists the ports that a sliver has bound: those that it has claimed, and those of sockets that were there before
// it could, or whose claim was refused.
func (b *binder) bound(has map[claims.Port]claims.Claim) (all []slice.HostPort) {
	for p, is := range has {
		if is.NetNS == b.netns && b.holds(p, is) {
			all = append(all, hostPortOf(p))
		}
	}
	for _, s := range b.sockets {
		if s.chosen && s.isOutside(b.inner()) && b.node.Bind.Has(s.port.Number) {
			all = append(all, hostPortOf(s.port))
		}
	}
	slices.SortFunc(all, slice.HostPort.Compare)
	return slices.Compact(all)
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
