// Package virtual has time that passes only when a test says so, and a network in that time. All that happens follows
// from a seed.
package virtual

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Network carries packets of a type between addresses: each takes 1 to 50 ms, may get lost, and may overtake others.
type Network[P any] struct {
	Now    time.Time
	Random *rand.Rand
	Loss   float64                            // of all packets; 0 to 1
	Cut    func(from, to netip.AddrPort) bool // packets that do not arrive; nil: none
	Hosts  map[netip.AddrPort]Host[P]

	events events
	count  int
}

// Host is something that has an address.
type Host[P any] interface {
	// Handle takes in a packet.
	Handle(now time.Time, from netip.AddrPort, p P)
	// Tick does what is due.
	Tick(now time.Time)
	// Due gives the time of the next Tick.
	Due() (at time.Time, ok bool)
}

// NewNetwork gives a network without hosts.
func NewNetwork[P any](seed uint64) *Network[P] {
	return &Network[P]{Now: time.Unix(1e9, 0), Random: rand.New(rand.NewPCG(seed, 1)),
		Hosts: make(map[netip.AddrPort]Host[P])}
}

// Add gives a host an address, instead of the host that has it. A host goes by delete(n.Hosts, a).
func (n *Network[P]) Add(a netip.AddrPort, h Host[P]) {
	n.Hosts[a] = h
	n.wake(a, h)
}

// Send puts a packet on its way.
func (n *Network[P]) Send(from, to netip.AddrPort, p P) {
	if n.Random.Float64() < n.Loss || n.Cut != nil && n.Cut(from, to) {
		return
	}
	n.after(time.Duration(1+n.Random.IntN(50))*time.Millisecond, func() {
		if h := n.Hosts[to]; h != nil {
			h.Handle(n.Now, from, p)
			n.wake(to, h)
		}
	})
}

// wake sees to it that a host is told when something is due. An event that comes too early, because the host has
// become busy or idle since, does no harm.
func (n *Network[P]) wake(a netip.AddrPort, h Host[P]) {
	at, ok := h.Due()
	if !ok {
		return
	}
	n.after(max(at.Sub(n.Now), 0), func() {
		if due, ok := h.Due(); n.Hosts[a] == h && ok && !n.Now.Before(due) {
			h.Tick(n.Now)
			n.wake(a, h)
		}
	})
}

func (n *Network[P]) after(d time.Duration, do func()) {
	n.count++
	heap.Push(&n.events, event{at: n.Now.Add(d), number: n.count, do: do})
}

// Run lets time pass.
func (n *Network[P]) Run(d time.Duration) {
	end := n.Now.Add(d)
	for len(n.events) > 0 && !n.events[0].at.After(end) {
		e := heap.Pop(&n.events).(event)
		n.Now = e.at
		e.do()
	}
	n.Now = end
}

// Until lets time pass until nothing is wrong, and returns what still is after the given time.
func (n *Network[P]) Until(limit time.Duration, wrong func() string) string {
	end := n.Now.Add(limit)
	for {
		what := wrong()
		if what == "" || !n.Now.Before(end) {
			return what
		}
		n.Run(500 * time.Millisecond)
	}
}

type event struct {
	at     time.Time
	number int // of events at the same time, the first one comes first
	do     func()
}

// events is a heap (container/heap).
type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].number < e[j].number
}

func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}
