package datapath

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is the plain version of label switching: a line of routers, each with its tables, and a frame as a stack.
type model struct {
	labels []map[uint32]NHLFE // by router
	ftns   []*NHLFE
}

// modelFrame is what a walk has made of a frame.
type modelFrame struct {
	came, pushed []entry // the outermost last; those that came are below the pushed ones
	popped       int
	ttl          int    // of IP
	hops         int    // routers that it has passed
	why          string // it was dropped, or punted; empty: neither
	punted       bool

	arrived Unwalked // the labels with which it came to the router where it is,
	ttlThen int      // and the TTL of IP
}

// arrive notes what the frame is like when it comes to a router.
func (f *modelFrame) arrive() {
	f.arrived, f.ttlThen = Unwalked{}, f.ttl
	for _, e := range slices.Backward(slices.Concat(f.came, f.pushed)) {
		f.arrived.Labels = append(f.arrived.Labels, StackEntry{e.label, e.class, e.ttl})
	}
}

func (f *modelFrame) top() *entry {
	if n := len(f.pushed); n > 0 {
		return &f.pushed[n-1]
	}
	if n := len(f.came); n > 0 && f.popped < MaxLabels {
		return &f.came[n-1]
	}
	return nil
}

func (f *modelFrame) depth() int { return len(f.came) + len(f.pushed) }

func (f *modelFrame) pop() {
	if n := len(f.pushed); n > 0 {
		f.pushed = f.pushed[:n-1]
		return
	}
	f.came = f.came[:len(f.came)-1]
	f.popped++
}

func (f *modelFrame) push(e entry) bool {
	f.pushed = append(f.pushed, e)
	return len(f.pushed) <= MaxLabels
}

// setTTL writes the TTL of what is on top. A label that came gives place to one that is pushed.
func (f *modelFrame) setTTL(ttl int) bool {
	if f.depth() == 0 {
		f.ttl = ttl
		return true
	}
	e := *f.top()
	if int(e.ttl) == ttl {
		return true
	}
	f.pop()
	e.ttl = uint8(ttl)
	return f.push(e)
}

// walk takes the frame through the routers, until it is at the end of the line.
func (m model) walk(f *modelFrame, v6 bool) {
	for router := range m.labels {
		f.arrive()
		for again := true; again; {
			again, f.why, f.punted = m.visit(router, f, v6)
			if f.why != "" {
				return
			}
		}
		f.hops++
	}
}

func (m model) visit(router int, f *modelFrame, v6 bool) (again bool, why string, punted bool) {
	if f.depth() == 0 {
		if f.ttl <= 1 {
			return false, "ttl", true
		}
		f.ttl--
		n := m.ftns[router]
		if n == nil {
			return false, "", false
		}
		ttl := n.TTL
		if n.Uniform {
			ttl = uint8(f.ttl)
		}
		for _, l := range n.Push {
			e := entry{l.Label, ttl, l.Class}
			if n.KeepClass {
				e.class = 0 // precedence of the test's packets
			}
			if !f.push(e) {
				return false, "label stack", false
			}
		}
		return false, "", false
	}
	t := f.top()
	if t == nil {
		return false, "label stack", false
	}
	e := *t
	n, known := m.labels[router][e.label]
	switch {
	case e.label == 1:
		return false, "router alert", false
	case e.label == explicitNull4 || e.label == explicitNull6:
		n = NHLFE{Pop: true, Uniform: true}
	case !known:
		return false, "unknown label", false
	}
	if !n.Pop && e.ttl <= 1 {
		return false, "label ttl", false
	}
	f.pop()
	if len(n.Push) > 0 {
		for i, l := range n.Push {
			p := entry{l.Label, e.ttl - 1, l.Class}
			if i > 0 && !n.Uniform {
				p.ttl = n.TTL
			}
			if n.KeepClass {
				p.class = e.class
			}
			if !f.push(p) {
				return false, "label stack", false
			}
		}
		return false, "", false
	}
	have := f.ttl
	if f.depth() > 0 {
		below := f.top()
		if below == nil {
			return false, "label stack", false
		}
		have = int(below.ttl)
	} else if e.label == explicitNull4 && v6 || e.label == explicitNull6 && !v6 {
		return false, "label stack", false
	}
	if !n.Pop && !n.Uniform && have <= 1 {
		return false, "label ttl", false
	}
	want := have
	if n.Uniform {
		want = int(e.ttl)
	}
	if !n.Pop {
		want--
	}
	if !f.setTTL(min(want, have)) {
		return false, "label stack", false
	}
	return n.Pop, "", false
}

// bytes is the frame, between these stations.
func (f *modelFrame) bytes(p packet, to, from [6]byte) []byte {
	ip := p.behind(0, to, from)
	if p.v6 {
		ip[21] = uint8(f.ttl)
	} else {
		ip[22] = uint8(f.ttl)
		resum(ip)
	}
	stack := slices.Concat(f.came, f.pushed)
	slices.Reverse(stack)
	return labelled(ip, stack...)
}

func anyNHLFE(r *rand.Rand, l line, router int, push int) NHLFE {
	n := l.ahead(router)
	for range push {
		n.Push = append(n.Push, Label{Label: anyLabel(r), Class: uint8(r.IntN(5))})
	}
	n.Uniform, n.KeepClass, n.TTL = r.IntN(2) == 0, r.IntN(2) == 0, uint8(1+r.IntN(255))
	return n
}

func anyLabel(r *rand.Rand) uint32 {
	if r.IntN(8) == 0 {
		return []uint32{explicitNull4, explicitNull6}[r.IntN(2)]
	}
	return FirstLabel + uint32(r.IntN(4))
}

// Random tables and frames: the programs make of a frame what the model makes of it.
func TestLabelsAsInTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]int{}
	inWorld(t, func(w *world) {
		w.Logf("seed %d", seed)
		l := w.line(5)
		w.space(l)
		for range 60 {
			m := w.anyTables(r, l)
			for range 40 {
				p := packet{v6: r.IntN(2) == 0, ttl: 1 + r.IntN(7)}
				f := &modelFrame{ttl: p.ttl}
				for range r.IntN(6) {
					e := entry{anyLabel(r), uint8(r.IntN(8)), uint8(r.IntN(8))}
					if r.IntN(30) == 0 {
						e.label = uint32(1 + 2*r.IntN(2)) // router alert, implicit null
					}
					f.came = append(f.came, e)
				}
				frame := f.bytes(p, mac(0), macA)
				for i := range f.came { // no node's word for that counts
					if f.came[i].class == ReservedClass {
						f.came[i].class = 0
					}
				}
				m.walk(f, p.v6)
				seen[f.why]++
				w.name = fmt.Sprintf("%x, %+v", frame, f)
				w.compare(l, p, f, w.send(frame, skbuff{}))
			}
		}
	})
	for _, why := range []string{"", "ttl", "unknown label", "label ttl", "label stack", "router alert"} {
		if seen[why] == 0 {
			t.Errorf("no frame ended by %q: %v", why, seen)
		}
	}
}

func (w *world) anyTables(r *rand.Rand, l line) (m model) {
	for router := range l.routers {
		m.labels = append(m.labels, map[uint32]NHLFE{})
		for label := uint32(FirstLabel); label < FirstLabel+4; label++ {
			w.check(w.d.DeleteLabel(uint32(router+1), label))
			n := anyNHLFE(r, l, router, r.IntN(maxPushes+1))
			switch r.IntN(8) {
			case 0:
				continue
			case 1, 2:
				n = NHLFE{Pop: true, Uniform: n.Uniform}
			}
			m.labels[router][label] = n
			w.label(router, label, n)
		}
		w.setNexthop(l.next[router], gateway, l.out[router], l.ahead(router).MAC)
		m.ftns = append(m.ftns, nil)
		if r.IntN(2) == 0 {
			n := anyNHLFE(r, l, router, 1+r.IntN(maxPushes))
			w.ftn(l, router, n)
			m.ftns[router] = &n
		}
	}
	return m
}

// expectedOf gives what the agent is told of a frame that was dropped.
func (w *world) expectedOf(l line, p packet, f *modelFrame, from int) []Unwalked {
	why, told := map[string]Obstacle{"label ttl": TTLExpired, "router alert": RouterAlert}[f.why]
	if !told {
		return nil
	}
	u := f.arrived
	u.Why, u.Space, u.Port, u.From = why, uint32(f.hops+1), l.in[f.hops], from
	p.ttl = f.ttlThen
	u.Packet = p.bytes()[ethernetLen:]
	return []Unwalked{u}
}

func (w *world) compare(l line, p packet, f *modelFrame, have outcome) {
	w.Helper()
	if f.why != "" && !f.punted {
		at := w.a
		if f.hops > 0 {
			at = l.out[f.hops-1]
		}
		counted := l.passed(f.hops, fmt.Sprintf("%s %d", f.why, at))
		defer w.expectTold(w.expectedOf(l, p, f, at)...)
		if len(w.expectedOf(l, p, f, at)) > 0 {
			counted[fmt.Sprintf("agent: router %d", l.routers[f.hops])] = 1
		}
		w.expect(have, verdictShot, have.Frame, counted)
		return
	}
	to, from, counted := mac(2*f.hops), mac(2*f.hops-1), l.passed(f.hops)
	if f.hops == 0 {
		from = macA
	}
	if f.hops == len(l.routers) {
		to = macB
	}
	if f.punted {
		counted[fmt.Sprintf("%s: router %d", f.why, l.routers[f.hops])] = 1
	}
	for port := range have.Counted { // past the device, where the frame's length is what it was
		if len(port) > 6 && port[:6] == "handed" {
			counted[port] = 1
		}
	}
	w.expectLabelled(have, verdictRedirect, f.bytes(p, to, from), counted)
}
