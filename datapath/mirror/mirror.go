// Package mirror keeps the fast path's copy of each router's kernel tables: one netlink subscription per router sliver,
// whose messages package fib compiles into the maps.
//
// The kernel is the truth. Events are taken over as they come; what the kernel does without a word (routes that go
// with a link or an address) is found by a new dump, and until then the frames concerned are the kernel's. Whenever
// something may be wrong (events lost, a dump interrupted, a message that should not be), the router leaves the fast
// path at once, is read again, and returns: there is no moment in which frames follow a route that the kernel does
// not have.
//
//	socket -> message -> view (links, rib, neighbours, addresses: pure) -> fib.Router
//	            session decides when to dump, and whether the view may be trusted
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror/signs"
)

// Config of a Mirror.
type Config struct {
	FIB *fib.FIB
	Log *slog.Logger // nil: nowhere

	// Watch says why a node's namespace may not be walked, in words, and says it again whenever that changes, until
	// the context ends. Nil: all may.
	Watch func(ctx context.Context, ns *os.File, report func(ipv4, ipv6 []string)) error

	// A node whose kernel changes its routes and neighbours faster than EventRate a second, EventBurst in a row,
	// forwards in its kernel until it is calm again. Zero: 2,000 and 50,000.
	EventRate, EventBurst int

	// AuditRate is how many routes a second the continuous audit compares; zero: none. What it finds it gives
	// to OnDifference, and the node is read again.
	AuditRate    int
	OnDifference func(name string, found []Difference)

	// Live is called with the number under which the programs count a router's punts, before they begin to; Gone
	// when they have ended to, before the number may become another router's. Nil: nobody wants to know.
	Live, Gone func(name string, number uint32)

	// Signs tell at once of parameters that are written. Nil: what the kernel does not announce of them is noticed
	// by the audit.
	Signs *signs.Signs

	buffer int // of sockets; for tests
}

// The lease is renewed ten times before it runs out.
const (
	lease = 10 * time.Second
	renew = time.Second
)

// Router is a router sliver.
type Router struct {
	Slice uint32
	NetNS *os.File // its network namespace; Set takes a copy

	// Legs are the ports' ifindexes by the node's own. They come from the maker of the links: users of the
	// namespace can forge what it says itself of an interface's other end.
	Legs map[int]int

	Off bool // all its frames are its kernel's

	Labels Labels
}

// Labels says which frames of a router get labels, and in which label space the programs look for what becomes of
// these. It is no part of its kernel.
type Labels struct {
	Space uint32                  // 0: none
	Rules bool                    // it has rules, too, by which frames get labels (datapath.LabelRule)
	FTNs  map[netip.Prefix]uint32 // by a prefix of the router's routes: see fib.Router.SetFTN
}

// Mirror mirrors many routers. Its methods may be called concurrently.
type Mirror struct {
	cfg    Config
	ctx    context.Context // until Close
	cancel context.CancelFunc
	group  sync.WaitGroup // of all goroutines that use the FIB, apart from the nodes

	mu      sync.Mutex // guards what follows; never held while a node works
	nodes   map[string]*node
	leaving map[string]*node // removed, and not yet out of the maps
	closed  bool
}

// New makes a mirror of nobody yet, and keeps the lease.
func New(cfg Config) *Mirror {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.EventRate == 0 {
		cfg.EventRate, cfg.EventBurst = 2_000, 50_000
	}
	if cfg.buffer == 0 {
		cfg.buffer = receiveBuffer
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Mirror{cfg: cfg, ctx: ctx, cancel: cancel, nodes: map[string]*node{}, leaving: map[string]*node{}}
	m.group.Go(func() { m.keepLease(ctx) })
	if cfg.AuditRate > 0 {
		m.group.Go(func() { m.audit(ctx) })
	}
	return m
}

// keepLease renews it while this process keeps every leg. Those of an earlier one nobody keeps: until they are taken
// over the earlier process's lease goes on, and ends. Then what is left is dropped: a router that cannot be read
// keeps no other off the fast path.
func (m *Mirror) keepLease(ctx context.Context) {
	tick := time.NewTicker(renew)
	defer tick.Stop()
	alone := false
	for begun := time.Now(); ; {
		if !alone {
			alone = m.takenOver(time.Since(begun) > lease)
		}
		if alone {
			if err := m.cfg.FIB.Renew(lease); err != nil {
				m.cfg.Log.Error("renew the fast path's lease", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// takenOver reports whether an earlier process has left nothing, or nothing any more. What is left late is dropped.
func (m *Mirror) takenOver(late bool) bool {
	left := m.cfg.FIB.Earlier()
	if len(left) > 0 && !late {
		return false
	}
	for _, port := range left {
		m.cfg.Log.Warn("forget a port of an earlier process, which no router has taken over", "port", port)
		if err := m.cfg.FIB.DropLeg(port); err != nil {
			m.cfg.Log.Error("forget a port of an earlier process", "error", err)
			return false
		}
	}
	if err := m.cfg.FIB.Reclaim(); err != nil {
		m.cfg.Log.Error("free what an earlier process left", "error", err)
	}
	return true
}

// Set mirrors a router from now on, or changes what is known of it. It does not wait, neither for the first dump nor
// until what was known of the router before is out of the maps. That is so when gone is closed; until then its ports
// must become no other's.
func (m *Mirror) Set(name string, r Router) (gone <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("mirror %s: %w", name, os.ErrClosed)
	}
	was := m.nodes[name]
	if was != nil && was.is(r) {
		was.setOff(r.Off)
		return was.after, was.setLabels(r.Labels)
	}
	ns, err := duplicate(r.NetNS)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: hold its network namespace: %w", name, err)
	}
	before := was
	if was == nil {
		was = m.leaving[name] // the caller that removed it has its counters
	}
	after := nobody
	if was != nil {
		was.cancel()
		after = was.done
	}
	r.NetNS, r.Legs = ns, maps.Clone(r.Legs)
	m.nodes[name] = startNode(m.cfg, name, r, after, before)
	return after, nil
}

// nobody has to go.
var nobody = func() <-chan struct{} {
	gone := make(chan struct{})
	close(gone)
	return gone
}()

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Remove begins to take a router off the fast path. When gone is closed it is out of the maps, and nothing here holds
// its network namespace. It is no error if it was not there.
func (m *Mirror) Remove(name string) (gone <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.leaving, func(_ string, n *node) bool { return n.isGone() })
	if n := m.nodes[name]; n != nil {
		n.cancel()
		delete(m.nodes, name)
		m.leaving[name] = n // which has waited for those that left before it, when it is gone
	}
	if n := m.leaving[name]; n != nil {
		return n.done
	}
	return nobody
}

// Names of the routers that are mirrored.
func (m *Mirror) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.nodes))
	for name := range m.nodes {
		names = append(names, name)
	}
	return names
}

// ErrUnknown means a name that was not Set.
var ErrUnknown = errors.New("no such router")

func (m *Mirror) node(name string) (*node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("router %s: %w", name, ErrUnknown)
}

// begin is for work that Close must wait for; end ends it.
func (m *Mirror) begin(ctx context.Context) (working context.Context, end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, os.ErrClosed
	}
	m.group.Add(1)
	working, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { cancel(os.ErrClosed) })
	return working, func() {
		stop()
		cancel(nil)
		m.group.Done()
	}, nil
}

// Close stops mirroring. What is in the maps stays in force until the lease ends or another process takes it over.
// Afterwards nothing of the mirror uses the FIB.
func (m *Mirror) Close() {
	m.mu.Lock()
	m.closed = true
	stay, leaving := m.nodes, maps.Clone(m.leaving)
	m.nodes = map[string]*node{}
	m.mu.Unlock()
	m.cancel()
	for _, n := range stay {
		n.leave()
	}
	for _, all := range []map[string]*node{stay, leaving} {
		for _, n := range all {
			n.stop()
		}
	}
	m.group.Wait()
}
