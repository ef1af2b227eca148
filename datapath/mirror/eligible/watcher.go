package eligible

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/mirror/signs"
)

// Config of a Watcher. Zero values mean the defaults.
type Config struct {
	// Signs tell at once of packet sockets and parameters. Nil: both are noticed by looking.
	Signs *signs.Signs

	Interval time.Duration // between two looks at what announces nothing: packet sockets, old iptables; 1 s
	Rest     time.Duration // at least, between two looks at a namespace that announces changes; 50 ms
	Audit    time.Duration // within which all of a namespace is looked at again, whatever it announced; 1 min
}

// Watcher watches many namespaces.
type Watcher struct {
	config Config
	epoll  int
	bell   int // an eventfd: rings for Poke and Close
	done   chan struct{}

	mu      sync.Mutex // guards what follows; taken before node.mu
	nodes   []*node
	byFD    map[int32]listenerID
	audited int     // where in nodes the audit is
	due     float64 // how many nodes are to be audited
	closed  bool
}

// listenerID is what a file descriptor is to the watcher: a listener of a node.
type listenerID struct {
	node     *node
	listener int
}

// New starts a watcher. Close ends it.
func New(config Config) (*Watcher, error) {
	if config.Interval <= 0 {
		config.Interval = time.Second
	}
	if config.Rest <= 0 {
		config.Rest = 50 * time.Millisecond
	}
	if config.Audit <= 0 {
		config.Audit = time.Minute
	}
	w := &Watcher{config: config, byFD: map[int32]listenerID{}, done: make(chan struct{})}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make epoll: %w", err)
	}
	if w.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, w.bell,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(w.bell)})
	}
	if err != nil {
		_ = unix.Close(w.epoll)
		_ = unix.Close(w.bell)
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	go w.run()
	return w, nil
}

// Close ends the watcher. Every Watch must have returned.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.ring()
	w.closed = true
	w.mu.Unlock()
	<-w.done
	return errors.Join(unix.Close(w.epoll), unix.Close(w.bell))
}

func (w *Watcher) ring() {
	_, _ = unix.Write(w.bell, byteOrder.AppendUint64(nil, 1)) // fails only when it rings already
}

// Watch reports on a namespace, first as soon as everything has been looked at, then whenever the verdict changes,
// until the context ends; it returns the context's error. report is called by Watch's own goroutine. The namespace
// may be closed when Watch has returned.
func (w *Watcher) Watch(ctx context.Context, ns *os.File, report func(Verdict)) error {
	n, err := newNode(ns, w.config.Rest)
	if err != nil {
		return fmt.Errorf("watch %s: %w", ns.Name(), err)
	}
	defer n.close()
	stop, err := w.config.Signs.Watch(ns, n.signed)
	if err != nil {
		return err
	}
	defer stop()
	// Twice: only by the first answer the kernel learns what size of answers can be read, and that socket filters
	// fit.
	buf := newPollBuffer()
	n.poll(buf, oldTablesHere(), false)
	n.poll(buf, oldTablesHere(), false)
	if err := w.add(n); err != nil {
		return fmt.Errorf("watch %s: %w", ns.Name(), err)
	}
	defer w.remove(n)
	return n.run(ctx, w.rearm, report)
}

// Watch is Watcher.Watch for one namespace alone.
func Watch(ctx context.Context, ns *os.File, config Config, report func(Verdict)) error {
	w, err := New(config)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	return w.Watch(ctx, ns, report)
}

func (w *Watcher) add(n *node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	for i, l := range n.listeners {
		if l.socket == nil {
			continue
		}
		fd := int32(l.socket.FD())
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: fd}
		if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), &event); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		w.byFD[fd] = listenerID{node: n, listener: i}
	}
	w.nodes = append(w.nodes, n)
	return nil
}

func (w *Watcher) remove(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == n })
	for _, l := range n.listeners {
		if l.socket != nil {
			delete(w.byFD, int32(l.socket.FD())) // closing it takes it out of the epoll
		}
	}
}

// rearm has epoll report a listener once more.
func (w *Watcher) rearm(fd int) {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, fd, &event) // fails for no socket that was added
}

// run receives notifications and polls until the watcher is closed.
func (w *Watcher) run() {
	defer close(w.done)
	buf := newPollBuffer()
	events := make([]unix.EpollEvent, 64)
	next := time.Now().Add(w.config.Interval)
	sockets := time.Now().Add(w.often(0)) // when packet sockets alone are looked at
	for {
		wait := max(0, time.Until(earlier(next, sockets))).Milliseconds() + 1
		count, err := unix.EpollWait(w.epoll, events, int(wait))
		if err != nil {
			count = 0 // EINTR
		}
		for _, e := range events[:count] {
			if e.Fd == int32(w.bell) {
				_, _ = unix.Read(w.bell, make([]byte, 8))
				next = time.Now()
				continue
			}
			w.notified(e.Fd)
		}
		switch now := time.Now(); {
		case !now.Before(next):
			if w.poll(buf) {
				return
			}
			next = now.Add(w.config.Interval)
			sockets = now.Add(w.often(time.Since(now)))
		case !now.Before(sockets):
			w.pollSockets(buf)
			sockets = now.Add(w.often(time.Since(now)))
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// often is the time between two looks at packet sockets of which no sign tells, given what the last took of this
// goroutine: a hundredth of a core.
func (w *Watcher) often(took time.Duration) time.Duration {
	const least, share = 50 * time.Millisecond, 100
	if w.config.Signs != nil {
		return w.config.Interval
	}
	return min(max(least, share*took), w.config.Interval)
}

// pollSockets looks for packet sockets in all namespaces.
func (w *Watcher) pollSockets(buf []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.mu.Lock()
		changed := n.pollSockets(buf, false)
		n.mu.Unlock()
		if changed != 0 {
			n.mark(changed)
		}
	}
}

func (w *Watcher) notified(fd int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.byFD[fd]
	if !ok {
		return
	}
	e.node.mu.Lock()
	e.node.listeners[e.listener].notified, e.node.stale = true, true
	e.node.mu.Unlock()
	e.node.mark(0)
}

// poll polls all namespaces, and has as many looked at as it takes to have looked at all within Config.Audit. It
// reports whether the watcher is closed.
func (w *Watcher) poll(buf []byte) (closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tables := oldTablesHere()
	w.due += float64(len(w.nodes)) * min(1, w.config.Interval.Seconds()/w.config.Audit.Seconds())
	audits := int(w.due)
	w.due -= float64(audits)
	if w.audited >= len(w.nodes) {
		w.audited = 0
	}
	for i, n := range w.nodes {
		n.poll(buf, tables, w.audited <= i && i < w.audited+audits)
	}
	w.audited += audits
	return w.closed
}

// newPollBuffer makes what node.poll needs.
func newPollBuffer() []byte { return make([]byte, answerSize+maxPackets) }

// oldTablesHere reports for which families the kernel has old tables, by now: they may be modules.
func oldTablesHere() (here [len(xtablesFamilies)]bool) {
	for i, x := range xtablesFamilies {
		_, err := os.Stat("/proc/net/" + x.names)
		here[i] = err == nil
	}
	return here
}
