package eligible

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// node is one namespace that is watched. Two goroutines deal with it: that of Watch, which looks, and the watcher's,
// which receives notifications and polls, and marks what is to be looked at.
type node struct {
	ns   *os.File
	rest time.Duration // between two looks, at least
	wake chan struct{} // of capacity 1: something was marked

	verdicts [areaCount]Verdict // Watch's own
	names    map[int]string     // of interfaces, by index; Watch's own

	mu        sync.Mutex // guards what follows; taken after Watcher.mu
	dirty     areas      // to be looked at
	stale     bool       // something has changed since the last look
	failed    areas      // to be looked at again with the next poll
	listeners [len(sources)]listener
	diag      *rtnl.Conn
	tables    [len(xtablesFamilies)]*os.File
	polled    polled
	polls     int
	opened    time.Time // a sign told of a packet socket; zero: that is settled
	written   time.Time // a sign told of a parameter; zero: it has been looked at since
}

// listener is a socket that announces. After a notification, epoll does not report it until it was read: a namespace
// in which something changes all the time costs no more than its looks.
type listener struct {
	socket   *rtnl.Conn // nil: the kernel has no such protocol
	notified bool
}

// polled is what a poll found.
type polled struct {
	packets []byte // descriptions of packet sockets, each behind its length
	failure string
	names   [len(xtablesFamilies)]string // of tables
}

// maxPackets bounds the description of a namespace's packet sockets: some hundreds of them.
const maxPackets = 256 << 10

// tablesEvery is how many polls there are to one that asks whether there are old tables: reading two files costs as
// much as listing packet sockets, and few people still make any.
const tablesEvery = 4

var errCrowded = errors.New("there are too many to watch them")

func newNode(ns *os.File, rest time.Duration) (*node, error) {
	n := &node{ns: ns, rest: rest, wake: make(chan struct{}, 1), dirty: everything}
	err := netns.In(ns, func() error {
		for i, s := range sources {
			var err error
			n.listeners[i].socket, err = s.listen()
			if err != nil && !errors.Is(err, rtnl.ErrAbsent) {
				return err
			}
		}
		var err error
		n.diag, err = rtnl.Open(unix.NETLINK_SOCK_DIAG)
		return err
	})
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *node) close() {
	if n.diag != nil {
		_ = n.diag.Close()
	}
	for _, l := range n.listeners {
		if l.socket != nil {
			_ = l.socket.Close()
		}
	}
	for _, f := range n.tables {
		if f != nil {
			_ = f.Close()
		}
	}
}

// mark has the areas looked at.
func (n *node) mark(a areas) {
	n.mu.Lock()
	n.dirty |= a
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// idle is how many times as long as a look took a namespace rests: looks cost at most a twentieth of a core, whatever
// there is to see.
const idle = 19

// run looks and reports until the context ends.
func (n *node) run(ctx context.Context, rearm func(fd int), report func(Verdict)) error {
	var last Verdict
	first := true
	say := func(v Verdict) {
		if first || !v.equal(last) {
			report(v)
		}
		first, last = false, v
	}
	for {
		rest := max(n.rest, idle*n.look(rearm))
		looked := time.Now()
		verdict := n.verdict()
		var unsettled <-chan time.Time
		if n.isOpening(looked) {
			verdict = orElse(verdict, opening)
			unsettled = time.After(rest)
		}
		say(verdict)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.wake:
		case <-unsettled:
		}
		if wait := max(rest-time.Since(looked), n.unapplied(time.Now())); wait > 0 {
			if why := n.staleWhy(); why != "" {
				say(orElse(n.verdict(), why))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
	}
}

// orElse adds a reason for the families that have none.
func orElse(v Verdict, reason string) Verdict {
	if len(v.IPv4) == 0 {
		v.IPv4 = []string{reason}
	}
	if len(v.IPv6) == 0 {
		v.IPv6 = []string{reason}
	}
	return v
}

// staleWhy words that the node has changed and was not looked at since; empty: it has not.
func (n *node) staleWhy() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.opened.IsZero():
		return opening
	case n.stale:
		return "being examined: changes often"
	}
	return ""
}

func (n *node) verdict() Verdict {
	var all Verdict
	for _, v := range n.verdicts {
		all.IPv4 = append(all.IPv4, v.IPv4...)
		all.IPv6 = append(all.IPv6, v.IPv6...)
	}
	return all
}

// take gives what is to be looked at, and rearms the listeners that reported something. In this order, so that what
// changes during the look is reported.
func (n *node) take(rearm func(fd int)) areas {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.listeners {
		l := &n.listeners[i]
		if l.notified {
			l.notified = false
			n.dirty |= drain(l.socket, sources[i])
			rearm(l.socket.FD())
		}
	}
	if !n.opened.IsZero() {
		buf := pollBuffers.Get().(*[]byte)
		n.dirty |= n.pollSockets(*buf, false)
		pollBuffers.Put(buf)
	}
	dirty := n.dirty
	n.dirty, n.stale, n.written = 0, false, time.Time{}
	return dirty
}

// drain reads what a socket has announced.
func drain(s *rtnl.Conn, about source) areas {
	var changed areas
	var header [unix.NLMSG_HDRLEN]byte
	for range 1000 {
		size, from, err := unix.Recvfrom(s.FD(), header[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return changed
		case errors.Is(err, unix.EINTR), err == nil && !rtnl.FromKernel(from):
		case err != nil || size < len(header): // ENOBUFS: something was lost
			changed |= about.all
		default:
			changed |= about.about(byteOrder.Uint16(header[4:]))
		}
	}
	return changed | about.all
}

// look looks at what is dirty, and says how much of a core it took.
func (n *node) look(rearm func(fd int)) (cost time.Duration) {
	runtime.LockOSThread() // whose time is measured
	defer runtime.UnlockOSThread()
	begun := threadTime()
	if dirty := n.take(rearm); dirty != 0 {
		n.examine(dirty)
	}
	return threadTime() - begun
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every thread has one
	return time.Duration(t.Nano())
}

// examine looks at areas.
func (n *node) examine(dirty areas) {
	var failed, changing areas
	err := netns.In(n.ns, func() error {
		v := newVisit(n)
		defer v.close()
		for a := range areaCount {
			if dirty&a.alone() == 0 {
				continue
			}
			var f, g bool
			if n.verdicts[a], f, g = v.look(a); f {
				failed |= a.alone()
			} else if g {
				changing |= a.alone()
			}
		}
		return nil
	})
	if err != nil {
		for a := range areaCount {
			n.verdicts[a] = Verdict{}
		}
		n.verdicts[0].both("cannot look into the node: %v", err)
		failed = everything
	}
	n.mu.Lock()
	n.failed |= failed
	n.mu.Unlock()
	if changing != 0 {
		n.mark(changing)
	}
}

// name notes the names of interfaces.
func (n *node) name(links []link) {
	n.names = make(map[int]string, len(links))
	for _, l := range links {
		n.names[l.index] = l.name
	}
}

func (n *node) nameOf(device int) string {
	if name, ok := n.names[device]; ok {
		return name
	}
	return fmt.Sprintf("interface %d", device)
}

// poll looks at what announces nothing. tables: which of the lists of xtablesFamilies this kernel has.
func (n *node) poll(buf []byte, tables [len(xtablesFamilies)]bool, audit bool) {
	n.mu.Lock()
	changed := n.failed
	n.failed = 0
	if audit {
		changed = everything
	}
	changed |= n.pollSockets(buf, audit)
	if n.polls++; n.polls%tablesEvery == 0 || n.polled.names != [len(xtablesFamilies)]string{} {
		if n.pollTables(buf, tables) {
			changed |= oldTables.alone()
		}
	}
	n.mu.Unlock()
	if changed != 0 {
		n.mark(changed)
	}
}

// pollSockets looks whether there are other packet sockets. n.mu is held.
func (n *node) pollSockets(buf []byte, audit bool) (changed areas) {
	crowded := n.polled.failure == errCrowded.Error()
	if crowded && !audit || !n.pollPackets(buf) { // a crowd is expensive to list
		return 0
	}
	n.stale = true
	return packets.alone()
}

// pollPackets lists the packet sockets and reports whether they are not what they were. buf is for the list.
func (n *node) pollPackets(buf []byte) (changed bool) {
	list := buf[:0]
	err := n.diag.Ask(listPackets, func(m rtnl.Message) error {
		if len(list)+len(m.Data)+4 > maxPackets {
			return errCrowded
		}
		list = append(byteOrder.AppendUint32(list, uint32(len(m.Data))), m.Data...)
		return nil
	})
	failure := ""
	if err != nil {
		failure, list = err.Error(), list[:0]
		if errors.Is(err, errCrowded) {
			failure = errCrowded.Error()
		}
	}
	if failure == n.polled.failure && bytes.Equal(list, n.polled.packets) {
		return false
	}
	n.polled.failure, n.polled.packets = failure, bytes.Clone(list)
	return true
}

// pollTables reads which old tables there are, and reports whether they must be looked at: always, if there are any.
func (n *node) pollTables(buf []byte, tables [len(xtablesFamilies)]bool) (changed bool) {
	for i, f := range n.tables {
		if f == nil {
			changed = changed || tables[i] // there are now: look, and open it
			continue
		}
		names := buf[:0]
		if size, err := unix.Pread(int(f.Fd()), buf[:answerSize], 0); err == nil {
			names = buf[:size]
		}
		if len(names) > 0 || n.polled.names[i] != "" {
			n.polled.names[i] = string(names)
			changed = true
		}
	}
	return changed
}

// packetSockets gives what the last poll found, a description each.
func (n *node) packetSockets() (list [][]byte, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.polled.failure != "" {
		return nil, errors.New(n.polled.failure)
	}
	for rest := n.polled.packets; len(rest) >= 4; {
		size := byteOrder.Uint32(rest)
		list = append(list, rest[4:4+size])
		rest = rest[4+size:]
	}
	return list, nil
}

// oldTables gives the names of the old tables, from within the namespace.
func (n *node) oldTables() (names [len(xtablesFamilies)][]string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, x := range xtablesFamilies {
		if n.tables[i] == nil {
			if n.tables[i], err = x.openNames(); err != nil {
				return names, fmt.Errorf("list %s tables: %w", x.command, err)
			}
		}
		if n.tables[i] == nil {
			continue
		}
		b := make([]byte, 4096)
		size, err := unix.Pread(int(n.tables[i].Fd()), b, 0)
		if err != nil {
			return names, fmt.Errorf("list %s tables: %w", x.command, err)
		}
		names[i] = strings.Fields(string(b[:size]))
	}
	return names, nil
}
