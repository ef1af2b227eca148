package server_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/internal/virtual"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/wire"
)

// world is a network of servers and receivers in virtual time.
type world struct {
	*virtual.Network[[]byte]
	servers   map[netip.AddrPort]*machine
	configure func(c *server.Config) // before a server starts; nil: as it is
}

// processor is a fast path that is given packets.
type processor interface {
	Process(b []byte) (sent []fastpath.Sent, punt []byte)
}

// machine is a server in a world, behind a fast path if it has one.
type machine struct {
	*server.Server
	world *world
	addr  netip.AddrPort
	fast  processor
	// What the fast path did.
	carried, punted int
	taps            func(to netip.AddrPort, packet []byte) // gets what is sent, instead of the network
}

func newWorld(seed uint64) *world {
	return &world{Network: virtual.NewNetwork[[]byte](seed), servers: make(map[netip.AddrPort]*machine)}
}

func serverAddress(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), wire.Port)
}

func hostAddress(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 4000)
}

// start adds a server that joins by the others given.
func (w *world) start(i int, join ...int) *machine {
	a := serverAddress(i)
	m := &machine{world: w, addr: a}
	c := server.Config{Ring: chord.Config{Self: chord.Peer{Key: ident.FromName(a.String()).Key(), Addr: a},
		Nonce: w.Random.Uint64}, Secret: [32]byte{byte(i)}}
	for _, j := range join {
		c.Ring.Join = append(c.Ring.Join, serverAddress(j))
	}
	if w.configure != nil {
		w.configure(&c)
	}
	m.fast, _ = c.FastPath.(processor)
	m.Server = server.New(c, m)
	w.servers[a] = m
	w.Add(a, m)
	return m
}

// startRing starts servers 0 to n-1, and waits until they are one ring.
func (w *world) startRing(n int) {
	for i := range n {
		w.start(i, 0)
	}
	w.settle()
}

// settle waits until the servers are one ring.
func (w *world) settle() {
	if what := w.Until(2*time.Minute, w.broken); what != "" {
		panic(what) // chord's own tests show that it does not happen
	}
}

// broken says what is wrong with the ring.
func (w *world) broken() string {
	var ring []chord.Peer
	for _, m := range w.servers {
		ring = append(ring, m.Ring().Self())
	}
	slices.SortFunc(ring, func(a, b chord.Peer) int { return a.Key.Compare(b.Key) })
	if len(ring) == 1 {
		return ""
	}
	for i, p := range ring {
		next, n := ring[(i+1)%len(ring)], w.servers[p.Addr].Ring()
		if s := n.Successors(); len(s) == 0 || s[0] != next || n.Finger(ident.Exact-1).IsZero() {
			return fmt.Sprintf("the successors of %s are %s", p, s)
		}
		if before := w.servers[next.Addr].Ring().Predecessor(); before != p {
			return fmt.Sprintf("the predecessor of %s is %s", next, before)
		}
	}
	return ""
}

// crash takes a server away.
func (w *world) crash(m *machine) {
	delete(w.servers, m.addr)
	delete(w.Hosts, m.addr)
}

// owner gives the server that is responsible for an identifier.
func (w *world) owner(id ident.ID) *machine {
	for _, m := range w.servers {
		if m.Ring().Owns(id.Key()) {
			return m
		}
	}
	return nil
}

// Handle lets the fast path go first.
func (m *machine) Handle(now time.Time, from netip.AddrPort, b []byte) {
	if m.fast == nil {
		m.Server.Handle(now, from, b)
		return
	}
	sent, punt := m.fast.Process(b)
	for _, s := range sent {
		m.Send(s.To, s.Packet)
	}
	if m.carried += len(sent); punt != nil {
		m.punted++
		m.Server.Handle(now, from, punt)
	}
}

// Send makes a machine the output of its server.
func (m *machine) Send(to netip.AddrPort, packet []byte) {
	if m.taps != nil {
		m.taps(to, packet)
		return
	}
	m.world.Network.Send(m.addr, to, bytes.Clone(packet))
}

// host is a receiver, or somebody who sends. It answers challenges and keeps what it receives.
type host struct {
	world  *world
	addr   netip.AddrPort
	wants  map[wire.Handle]wire.Trigger
	mute   bool // it answers no challenges
	got    []string
	stacks [][]ident.ID // of what it got
	acks   []wire.Acknowledgement
	refuse []wire.Reason
	bytes  int
}

func (w *world) host(i int) *host {
	h := &host{world: w, addr: hostAddress(i), wants: make(map[wire.Handle]wire.Trigger)}
	w.Add(h.addr, h)
	return h
}

func (h *host) Tick(time.Time)           {}
func (h *host) Due() (time.Time, bool)   { return time.Time{}, false }
func (h *host) via(i int, p wire.Packet) { h.world.Send(h.addr, serverAddress(i), p) }

func (h *host) Handle(_ time.Time, from netip.AddrPort, b []byte) {
	h.bytes += len(b)
	p, err := wire.Parse(b)
	if err != nil {
		panic(err)
	}
	switch p.Type() {
	case wire.Delivery:
		h.got = append(h.got, string(p.Payload()))
		h.stacks = append(h.stacks, p.Stack())
	case wire.Challenge:
		c, err := wire.ParseChallenge(p)
		t, wanted := h.wants[c.Handle]
		if err != nil || !wanted || h.mute {
			return
		}
		t.Nonce = c.Nonce
		h.world.Send(h.addr, from, t.Insertion())
	case wire.Ack:
		a, err := wire.ParseAck(p)
		if err != nil {
			panic(err)
		}
		h.acks = append(h.acks, a)
	case wire.Refusal:
		r, err := wire.ParseRefusal(p)
		if err != nil {
			panic(err)
		}
		h.refuse = append(h.refuse, r.Reason)
	default:
		panic(fmt.Sprintf("a host gets a packet of type %d", p.Type()))
	}
}

// insert asks server i for a trigger to the host, or to a stack, and waits for what comes of it.
func (h *host) insert(i int, id ident.ID, handle byte, stack ...ident.ID) {
	t := wire.Trigger{ID: id, Handle: wire.Handle{handle}, Receiver: h.addr, Lifetime: time.Minute, Stack: stack}
	h.wants[t.Handle] = t
	h.via(i, t.Insertion())
	h.world.Run(2 * time.Second)
}

// send sends data by server i and waits until it has arrived.
func (h *host) send(i int, payload string, stack ...ident.ID) {
	h.via(i, wire.New(wire.Data, stack, []byte(payload)))
	h.world.Run(2 * time.Second)
}

// drops gives how many packets all servers have dropped for a reason.
func (w *world) drops(why server.Drop) (sum uint64) {
	for _, m := range w.servers {
		sum += m.Counters().Dropped[why]
	}
	return sum
}
