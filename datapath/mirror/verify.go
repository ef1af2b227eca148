package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
)

// Difference between a router's kernel and its mirror.
type Difference struct {
	What   string // a prefix, a neighbour, an interface
	Kernel string // in words
	Mirror string
}

func (d Difference) String() string { return d.What + ": kernel " + d.Kernel + ", mirror " + d.Mirror }

// What changes while it is compared is no difference: it is looked at again.
const (
	secondLook = 50 * time.Millisecond
	looks      = 3
)

// Verify reads the router's kernel again and compares it with what the programs see, route by route. Only what differs each time that it
// is looked at counts.
func (m *Mirror) Verify(ctx context.Context, name string) ([]Difference, error) {
	n, err := m.node(name)
	if err != nil {
		return nil, err
	}
	found, _, err := n.verify(ctx, func(int) {})
	if err != nil {
		return nil, fmt.Errorf("verify router %s: %w", name, err)
	}
	return found, nil
}

// verify also says how many routes it has compared. pace is called for each piece of a dump, with its length.
func (n *node) verify(ctx context.Context, pace func(int)) (found []Difference, routes int, err error) {
	for look := range looks {
		now, count, err := n.compare(ctx, pace)
		if err != nil {
			return nil, 0, err
		}
		routes = count
		if look > 0 {
			now = slices.DeleteFunc(now, func(d Difference) bool { return !slices.Contains(found, d) })
		}
		if found = now; len(found) == 0 || look == looks-1 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(secondLook):
		}
	}
	slices.SortFunc(found, func(a, b Difference) int { return cmp.Compare(a.What, b.What) })
	return found, routes, nil
}

// errNoSession means that there is nothing to compare.
var errNoSession = errors.New("it is not mirrored at present")

// compare is one look. Every entry of the maps is compared with what a fresh view of the kernel, with nobody's history, has to say.
func (n *node) compare(ctx context.Context, pace func(int)) ([]Difference, int, error) {
	n.mu.Lock()
	s := n.session
	if s == nil {
		n.mu.Unlock()
		return nil, 0, errNoSession
	}
	ns, err := duplicate(n.router.NetNS) // which ends with the node
	n.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = ns.Close() }()
	kernel := newMemory()
	s.mu.Lock()
	ports := s.view.rib.ports
	fresh := newView(kernel, ports)
	s.mu.Unlock()
	fresh.links.live = true
	if err := fresh.read(ctx, ns, pace); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := words{view: fresh}
	var found []Difference
	mirror := map[netip.Prefix]fib.Route{}
	for p, r := range s.out.Routes() {
		mirror[p] = r
	}
	for p, want := range kernel.routes {
		if have, ok := mirror[p]; !ok || !want.Same(have) && !s.view.rib.leaves(p) {
			found = append(found, Difference{p.String(), w.route(want, true), w.route(have, ok)})
		}
		delete(mirror, p)
	}
	for p, have := range mirror {
		found = append(found, Difference{p.String(), w.route(fib.Route{}, false), w.route(have, true)})
	}
	found = append(found, s.compareMaps(kernel, w)...)
	found = append(found, s.compareLegs(kernel, w)...)
	return append(found, s.compareNeighbours(kernel, w)...), len(kernel.routes), nil
}

// leaves reports whether the mirror knows that it does not know: frames to the prefix are the kernel's until a dump has told.
func (r *rib) leaves(p netip.Prefix) bool {
	e := r.entries.get(p)
	return e != nil && e.installed == &leave.Route
}

// compareMaps looks up the first address of every prefix as a program would, in the maps themselves.
func (s *session) compareMaps(kernel *memory, w words) []Difference {
	var found []Difference
	lengths := kernel.lengths()
	for p := range kernel.routes {
		addr := p.Addr()
		want := kernel.longest(addr, lengths)
		if have := s.out.Lookup(addr); !want.Same(have) && have.Kind != fib.Other {
			found = append(found, Difference{addr.String(), w.route(want, true), w.route(have, true)})
		}
	}
	return found
}

func (s *session) compareLegs(kernel *memory, w words) []Difference {
	var found []Difference
	for index, port := range s.view.rib.ports {
		want, there := kernel.legs[port]
		l := s.view.links.all[index]
		if !there || !s.view.links.live || l != nil && l.held != 0 {
			continue
		}
		if have, ok := s.view.links.told[port]; !ok || want != have {
			found = append(found, Difference{"interface " + w.link(port), leg(want, true), leg(have, ok)})
		}
	}
	return found
}

func (s *session) compareNeighbours(kernel *memory, w words) []Difference {
	var found []Difference
	for k, want := range kernel.neighbours {
		have, ok := s.out.LookupNeighbour(k.link, k.addr)
		if !ok || have.MAC != want.MAC { // stale or not: the programs themselves change that
			found = append(found, Difference{"neighbour " + k.addr.String() + " dev " + w.link(k.link), mac(want, true), mac(have, ok)})
		}
	}
	for k := range s.view.neighbours.all {
		port := s.view.rib.ports[k.link]
		if _, ok := kernel.neighbours[neighbourKey{port, k.addr}]; ok || port == 0 {
			continue
		}
		if have, ok := s.out.LookupNeighbour(port, k.addr); ok {
			found = append(found, Difference{"neighbour " + k.addr.String() + " dev " + w.link(port), "has none", mac(have, true)})
		}
	}
	return found
}

// read fills a view from scratch.
func (v *view) read(ctx context.Context, ns *os.File, pace func(int)) error {
	sock, err := openSocket(ns, 1<<20)
	if err != nil {
		return err
	}
	defer sock.close()
	v.begin()
	for p := range parts {
		if err := v.readPart(ctx, sock, p, pace); err != nil {
			return fmt.Errorf("read the kernel: %w", err)
		}
	}
	return v.end()
}

func (v *view) readPart(ctx context.Context, sock *socket, p part, pace func(int)) error {
	if err := sock.request(p); err != nil {
		return err
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		size := 0
		err := sock.receive(func(b []byte, _ bool) error {
			size = len(b)
			for len(b) > 0 {
				m, rest, err := nextMessage(b)
				if err != nil {
					return err
				}
				b = rest
				switch m.kind {
				case unix.NLMSG_DONE, unix.NLMSG_ERROR: // what a kernel does not have, it has nothing of
					done = true
				default:
					if err := v.confirm(m); err != nil {
						return err
					}
				}
			}
			return nil
		}, true)
		if err != nil {
			return err
		}
		pace(size)
	}
	return v.sweep(p)
}

// words tell of routes as `ip route` does.
type words struct{ view *view }

func (w words) link(port int) string {
	for index, p := range w.view.rib.ports {
		if l := w.view.links.all[index]; p == port && l != nil {
			return l.name
		}
	}
	return fmt.Sprintf("of port %d", port)
}

func (w words) route(r fib.Route, ok bool) string {
	if !ok || r.Kind == fib.None {
		return "has no route"
	}
	switch r.Kind {
	case fib.Local:
		return "to itself"
	case fib.Reject:
		return "rejects"
	case fib.Unicast:
	default:
		return "decides by more than the destination"
	}
	paths := make([]string, len(r.Paths))
	for i, p := range r.Paths {
		var b strings.Builder
		if p.Gateway.IsValid() {
			b.WriteString("via " + p.Gateway.String() + " ")
		}
		b.WriteString("dev " + w.link(p.Port))
		if len(r.Paths) > 1 {
			fmt.Fprintf(&b, " weight %d", max(p.Weight, 1))
		}
		paths[i] = b.String()
	}
	return strings.Join(paths, " or ")
}

func leg(l fib.Leg, ok bool) string {
	if !ok {
		return "has none"
	}
	return fmt.Sprintf("up=%v mac=%x mtu=%d ipv4=%v ipv6=%v", l.Up, l.MAC, l.MTU, l.IPv4, l.IPv6)
}

func mac(n fib.Neighbour, ok bool) string {
	if !ok {
		return "knows no address"
	}
	return fmt.Sprintf("is at %x", n.MAC)
}
