package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/datapath/mirror/eligible"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// mirrored is a router as it is to be on the fast path, or off it.
type mirrored struct {
	slice uint16
	netns uint64      // inode of its network namespace
	pid   int         // of a process in it
	legs  map[int]int // the substrate's port by the ifindex of the node's interface
	off   bool        // by the topology
}

// routersToMirror lists the routers of which the fast path is to know, by what is wanted and what was seen. It is pure.
func routersToMirror(wishes []plan.Input, seen *sight) map[sliver.ID]mirrored {
	all := make(map[sliver.ID]mirrored)
	for i := range wishes {
		spec := wishes[i].Spec
		for j := range spec.Nodes {
			n := &spec.Nodes[j]
			id := sliver.ID{Slice: spec.ID, Node: n.Name}
			ns, legs := seen.netns[id], seen.legs[id]
			if n.Kind != slice.Router || ns == 0 || len(legs) == 0 {
				continue
			}
			all[id] = mirrored{slice: spec.ID, netns: ns, pid: seen.slivers[id].PID, legs: legs, off: n.FastPath == slice.FastPathOff}
		}
	}
	return all
}

// fastPath keeps the mirror as the host was seen. It is no resource: what goes wrong with it keeps no slice from being
// settled, and its routers forward in their kernels meanwhile. Every pass hands it what it saw; what fails is tried
// again by the next. What one router takes to be gone keeps nobody waiting but who removes it.
type fastPath struct {
	log         *slog.Logger
	differences prometheus.Counter // that the continuous audit found

	mu       sync.Mutex // guards all below; never held while a router goes
	memory   fibMemory
	watcher  *eligible.Watcher
	mirror   mirrorKeeper // nil: there is no substrate, or
	trouble  error        // it could not be opened
	routers  map[sliver.ID]mirrored
	going    map[sliver.ID]departure
	captures map[sliver.ID]int    // that run: who looks wants to see every frame
	refused  map[sliver.ID]error  // that the mirror did not take
	seen     map[sliver.ID]int    // at how many looks in a row a router was in trouble
	lost     map[sliver.ID]int    // how many of a router's interfaces were deleted in it, or moved
	troubles map[sliver.ID]string // that last: a router that is being read is none
	counted  map[sliver.ID]uint32 // numbers under which routers' punts are counted
}

// departure is what a router was, and may still be in the maps.
type departure struct {
	ports map[int]bool
	gone  <-chan struct{} // closed when it is not; nil: nobody knows before the router is set again, or removed
}

func (d departure) isOver() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

func newFastPath(log *slog.Logger) *fastPath {
	return &fastPath{
		log: log, differences: newAuditMetric(), routers: make(map[sliver.ID]mirrored), going: make(map[sliver.ID]departure),
		captures: make(map[sliver.ID]int), refused: make(map[sliver.ID]error), seen: make(map[sliver.ID]int), lost: make(map[sliver.ID]int),
		troubles: make(map[sliver.ID]string), counted: make(map[sliver.ID]uint32),
	}
}

// What the agent needs of packages mirror and fib.
type (
	mirrorKeeper interface {
		Set(name string, r mirror.Router) (gone <-chan struct{}, err error)
		Remove(name string) (gone <-chan struct{})
		Status(name string) (mirror.Status, error)
		Verify(ctx context.Context, name string) ([]mirror.Difference, error)
		Close()
	}
	fibMemory interface {
		Earlier() []int
		DropLeg(port int) error
		Reclaim() error
		Usage() fib.Usage
		Close() error
	}
)

// follow makes the mirror be of these routers. network is nil where there is no substrate.
func (f *fastPath) follow(network DataPath, want map[sliver.ID]mirrored) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if network == nil {
		return
	}
	if f.mirror == nil {
		if f.trouble = f.openLocked(network); f.trouble != nil {
			f.log.Error("open the fast path", "error", f.trouble)
			return
		}
	}
	f.mirrorLocked(want)
	network.Hold(f.heldLocked())
	f.reclaimLocked()
}

// mirrorLocked tells the mirror what is other than it was, and again what it refused, and where it takes an interface
// for lost: one that was moved away and came back between two looks is seen as it was.
func (f *fastPath) mirrorLocked(want map[sliver.ID]mirrored) {
	for id, is := range f.routers {
		if is.netns != want[id].netns {
			f.removeLocked(id)
		}
	}
	for id, r := range want {
		if f.refused[id] != nil || f.lost[id] > 0 || !f.routers[id].equal(r) {
			f.setLocked(id, r)
		}
	}
}

func (f *fastPath) openLocked(s DataPath) error {
	watcher, err := eligible.New(eligible.Config{})
	if err != nil {
		return fmt.Errorf("watch what users do in routers: %w", err)
	}
	memory, err := fib.Open(s.FIB())
	if err != nil {
		return fmt.Errorf("open the fast path's memory: %w", errors.Join(err, watcher.Close()))
	}
	f.watcher, f.memory = watcher, memory
	f.mirror = mirror.New(mirror.Config{
		FIB: memory, Log: f.log, AuditRate: auditRate, OnDifference: f.noteAudit,
		Watch: func(ctx context.Context, ns *os.File, report func(ipv4, ipv6 []string)) error {
			return watcher.Watch(ctx, ns, func(v eligible.Verdict) { report(v.IPv4, v.IPv6) })
		},
	})
	return nil
}

// auditRate is how many routes a second are compared with the kernels, all the time: a thousand routers of a thousand
// routes in less than two minutes, for a few per cent of a CPU.
const auditRate = 10_000

// heldLocked gives the ports that are known, also of routers that are not gone yet: none of them may become another
// behind the mirror's back.
func (f *fastPath) heldLocked() map[int]bool {
	maps.DeleteFunc(f.going, func(_ sliver.ID, d departure) bool { return d.isOver() })
	held := make(map[int]bool)
	for _, d := range f.going {
		maps.Copy(held, d.ports)
	}
	for _, r := range f.routers {
		for _, port := range r.legs {
			held[port] = true
		}
	}
	return held
}

// reclaimLocked takes from the routers of an earlier process what is of no node any more.
func (f *fastPath) reclaimLocked() {
	held := f.heldLocked()
	var errs []error
	for _, port := range f.memory.Earlier() {
		if !held[port] {
			errs = append(errs, f.memory.DropLeg(port))
		}
	}
	if err := errors.Join(append(errs, f.memory.Reclaim())...); err != nil {
		f.log.Warn("take over the fast path of an earlier server", "error", err)
	}
}

// close lets go of the mirror. What the programs know stays, and is theirs to believe as long as the lease holds.
func (f *fastPath) close() error {
	f.mu.Lock()
	keeper, memory, watcher := f.mirror, f.memory, f.watcher
	f.mirror, f.memory, f.watcher = nil, nil, nil
	clear(f.routers)
	clear(f.going)
	clear(f.refused)
	clear(f.counted)
	f.mu.Unlock()
	if keeper == nil {
		return nil
	}
	keeper.Close()
	return errors.Join(watcher.Close(), memory.Close())
}

func (m mirrored) equal(o mirrored) bool {
	return m.netns == o.netns && m.off == o.off && maps.Equal(m.legs, o.legs)
}

// setLocked tells the mirror what a router is now.
func (f *fastPath) setLocked(id sliver.ID, r mirrored) {
	was := f.routers[id]
	f.routers[id] = r // also if it fails: its ports may be legs by then
	gone, err := f.tellLocked(id, r)
	f.departLocked(id, was, gone)
	if errors.Is(err, netns.ErrGone) {
		err = nil // the next look will not find it any more
	}
	delete(f.refused, id)
	if err != nil {
		f.log.Warn("mirror", "router", id.String(), "error", err)
		f.refused[id] = err
	}
}

func (f *fastPath) tellLocked(id sliver.ID, r mirrored) (gone <-chan struct{}, err error) {
	ns, err := r.open()
	if err != nil {
		return nil, err
	}
	gone, err = f.mirror.Set(id.String(), mirror.Router{
		Slice: uint32(r.slice), NetNS: ns, Legs: r.legs, Off: r.off || f.captures[id] > 0,
	})
	return gone, errors.Join(err, ns.Close())
}

// departLocked notes what a router was before, until that is gone. What it was still earlier goes first.
func (f *fastPath) departLocked(id sliver.ID, was mirrored, gone <-chan struct{}) {
	d := departure{ports: make(map[int]bool), gone: gone}
	maps.Copy(d.ports, f.going[id].ports)
	for _, port := range was.legs {
		d.ports[port] = true
	}
	f.going[id] = d
}

// open opens a router's network namespace, if it still is the one that was seen.
func (m mirrored) open() (*os.File, error) {
	ns, err := netns.Open(netns.Path(m.pid))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil || st.Ino != m.netns {
		return nil, errors.Join(fmt.Errorf("open the network namespace of process %d: %w", m.pid, netns.ErrGone), err, ns.Close())
	}
	return ns, nil
}

// remove forgets a router that goes, and waits until nothing of it is left: the sockets of its mirror would keep its
// network namespace, and with it its links.
func (f *fastPath) remove(id sliver.ID) {
	if gone := f.forget(id); gone != nil {
		<-gone
	}
}

// forget begins to do what remove does. gone is nil if there is no mirror.
func (f *fastPath) forget(id sliver.ID) (gone <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return nil
	}
	return f.removeLocked(id)
}

func (f *fastPath) removeLocked(id sliver.ID) (gone <-chan struct{}) {
	gone = f.mirror.Remove(id.String())
	f.departLocked(id, f.routers[id], gone)
	delete(f.routers, id)
	delete(f.refused, id)
	delete(f.counted, id)
	return gone
}

// watched takes a router off the fast path until done is called: whoever captures its frames wants to see all of them.
func (f *fastPath) watched(id sliver.ID) (done func()) {
	f.capture(id, +1)
	return func() { f.capture(id, -1) }
}

func (f *fastPath) capture(id sliver.ID, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.captures[id] += more; f.captures[id] == 0 {
		delete(f.captures, id)
	}
	if r, known := f.routers[id]; known && f.captures[id] == max(0, more) { // the first one, or the last
		f.setLocked(id, r)
	}
}
