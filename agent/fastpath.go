package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/agent/netns"
	"github.com/pergola-net/pergola/agent/sliver"
	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/slice"
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
func routersToMirror(wishes []wish, seen *sight) map[sliver.ID]mirrored {
	all := make(map[sliver.ID]mirrored)
	for i := range wishes {
		spec := wishes[i].spec
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

// fastPath keeps the mirror as the host was seen. It is no resource: what goes wrong with it keeps no slice from being settled, and
// its routers forward in their kernels meanwhile. Every pass hands it what it saw; what fails is tried again by the next.
type fastPath struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below
	memory   fibMemory
	mirror   mirrorKeeper // nil: there is no substrate, or
	trouble  error        // it could not be opened
	routers  map[sliver.ID]mirrored
	captures map[sliver.ID]int    // that run: who looks wants to see every frame
	refused  map[sliver.ID]error  // that the mirror did not take
	troubles map[sliver.ID]string // as they were last told
}

func newFastPath(log *slog.Logger) *fastPath {
	return &fastPath{
		log: log, routers: make(map[sliver.ID]mirrored), captures: make(map[sliver.ID]int),
		refused: make(map[sliver.ID]error), troubles: make(map[sliver.ID]string),
	}
}

// What the agent needs of packages mirror and fib.
type (
	mirrorKeeper interface {
		Set(name string, r mirrorRouter) error
		Remove(name string)
		Status(name string) mirrorStatus
		Verify(ctx context.Context, name string) ([]mirrorDifference, error)
		Close() error
	}
	fibMemory interface {
		Earlier() []int
		DropLeg(port int) error
		Reclaim() error
		Usage() stubUsage
		Close() error
	}
)

// follow makes the mirror be of these routers. network is nil where there is no substrate.
func (f *fastPath) follow(network *wire.Substrate, want map[sliver.ID]mirrored) {
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

// mirrorLocked tells the mirror what is other than it was, and again what it refused.
func (f *fastPath) mirrorLocked(want map[sliver.ID]mirrored) {
	for id, is := range f.routers {
		if is.netns != want[id].netns {
			f.removeLocked(id)
		}
	}
	for id, r := range want {
		if f.refused[id] != nil || !f.routers[id].equal(r) {
			f.setLocked(id, r)
		}
	}
}

func (f *fastPath) openLocked(s *wire.Substrate) error {
	m, memory, err := openMirror(s, f.log)
	if err != nil {
		return err
	}
	f.mirror, f.memory = m, memory
	return nil
}

// heldLocked gives the ports that are known: none of them may become another behind the mirror's back.
func (f *fastPath) heldLocked() map[int]bool {
	held := make(map[int]bool)
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
	defer f.mu.Unlock()
	if f.mirror == nil {
		return nil
	}
	err := errors.Join(f.mirror.Close(), f.memory.Close())
	f.mirror, f.memory = nil, nil
	clear(f.routers)
	clear(f.refused)
	return err
}

func (m mirrored) equal(o mirrored) bool {
	return m.netns == o.netns && m.off == o.off && maps.Equal(m.legs, o.legs)
}

func (f *fastPath) setLocked(id sliver.ID, r mirrored) {
	f.routers[id] = r // also if it fails: its ports may be legs by then
	ns, err := r.open()
	if err == nil {
		err = f.mirror.Set(id.String(), mirrorRouter{
			Slice: uint32(r.slice), NetNS: ns, Legs: r.legs, Off: r.off || f.captures[id] > 0,
		})
		err = errors.Join(err, ns.Close())
	}
	if errors.Is(err, netns.ErrGone) {
		err = nil // the next look will not find it any more
	}
	delete(f.refused, id)
	if err != nil {
		f.log.Warn("mirror", "router", id.String(), "error", err)
		f.refused[id] = err
	}
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

// remove forgets a router that goes: the sockets of its mirror would keep its network namespace, and with it its links.
func (f *fastPath) remove(id sliver.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeLocked(id)
}

func (f *fastPath) removeLocked(id sliver.ID) {
	if _, known := f.routers[id]; !known {
		return
	}
	f.mirror.Remove(id.String())
	delete(f.routers, id)
	delete(f.refused, id)
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

// troubleLocked words what keeps a router off the fast path against the topology's will, for a person.
func (f *fastPath) troubleLocked(id sliver.ID) string {
	_, known := f.routers[id]
	switch {
	case f.trouble != nil:
		return "the fast path does not work: " + f.trouble.Error()
	case !known:
		return ""
	case f.refused[id] != nil:
		return f.refused[id].Error()
	}
	if err := f.mirror.Status(id.String()).Trouble; err != nil {
		return err.Error()
	}
	return ""
}

// troubleOf words what keeps a router off the fast path; empty: nothing but choice.
func (f *fastPath) troubleOf(id sliver.ID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.troubleLocked(id)
}

// changed reports whether the troubles are others than when it was last asked.
func (f *fastPath) changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := make(map[sliver.ID]string)
	for id := range f.routers {
		if t := f.troubleLocked(id); t != "" {
			now[id] = t
		}
	}
	same := maps.Equal(now, f.troubles)
	f.troubles = now
	return !same
}

// watchFastPath asks for a look at the host when the fast path of some router fails or works again, until ctx ends.
func (a *Agent) watchFastPath(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if a.fast.changed() {
			a.Nudge()
		}
	}
}
