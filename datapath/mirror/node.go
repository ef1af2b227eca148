package mirror

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/pergola-net/pergola/datapath/fib"
)

// node is one router: a session with its kernel, begun anew when it fails.
type node struct {
	cfg    Config
	name   string
	log    *slog.Logger
	router Router
	cancel context.CancelFunc
	after  <-chan struct{} // closed when whose ports it may have is out of the maps: it begins then
	done   chan struct{}   // closed when it is out of the maps

	mu      sync.Mutex // guards what is below
	keep    bool       // at the end: what is in the maps stays
	off     bool
	labels  Labels
	out     *fib.Router // that has the labels; nil: there is none
	verdict *verdict    // nil: not examined yet
	session *session    // nil: none
	failure string      // why there is none
	ended   Counters    // of earlier sessions
	counted uint32      // the number under which the programs count its punts; 0: none. Of the node's goroutine
}

// verdict says why a namespace may not be walked. Empty: it may.
type verdict struct{ ipv4, ipv6 []string }

// startNode mirrors a router. It goes on with the counters of before, which is in its place so far, or nil.
func startNode(cfg Config, name string, r Router, after <-chan struct{}, before *node) *node {
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{cfg: cfg, name: name, log: cfg.Log.With("router", name), router: r, cancel: cancel, after: after,
		done: make(chan struct{}), off: r.Off, labels: r.Labels}
	if before != nil {
		n.ended = before.status().Counters
	}
	go n.run(ctx, before)
	return n
}

// is reports whether this is the same router, on or off, and has all its legs.
func (n *node) is(r Router) bool {
	return len(n.status().Lost) == 0 && n.router.Slice == r.Slice && maps.Equal(n.router.Legs, r.Legs) &&
		sameFile(n.router.NetNS, r.NetNS)
}

func sameFile(a, b *os.File) bool {
	x, err1 := a.Stat()
	y, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// stop takes the router out of the maps.
func (n *node) stop() {
	n.cancel()
	<-n.done
}

func (n *node) isGone() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// leave begins to stop, and leaves the maps as they are.
func (n *node) leave() {
	n.mu.Lock()
	n.keep = true
	n.mu.Unlock()
	n.cancel()
}

func (n *node) setOff(off bool) {
	n.mu.Lock()
	n.off = off
	n.wake()
	n.mu.Unlock()
}

// wake lets the session look at what has changed. n.mu is held.
func (n *node) wake() {
	if n.session != nil {
		n.session.wake()
	}
}

// A session that fails is begun anew after a while, which doubles.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

func (n *node) run(ctx context.Context, before *node) {
	defer close(n.done)
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		_ = n.router.NetNS.Close()
	}()
	<-n.after
	if before != nil {
		n.inherit(before.status().Counters)
	}
	var watch sync.WaitGroup
	watch.Go(func() { n.watch(ctx) })
	defer watch.Wait()
	stop, err := n.cfg.Signs.Watch(n.router.NetNS, n.signed)
	if err != nil {
		n.log.Warn("parameters that are not announced are followed by the audit alone", "error", err)
	} else {
		defer stop()
	}
	pause := retryFirst
	for {
		begun := time.Now()
		err := n.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > retryMost {
			pause = retryFirst
		}
		n.failed(err, pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
}

// inherit takes over what was counted before the node, which has ended.
func (n *node) inherit(c Counters) {
	n.mu.Lock()
	n.ended = c
	n.mu.Unlock()
}

func (n *node) failed(err error, pause time.Duration) {
	n.log.Warn("the router forwards in its kernel", "reason", err, "retry", pause)
	n.mu.Lock()
	n.failure = err.Error()
	n.mu.Unlock()
}

// serve holds one session. Afterwards the router is on no fast path, unless it is to be left as it is.
func (n *node) serve(ctx context.Context) error {
	out, err := n.cfg.FIB.NewRouter(n.router.Slice)
	if err != nil {
		return errors.Join(err, n.dropLegs())
	}
	err = n.labelled(out)
	var s *session
	if err == nil {
		s, err = newSession(n, out)
	}
	if err == nil {
		n.begin(s)
		stop := context.AfterFunc(ctx, s.wake)
		err = s.run(ctx)
		stop()
		n.end()
		s.sock.Load().close()
	}
	n.mu.Lock()
	keep := n.keep
	n.mu.Unlock()
	if keep {
		return err
	}
	return errors.Join(err, n.clear(out))
}

// clear takes the router's legs, whosever they were, and lets go of them.
func (n *node) clear(out *fib.Router) error {
	n.mu.Lock()
	n.out = nil
	n.mu.Unlock()
	errs := []error{out.Enable(false, false), n.dropLegs()}
	if n.counted != 0 && n.cfg.Gone != nil {
		n.cfg.Gone(n.name, n.counted)
	}
	n.counted = 0
	return errors.Join(append(errs, out.Close())...)
}

// live is called before the legs become those of this router.
func (n *node) live(out *fib.Router) {
	if n.counted = out.Number(); n.cfg.Live != nil {
		n.cfg.Live(n.name, n.counted)
	}
}

func (n *node) dropLegs() error {
	var errs []error
	for _, port := range n.router.Legs {
		errs = append(errs, n.cfg.FIB.DropLeg(port))
	}
	return errors.Join(errs...)
}

func (n *node) begin(s *session) {
	n.mu.Lock()
	n.session, n.failure = s, ""
	n.mu.Unlock()
}

func (n *node) end() {
	ended := n.ended.Plus(n.session.counters()) // only this goroutine changes these two
	n.mu.Lock()
	n.session, n.ended = nil, ended // together: nobody sees a counter go back
	n.mu.Unlock()
}

// watch keeps the verdict.
func (n *node) watch(ctx context.Context) {
	if n.cfg.Watch == nil {
		n.judge(verdict{})
		return
	}
	pause := retryFirst
	for {
		err := n.cfg.Watch(ctx, n.router.NetNS, func(ipv4, ipv6 []string) { n.judge(verdict{ipv4, ipv6}) })
		if ctx.Err() != nil {
			return
		}
		why := []string{"it is not known whether the fast path may be used"}
		if err != nil {
			why[0] += ": " + err.Error()
		}
		n.judge(verdict{why, why})
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
}

func (n *node) judge(v verdict) {
	n.mu.Lock()
	n.verdict = &v
	n.wake()
	n.mu.Unlock()
}

// reasons say why a family stays in the kernel, apart from the state of the mirror itself.
func (n *node) reasons() (ipv4, ipv6 []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.off:
		why := []string{"switched off by its user"}
		return why, why
	case n.verdict == nil:
		why := []string{"it is being examined whether the fast path may be used"}
		return why, why
	}
	return n.verdict.ipv4, n.verdict.ipv6
}
