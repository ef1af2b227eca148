// Package fastpath keeps the mirror of routers' kernels as the host was observed. The mirror is no resource: what goes
// wrong with it keeps no slice from being settled, and its routers forward in their kernels meanwhile. Every pass hands
// over what it observed; what fails is tried again by the next. While a router is being removed, only the caller that
// removes it waits.
package fastpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"sync"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/datapath/mirror/eligible"
	"github.com/pergola-net/pergola/datapath/mirror/signs"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
)

// FastPath feeds the mirror. Its methods may be called from many goroutines.
type FastPath struct {
	log        *slog.Logger
	difference func(count int)

	mu       sync.Mutex // guards all below; never held while a router is being removed
	fib      fibMemory
	signs    *signs.Signs // nil: this kernel has none
	watcher  *eligible.Watcher
	mirror   mirrorKeeper // nil: there is no substrate, or
	trouble  error        // it could not be opened
	routers  map[sliver.ID]Router
	removals map[sliver.ID]removal
	captures map[sliver.ID]int    // that run: all frames of the router have to pass its kernel
	refused  map[sliver.ID]error  // that the mirror did not take
	troubled map[sliver.ID]int    // in how many polls in a row a router was in trouble
	lost     map[sliver.ID]int    // how many of a router's interfaces were deleted in it, or moved
	troubles map[sliver.ID]string // that last: a router that is being read is in none

	counts *counts // guards itself
}

// removal is what a router was, and may still be in the maps.
type removal struct {
	ports map[int]bool
	gone  <-chan struct{} // closed when it is not; nil: not known before the router is set again, or removed
}

func (r removal) isOver() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// What is needed of packages mirror and fib.
type (
	mirrorKeeper interface {
		Set(name string, r mirror.Router) (gone <-chan struct{}, err error)
		Remove(name string) (gone <-chan struct{})
		Status(name string) (mirror.Status, error)
		Unrouted(name string, some []netip.Prefix) ([]netip.Prefix, error)
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

// New gives a fast path that is closed. difference is called with the number of differences between mirror and kernels
// whenever the continuous audit found some.
func New(log *slog.Logger, difference func(count int)) *FastPath {
	return &FastPath{
		log: log, difference: difference,
		routers: make(map[sliver.ID]Router), removals: make(map[sliver.ID]removal),
		captures: make(map[sliver.ID]int),
		refused:  make(map[sliver.ID]error), troubled: make(map[sliver.ID]int), lost: make(map[sliver.ID]int),
		troubles: make(map[sliver.ID]string), counts: newCounts(log),
	}
}

// Sync makes the mirror be of these routers, and opens it first where it is closed. path is nil where there is no
// substrate.
func (f *FastPath) Sync(path machine.DataPath, want map[sliver.ID]Router) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if path == nil {
		return
	}
	if f.mirror == nil {
		if f.trouble = f.openLocked(path); f.trouble != nil {
			f.log.Error("open the fast path", "error", f.trouble)
			return
		}
	}
	f.counts.keep(want)
	f.mirrorLocked(want)
	path.Hold(f.heldLocked())
	f.reclaimLocked()
}

// mirrorLocked tells the mirror what is other than it was. It repeats what the mirror refused, and what has a lost
// interface: one that was moved away and came back between two passes is observed as it was.
func (f *FastPath) mirrorLocked(want map[sliver.ID]Router) {
	for id, is := range f.routers {
		if is.NetNS != want[id].NetNS {
			f.removeLocked(id)
		}
	}
	for id, r := range want {
		if f.refused[id] != nil || f.lost[id] > 0 || !f.routers[id].equal(r) {
			f.setLocked(id, r)
		}
	}
}

func (f *FastPath) openLocked(path machine.DataPath) error {
	heard, err := signs.Open()
	if err != nil {
		f.log.Warn("what the kernel does not announce of routers is noticed up to a second late, or a minute",
			"error", err)
	}
	watcher, err := eligible.New(eligible.Config{Signs: heard})
	if err != nil {
		return fmt.Errorf("watch what users do in routers: %w", errors.Join(err, heard.Close()))
	}
	memory, err := fib.Open(path.FIB())
	if err != nil {
		return fmt.Errorf("open the fast path's memory: %w", errors.Join(err, watcher.Close(), heard.Close()))
	}
	f.signs, f.watcher, f.fib = heard, watcher, memory
	f.counts.open(path)
	f.mirror = mirror.New(mirror.Config{
		FIB: memory, Log: f.log, AuditRate: auditRate, Live: f.counts.live, Gone: f.counts.gone,
		Signs: heard,
		// The mirror logs them.
		OnDifference: func(_ string, found []mirror.Difference) { f.difference(len(found)) },
		Watch: func(ctx context.Context, ns *os.File, report func(ipv4, ipv6 []string)) error {
			return watcher.Watch(ctx, ns, func(v eligible.Verdict) { report(v.IPv4, v.IPv6) })
		},
	})
	return nil
}

// auditRate is how many routes a second are compared with the kernels, all the time: a thousand routers of a thousand
// routes in less than two minutes, for a few per cent of a CPU.
const auditRate = 10_000

// heldLocked gives the ports that the mirror knows, also those of routers that are being removed: none of them may
// become another without the mirror's knowledge.
func (f *FastPath) heldLocked() map[int]bool {
	maps.DeleteFunc(f.removals, func(_ sliver.ID, r removal) bool { return r.isOver() })
	held := make(map[int]bool)
	for _, r := range f.removals {
		maps.Copy(held, r.ports)
	}
	for _, r := range f.routers {
		for _, port := range r.Legs {
			held[port] = true
		}
	}
	return held
}

// reclaimLocked takes from the routers of an earlier process what is of no node any more.
func (f *FastPath) reclaimLocked() {
	held := f.heldLocked()
	var errs []error
	for _, port := range f.fib.Earlier() {
		if !held[port] {
			errs = append(errs, f.fib.DropLeg(port))
		}
	}
	if err := errors.Join(append(errs, f.fib.Reclaim())...); err != nil {
		f.log.Warn("take over the fast path of an earlier server", "error", err)
	}
}

// Close lets go of the mirror. What the programs know stays, and they use it as long as the lease holds.
func (f *FastPath) Close() error {
	f.mu.Lock()
	keeper, memory, watcher, heard := f.mirror, f.fib, f.watcher, f.signs
	f.mirror, f.fib, f.watcher, f.signs = nil, nil, nil, nil
	clear(f.routers)
	clear(f.removals)
	clear(f.refused)
	f.mu.Unlock()
	if keeper == nil {
		return nil
	}
	keeper.Close()
	f.counts.open(nil)
	return errors.Join(watcher.Close(), heard.Close(), memory.Close())
}

// setLocked tells the mirror what a router is now.
func (f *FastPath) setLocked(id sliver.ID, r Router) {
	was := f.routers[id]
	f.counts.adopt(id, r)
	f.routers[id] = r // also if it fails: its ports may be legs by then
	gone, err := f.tellLocked(id, r)
	f.noteRemovalLocked(id, was, gone)
	if errors.Is(err, netns.ErrGone) {
		err = nil // the next pass does not find it any more
	}
	delete(f.refused, id)
	if err != nil {
		f.log.Warn("mirror", "router", id.String(), "error", err)
		f.refused[id] = err
	}
}

func (f *FastPath) tellLocked(id sliver.ID, r Router) (gone <-chan struct{}, err error) {
	ns, err := r.open()
	if err != nil {
		return nil, err
	}
	gone, err = f.mirror.Set(id.String(), mirror.Router{
		Slice: uint32(r.Slice), NetNS: ns, Legs: r.Legs, Off: r.Off || f.captures[id] > 0,
		Labels: r.Labels,
	})
	return gone, errors.Join(err, ns.Close())
}

// noteRemovalLocked notes what a router was before, until that is gone. What it was still earlier goes first.
func (f *FastPath) noteRemovalLocked(id sliver.ID, was Router, gone <-chan struct{}) {
	r := removal{ports: make(map[int]bool), gone: gone}
	maps.Copy(r.ports, f.removals[id].ports)
	for _, port := range was.Legs {
		r.ports[port] = true
	}
	f.removals[id] = r
}

// Remove forgets a router that ends, and waits until nothing of it is left: the sockets of its mirror would keep its
// network namespace, and with it its links.
func (f *FastPath) Remove(id sliver.ID) {
	if gone := f.forget(id); gone != nil {
		<-gone
	}
}

// Forget begins to do what Remove does.
func (f *FastPath) Forget(id sliver.ID) { f.forget(id) }

// forget gives nil if there is no mirror.
func (f *FastPath) forget(id sliver.ID) (gone <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return nil
	}
	return f.removeLocked(id)
}

func (f *FastPath) removeLocked(id sliver.ID) (gone <-chan struct{}) {
	if st, err := f.mirror.Status(id.String()); err == nil {
		f.counts.ended(id, st.Counters)
	}
	gone = f.mirror.Remove(id.String())
	f.noteRemovalLocked(id, f.routers[id], gone)
	delete(f.routers, id)
	delete(f.refused, id)
	return gone
}

// Capture takes a router off the fast path until done is called: a capture is to see all its frames.
func (f *FastPath) Capture(id sliver.ID) (done func()) {
	f.addCapture(id, +1)
	return func() { f.addCapture(id, -1) }
}

func (f *FastPath) addCapture(id sliver.ID, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.captures[id] += more; f.captures[id] == 0 {
		delete(f.captures, id)
	}
	if r, known := f.routers[id]; known && f.captures[id] == max(0, more) { // the first one, or the last
		f.setLocked(id, r)
	}
}
