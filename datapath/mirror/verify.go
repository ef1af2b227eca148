package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
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

// Verify reads the router's kernel again and compares it with what the programs see, route by route. Only what
// differs each time that it is looked at counts.
func (m *Mirror) Verify(ctx context.Context, name string) ([]Difference, error) {
	n, err := m.node(name)
	if err != nil {
		return nil, err
	}
	ctx, end, err := m.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify router %s: %w", name, err)
	}
	defer end()
	found, err := n.verifySoon(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("verify router %s: %w", name, err)
	}
	return found, nil
}

// patience is how long to wait for a router that is being read. A pause may be longer.
const patience = 5 * time.Second

func (n *node) verifySoon(ctx context.Context) ([]Difference, error) {
	for begun := time.Now(); ; {
		found, _, err := n.verify(ctx, func(int) {})
		if !errors.Is(err, errNoSession) || time.Since(begun) > patience {
			return found, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-n.done:
			return nil, err
		case <-time.After(secondLook):
		}
	}
}

// verify also says how many routes it has compared. pace is called for each piece of a dump, with its length.
func (n *node) verify(ctx context.Context, pace func(int)) (found []Difference, routes int, err error) {
	var before map[Difference]bool
	for look := range looks {
		now, count, err := n.compare(ctx, pace)
		if err != nil {
			return nil, 0, err
		}
		routes = count
		if look > 0 {
			now = slices.DeleteFunc(now, func(d Difference) bool { return !before[d] })
		}
		if found = now; len(found) == 0 || look == looks-1 {
			break
		}
		before = make(map[Difference]bool, len(found))
		for _, d := range found {
			before[d] = true
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

// errNoSession means that there is nothing to compare, or nothing that claims to be right.
var errNoSession = errors.New("it is not mirrored at present")

// compare is one look.
func (n *node) compare(ctx context.Context, pace func(int)) ([]Difference, int, error) {
	s, ns, err := n.hold()
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = ns.Close() }()
	kernel := newMemory()
	s.mu.Lock()
	err = s.claims()
	fresh := newView(kernel, s.view.rib.ports)
	s.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	fresh.links.live = true
	if err := fresh.read(ctx, ns, pace); err != nil {
		return nil, 0, err
	}
	c := comparison{mirror: s, kernel: kernel, words: words{view: fresh}}
	if err := errors.Join(c.routes(ctx), c.lookups(ctx)); err != nil {
		return nil, 0, err
	}
	if c.legs(); c.unannounced {
		s.askRefresh(time.Now())
	}
	c.neighbours()
	s.mu.Lock()
	err = s.claims()
	s.mu.Unlock()
	if err != nil { // events were lost meanwhile, or not received at all
		return nil, 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != s { // what was its is given away
		return nil, 0, errNoSession
	}
	return c.found, len(kernel.routes), nil
}

// claims is no error if the session claims to be right. s.mu is held.
func (s *session) claims() error {
	if !s.trusted {
		return fmt.Errorf("%w: %s", errNoSession, s.why)
	}
	return nil
}

// hold gives the session, and the namespace, which is the caller's: the node's ends with the node.
func (n *node) hold() (*session, *os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return nil, nil, errNoSession
	}
	ns, err := duplicate(n.router.NetNS)
	return n.session, ns, err
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
		err := sock.receive(func(b []byte, _ bool) (err error) {
			size = len(b)
			done, err = v.replies(b)
			return err
		}, true)
		if err != nil && !errors.Is(err, errForeign) {
			return err
		}
		pace(size)
	}
	return v.sweep(p)
}

// replies takes over a piece of a dump, and reports whether it is the last.
func (v *view) replies(b []byte) (done bool, err error) {
	for len(b) > 0 {
		m, rest, err := rtnl.NextMessage(b)
		if err != nil {
			return false, err
		}
		b = rest
		switch m.Kind {
		case unix.NLMSG_DONE:
			done = true
		case unix.NLMSG_ERROR:
			done, err = true, refusal(m)
		default:
			err = v.confirm(m)
		}
		if err != nil {
			return false, err
		}
	}
	return done, nil
}

// words writes routes as `ip route` does.
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
