package rsvp

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

const (
	testRefresh = 10 * time.Second
	testTick    = time.Second
	// settled is time for lost teardowns to expire along the whole path, one router after the other.
	settled = 6 * 8 * testRefresh
)

// world is routers joined by links, in virtual time, and the faults that messages meet.
type world struct {
	t        testing.TB
	random   *rand.Rand
	now      time.Duration
	routers  []*node
	links    [][2]end
	flights  flights
	order    int
	loss     float64
	doubled  float64
	delay    time.Duration
	messages int
	sent     func(to end, b []byte)
}

// end is an interface of a router.
type end struct{ router, index int }

// node is a router with its owner: what it was asked for, and what it has said.
type node struct {
	*Router
	config    Config
	clock     time.Duration // added to the world's time
	wanted    map[Key]Request
	peers     map[int]end
	installed map[Key]Entry
	events    []Event
	left      map[int]Bandwidth
	full      bool // no entry can be installed that is not there
	// Of graceful restart: dead takes no input; nameless are entries that were adopted without an LSP, by label.
	dead     bool
	nameless map[message.Label]Entry
}

type flight struct {
	at    time.Duration
	order int
	to    end
	from  netip.Addr
	bytes []byte
	hops  uint8 // by which the packet has lost TTL
}

type flights []flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].order < f[j].order
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(flight)) }
func (f *flights) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

func idOf(router int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(router + 1)}) }

// newWorld has n routers, and a link of a bandwidth for each pair.
func newWorld(t testing.TB, seed uint64, n int, bandwidth uint64, pairs ...[2]int) *world {
	t.Helper()
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), delay: 10 * time.Millisecond}
	configs := make([]Config, n)
	for i := range configs {
		configs[i] = Config{ID: idOf(i), Refresh: testRefresh, Random: w.random.Uint64, FirstLabel: 16,
			LastLabel: 1015}
		w.routers = append(w.routers, &node{wanted: map[Key]Request{}, peers: map[int]end{},
			installed: map[Key]Entry{}, nameless: map[message.Label]Entry{}})
	}
	for i, pair := range pairs {
		var ends [2]end
		for side, router := range pair {
			index := len(configs[router].Interfaces) + 1
			a := netip.AddrFrom4([4]byte{10, byte(i >> 6), byte(i<<2) & 0xff, byte(side + 1)})
			configs[router].Interfaces = append(configs[router].Interfaces,
				Interface{Index: index, Prefix: netip.PrefixFrom(a, 30), Bandwidth: bandwidth})
			ends[side] = end{router, index}
		}
		w.links = append(w.links, ends)
		w.routers[pair[0]].peers[ends[0].index] = ends[1]
		w.routers[pair[1]].peers[ends[1].index] = ends[0]
	}
	for i, c := range configs {
		w.routers[i].config = c
		w.start(i)
	}
	return w
}

// chain is n routers in a row.
func chain(t testing.TB, n int, bandwidth uint64) *world {
	t.Helper()
	var pairs [][2]int
	for i := range n - 1 {
		pairs = append(pairs, [2]int{i, i + 1})
	}
	return newWorld(t, 1, n, bandwidth, pairs...)
}

// sign gives all interfaces a key.
func (w *world) sign(k message.Key) {
	for i, n := range w.routers {
		for j := range n.config.Interfaces {
			n.config.Interfaces[j].Keys = []message.Key{k}
		}
		n.config.Keys = []message.Key{{ID: k.ID + 1, Algorithm: k.Algorithm, Secret: k.Secret}}
		w.start(i)
	}
}

// greet has all routers send Hellos.
func (w *world) greet(interval time.Duration) {
	for i, n := range w.routers {
		n.config.Hello = interval
		w.start(i)
	}
}

// reduce has all routers summarize refreshes.
func (w *world) reduce() {
	for i, n := range w.routers {
		n.config.Reduce = true
		w.start(i)
	}
}

// start makes a router without state; its owner asks it again for what was wanted.
func (w *world) start(i int) {
	n := w.routers[i]
	n.installed, n.nameless = map[Key]Entry{}, map[message.Label]Entry{}
	w.renew(n)
	w.ask(i)
}

// renew makes the value of a router again, without state.
func (w *world) renew(n *node) {
	n.config.Sequence += 1 << 32 // as a clock would
	n.config.Instance++
	r, err := New(n.config)
	if err != nil {
		w.t.Fatal(err)
	}
	n.Router, n.events, n.left, n.dead = r, nil, map[int]Bandwidth{}, false
}

// ask has a router's owner ask for what was wanted.
func (w *world) ask(i int) {
	n := w.routers[i]
	for _, k := range sortedKeys(n.wanted) {
		_ = n.Add(w.at(n), n.wanted[k]) // what is refused now is asked for again by retry
	}
	w.flush(i)
}

func (w *world) at(n *node) time.Duration { return w.now + n.clock }

// address is that of router b on its link with a.
func (w *world) address(a, b int) netip.Addr {
	for _, l := range w.links {
		for side := range l {
			if l[side].router == a && l[1-side].router == b {
				return w.prefix(l[1-side]).Addr()
			}
		}
	}
	w.t.Fatalf("no link of %d and %d", a, b)
	return netip.Addr{}
}

func (w *world) prefix(e end) netip.Prefix {
	return w.routers[e.router].config.Interfaces[e.index-1].Prefix
}

// request is an LSP along routers, by strict steps.
func (w *world) request(tunnel, number uint16, bandwidth uint64, way ...int) Request {
	from, to := way[0], way[len(way)-1]
	q := Request{Key: Key{Session: message.Session{End: idOf(to), Tunnel: tunnel, Extended: idOf(from)},
		Sender: idOf(from), LSP: number}, Bandwidth: bandwidth, Record: true,
		Attribute: message.SessionAttribute{Setup: 4, Holding: 4, Name: fmt.Sprintf("t%d", tunnel)}}
	for i := range len(way) - 1 {
		a := w.address(way[i], way[i+1])
		q.Route = append(q.Route, message.Step{Prefix: netip.PrefixFrom(a, a.BitLen())})
	}
	return q
}

func (w *world) add(router int, q Request) error {
	w.routers[router].wanted[q.Key] = q
	if w.routers[router].dead {
		return nil
	}
	err := w.routers[router].Add(w.at(w.routers[router]), q)
	w.flush(router)
	return err
}

func (w *world) removeLSP(router int, k Key) {
	delete(w.routers[router].wanted, k)
	if w.routers[router].dead {
		return
	}
	_ = w.routers[router].Remove(w.at(w.routers[router]), k) // refused before, it is not there
	w.flush(router)
}

// flush does what a router wants to be done.
func (w *world) flush(i int) {
	n := w.routers[i]
	for changes := n.Labels(); len(changes) > 0; changes = n.Labels() {
		for _, c := range changes {
			_, there := n.installed[c.Entry.Key]
			switch {
			case n.full && !c.Remove && !there:
				n.Uninstalled(w.at(n), c.Entry, NoLabel, "it is full")
			case n.full && c.Remove && !there: // it was refused
			case !n.change(c):
				w.t.Fatalf("router %d removes what is not installed: %+v", i, c.Entry)
			}
		}
	}
	out := n.Take()
	for _, e := range out.Events {
		if e.Kind == Replaced {
			delete(n.wanted, e.Key)
		}
	}
	n.events = append(n.events, out.Events...)
	for _, b := range out.Bandwidth {
		if n.left[b.Interface] == b {
			w.t.Fatalf("router %d tells of interface %d what it has told", i, b.Interface)
		}
		n.left[b.Interface] = b
	}
	for _, s := range out.Send {
		if s.Through != (Key{}) || s.Interface == 0 {
			w.sendFar(i, s)
			continue
		}
		to, ok := n.peers[s.Interface]
		if !ok || w.prefix(to).Addr() != s.Next {
			w.t.Fatalf("router %d sends to %s, which is not at its interface %d", i, s.Next, s.Interface)
		}
		if n.config.Interfaces[s.Interface-1].Down {
			w.t.Fatalf("router %d sends by interface %d, which is down", i, s.Interface)
		}
		if w.sent != nil {
			w.sent(to, s.Message)
		}
		w.launch(to, s, 0)
	}
}

// launch has a message arrive later: never, once or twice.
func (w *world) launch(to end, s Send, hops uint8) {
	copies := 1
	if w.random.Float64() < w.doubled {
		copies = 2
	}
	for range copies {
		if w.random.Float64() < w.loss {
			continue
		}
		w.order++
		heap.Push(&w.flights, flight{w.now + 1 + time.Duration(w.random.Int64N(int64(w.delay))), w.order, to,
			s.Source, s.Message, hops})
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for until := w.now + d; w.now < until; {
		next := w.now - w.now%testTick + testTick
		for w.step(next) {
		}
		w.now = next
		for i, n := range w.routers {
			if !n.dead {
				w.retry(n)
				w.flush(i)
			}
		}
	}
}

// step lets the next message arrive, or the next timer end; false: there is none until then. A router is asked for
// nothing before the time that it has named.
func (w *world) step(until time.Duration) bool {
	first, at := -1, until
	for i, n := range w.routers {
		if next, ok := n.Next(); ok && !n.dead && next-n.clock < at {
			first, at = i, next-n.clock
		}
	}
	if len(w.flights) > 0 && w.flights[0].at <= at {
		f := heap.Pop(&w.flights).(flight)
		w.now = max(w.now, f.at)
		w.messages++
		n := w.routers[f.to.router]
		if n.dead {
			return true
		}
		p := arrived(f.to.index, f.from, f.bytes)
		p.Dest = w.prefix(f.to).Addr() // as that of what goes from neighbour to neighbour
		p.TTL -= f.hops
		n.Receive(w.at(n), p)
		w.flush(f.to.router)
		return true
	}
	if first < 0 {
		return false
	}
	w.now = max(w.now, at)
	n := w.routers[first]
	n.Tick(w.at(n))
	if next, ok := n.Next(); ok && next <= w.at(n) {
		w.t.Fatalf("router %d is due at %s, after a tick at %s", first, next, w.at(n))
	}
	w.flush(first)
	return true
}

// arrived is a message that comes straight from a neighbour, by the TTL that it says it was sent with.
func arrived(index int, from netip.Addr, b []byte) Packet {
	p := Packet{Interface: index, Source: from, Message: b}
	if len(b) > 4 {
		p.TTL = b[4]
	}
	return p
}

// setLink has a router see that its side of a link is up or down.
func (w *world) setLink(e end, up bool) {
	n := w.routers[e.router]
	n.config.Interfaces[e.index-1].Down = !up
	if n.dead {
		return
	}
	n.SetLink(w.at(n), e.index, up)
	w.flush(e.router)
}

// jump sets a router's clock, and has the router see it.
func (w *world) jump(i int, clock time.Duration) {
	n := w.routers[i]
	n.clock = clock
	if n.dead {
		return
	}
	n.Tick(w.at(n))
	w.flush(i)
}

// retry asks again for what was refused at once.
func (w *world) retry(n *node) {
	for _, k := range sortedKeys(n.wanted) {
		if n.lsps[k] == nil {
			q := n.wanted[k]
			if n.lsps[q.replaced()] == nil {
				q.Replaces = 0
			}
			if n.Add(w.at(n), q) != nil {
				n.events = append(n.events, Event{Kind: Failed, Key: k})
			}
		}
	}
}
