package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// What is on another host is reached by a proxy port: a port that is wired as if it were that of the interface there,
// and leads into a tunnel. Of a switch or a LAN there is a bridge on each of its hosts, with a proxy port for each
// other host:
//
//	host A    a ── s1p1 ═══ s1p2 ))) egre or vxlan ((( s1p1 ═══ s1p2 ── b    host B
//
// Each direction is shaped where it begins, before the tunnel, at the port of the node that sends.

// segment is a switch or a LAN as bridges on several hosts.
type segment struct {
	device string // of the bridge, the same on all hosts
	owner  string
	hosts  []string
	tunnel slice.Tunnel
	mtu    int
	links  []*slice.Link // that are not up before it is whole

	plugged []string // devices that may be in the bridge here, beside proxy ports
}

// addBridge adds the bridge that is here, and a proxy port for each other host: what came out of one goes into no
// other, or frames would go round.
func (b *builder) addBridge(g segment) {
	sw := b.bridge(g.device, g.owner)
	b.divide(g)
	for _, host := range g.hosts {
		if b.is(host) {
			continue
		}
		t := Tunnel{
			Name: tunnelDevice(b.Spec.ID, g.device, host), Owner: g.owner + " at " + host, MTU: g.mtu,
			Isolated: true, StormControl: g.tunnel.StormLimit(),
		}
		k, ok := b.addTunnel(g.links, t, g.tunnel, host)
		if !ok {
			continue
		}
		b.addWire(g.links, Plug{t.Name, g.device}, reconcile.FallsWithAny, nil, k, sw)
	}
}

// reach adds what joins an end that is here with one that is on another host. The other direction is shaped there.
func (b *builder) reach(l *slice.Link, near, far slice.End) {
	p, q := b.port(near), b.port(far)
	of := []*slice.Link{l}
	t := Tunnel{Name: q, Owner: far.String(), MTU: b.nodes[far.Node].Interface(far.Interface).MTU}
	k, ok := b.addTunnel(of, t, l.Tunnel, b.span.Host(far))
	if !ok {
		return
	}
	j := NewJoin(p, q)
	b.addWire(of, j, reconcile.FallsWithAll, []string{near.Node}, b.key(KindPort, p), k)
	w := wiring.Link{A: b.end(near), B: wiring.End{Port: q, MTU: t.MTU}, Program: b.needsSingle(near.Node)}
	b.addQueue(j, w, b.key(KindPort, p), k)
}

// addTunnel adds a proxy port, or notes why there can be none.
func (b *builder) addTunnel(of []*slice.Link, t Tunnel, by slice.Tunnel, host string) (k reconcile.Key, ok bool) {
	k = b.key(KindPort, t.Name)
	t.Slice, t.Kind, t.Key, t.DSCP = b.Spec.ID, by.Kind, by.Key(b.Spec.ID), by.DSCP
	t.CountsMet = b.hasPrograms()
	err := b.address(&t, host)
	if err != nil {
		for _, l := range of {
			b.cut[linkName{b.Spec.ID, l.Name}] = fmt.Errorf("link %s to host %s: %w", l.Name, host, err)
		}
		return k, false
	}
	t.Digest = Digest(t)
	b.add(reconcile.Resource{
		Key: k, Digest: t.Digest, Amend: true, Needs: []reconcile.Key{HostNetKey, b.area},
		Falls: reconcile.FallsWithAny,
	}, t)
	return k, true
}

// hasPrograms reports whether a node of the slice, on whatever host, has a packet program: then frames may go round.
func (b *builder) hasPrograms() bool {
	return slices.ContainsFunc(b.Spec.Nodes, func(n slice.Node) bool { return n.Kind == slice.Program })
}

// address fills in where a tunnel begins and ends.
func (b *builder) address(t *Tunnel, host string) error {
	there, known := b.Peers[host]
	switch {
	case host == "":
		return errors.New("the node there was not placed on a host yet")
	case t.Key == 0:
		return errors.New("the link has no tunnel; apply the network again")
	case !b.Address.IsValid():
		return errors.New("this host has no address for tunnels")
	case !known:
		return errors.New("no such host has joined the cluster")
	case !there.IsValid():
		return errors.New("the host there has not said where it is yet")
	case there == b.Address:
		return fmt.Errorf("both hosts have the address %s: start one of them with another --advertise", there)
	case there.Is4() != b.Address.Is4():
		return fmt.Errorf("addresses of two families, %s here and %s there", b.Address, there)
	}
	t.Local, t.Peer = b.Address, there
	return nil
}

// tunnelDevice names the proxy port for the rest of a switch or LAN on a host: "s", the slice, "t" and a hash, 14 bytes
// at most. Its twin's name has one more.
func tunnelDevice(id uint16, segment, host string) string {
	return fmt.Sprintf("s%dt%s", id, hash(segment + " " + host)[:8])
}

// Problems says, in words, why links of a slice to other hosts cannot be made.
func (w *Wanted) Problems(s *slice.Slice) (all []string) {
	for i := range s.Links {
		if err := w.cut[linkName{s.ID, s.Links[i].Name}]; err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}
