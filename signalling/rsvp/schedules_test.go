package rsvp

import (
	"flag"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

var (
	schedules = flag.Uint64("schedules", 50, "random schedules to run")
	firstSeed = flag.Uint64("first", 0, "seed of the first of them")
)

// TestRandomSchedulesEndConsistent has LSPs come and go while messages are lost, doubled and reordered, routers crash,
// and come back at once or later, with the entries that were installed or without, clocks jump, and links go down and
// up. After quiet time, with links down as well, what is there is the same along every path, and when all LSPs are
// removed nothing is left. Half of the LSPs ask for protection, and some routers have bypasses round their links, or
// round the routers behind them. Every third network signs its messages, every second one sends Hellos, most of these
// with the times of graceful restart, half of them summarize refreshes, every fifth one wants TTL 255 between
// neighbours, and every seventh one has too little memory for all. Routers ask for last labels of all kinds.
func TestRandomSchedulesEndConsistent(t *testing.T) {
	var seeds []uint64
	for seed := *firstSeed; seed < *firstSeed+*schedules; seed++ {
		seeds = append(seeds, seed)
	}
	repairs := 0
	for _, seed := range seeds {
		w := randomWorld(t, seed)
		w.storm(60)
		if seed%2 == 1 { // all is up before links fail
			w.mend()
			w.loss, w.doubled = 0, 0
			w.run(settled)
		}
		w.agree()
		w.loss, w.doubled, w.delay = 0, 0, 10*time.Millisecond
		w.run(settled)
		for _, n := range w.routers {
			n.events = nil
			for _, s := range n.lsps {
				if s.repair != nil {
					repairs++
				}
			}
		}
		w.run(4 * testRefresh)
		if what := w.inconsistent(); what != "" {
			t.Fatalf("seed %d: %s", seed, what)
		}
		// Where there is too little memory, an LSP that waited for some may be quicker than one that recovers;
		// and where Hellos have no restart time, a silent neighbour is lost.
		if what := w.gracefully(); what != "" && seed%7 > 0 && seed%8 > 0 {
			t.Fatalf("seed %d: %s", seed, what)
		}
		w.storm(5)
		w.loss = 1 // no teardown arrives
		for i, n := range w.routers {
			for _, k := range sortedKeys(n.wanted) {
				w.removeLSP(i, k)
			}
		}
		w.loss, w.doubled = 0, 0
		w.run(settled)
		for i, n := range w.routers {
			if n.stored+len(n.lsps)+len(n.installed)+len(n.labels.used)+len(n.sessions) > 0 ||
				len(n.sentIDs)+len(n.heardIDs)+len(n.timers)+len(n.adopted)+len(n.nameless) > 0 ||
				len(n.bypasses) > 0 {
				t.Fatalf("seed %d: router %d has state of LSPs that are gone", seed, i)
			}
			for _, l := range n.interfaces {
				if len(l.held) > 0 || l.sums != [priorities]uint64{} {
					t.Fatalf("seed %d: router %d holds bandwidth for nobody: %v", seed, i, l.sums)
				}
			}
		}
	}
	t.Logf("%d LSPs are repaired in the end", repairs)
	if repairs < len(seeds)/10 {
		t.Errorf("%d LSPs of %d schedules are repaired in the end", repairs, len(seeds))
	}
}

// randomWorld is a ring with chords.
func randomWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	n := 3 + int(seed%5)
	var pairs [][2]int
	for i := range n {
		pairs = append(pairs, [2]int{i, (i + 1) % n})
	}
	for i := 2; i+2 < n; i++ {
		if seed>>i&1 != 0 {
			pairs = append(pairs, [2]int{0, i})
		}
	}
	w := newWorld(t, seed, n, 1000, pairs...)
	for i, r := range w.routers {
		r.config.Egress = EgressLabel((int(seed) + i) % 3)
		if seed%7 == 0 {
			r.config.MaxBytes = 3000
		}
		if i%3 == 1 {
			r.config.Interfaces[0].Groups = 1
		}
		for j := range r.config.Interfaces {
			r.config.Interfaces[j].GTSM = seed%5 == 0
		}
		w.start(i)
	}
	if seed%3 == 0 {
		w.sign(message.Key{ID: 5, Algorithm: message.SHA256, Secret: []byte("secret")})
	}
	if seed%2 == 0 {
		w.greet(2 * time.Second)
		if seed%8 > 0 {
			w.last(time.Duration(seed%8)*5*time.Second, testRecovery)
		}
	}
	if seed%4 > 1 {
		w.reduce()
	}
	return w
}

// storm is steps of a few seconds with one random deed in each.
func (w *world) storm(steps int) {
	w.loss, w.doubled, w.delay = 0.2*w.random.Float64(), 0.2*w.random.Float64(), 3*time.Second
	for range steps {
		w.deed()
		w.run(time.Duration(1+w.random.IntN(8)) * time.Second)
		for i, n := range w.routers {
			if what := n.wrong(nil); what != "" && !n.dead {
				w.t.Fatalf("router %d: %s", i, what)
			}
			if n.dead && w.random.IntN(3) == 0 {
				w.revive(i)
			}
		}
	}
	for i, n := range w.routers {
		if n.dead {
			w.revive(i)
		}
	}
}

// deed is something that happens to a random router.
func (w *world) deed() {
	i := w.random.IntN(len(w.routers))
	n := w.routers[i]
	switch dice := w.random.IntN(28); {
	case dice < 8:
		if q := w.randomRequest(i); n.wanted[q.Key].Key != q.Key {
			_ = w.add(i, q) // a refusal is one of the things that happen
		}
	case dice < 12 && len(n.wanted) > 0:
		w.removeLSP(i, w.anyOf(n))
	case dice < 15 && len(n.wanted) > 0:
		w.replace(i, w.anyOf(n))
	case dice == 15:
		w.start(i)
	case dice == 16:
		w.jump(i, n.clock+time.Duration(w.random.Int64N(int64(20*testRefresh)))-10*testRefresh)
	case dice == 17: // both sides, or one, which sees it before the other one, or alone
		l, up := w.links[w.random.IntN(len(w.links))], w.random.IntN(2) == 0
		for _, e := range l[:1+w.random.IntN(2)] {
			w.setLink(e, up)
		}
	case dice == 18:
		w.setLink(w.links[w.random.IntN(len(w.links))][1], w.random.IntN(2) == 0)
	case dice == 19:
		w.crash(i)
		w.resume(i, w.random.IntN(2) == 0)
	case dice > 22:
		if q, ok := w.randomBypass(i); ok && n.wanted[q.Key].Key != q.Key {
			_ = w.add(i, q)
		}
	case dice > 19:
		w.crash(i)
	}
}

// revive has a router that has crashed come back, as a rule with the entries that are installed.
func (w *world) revive(i int) {
	if dice := w.random.IntN(4); dice == 0 {
		w.start(i)
	} else {
		w.resume(i, dice == 1)
	}
}

// agree has both sides of each link see the same: of one in four, that it is down.
func (w *world) agree() {
	for _, l := range w.links {
		up := w.random.IntN(4) > 0
		w.setLink(l[0], up)
		w.setLink(l[1], up)
	}
}

// mend has all links up.
func (w *world) mend() {
	for _, l := range w.links {
		w.setLink(l[0], true)
		w.setLink(l[1], true)
	}
}

func (w *world) anyOf(n *node) Key {
	keys := sortedKeys(n.wanted)
	return keys[w.random.IntN(len(keys))]
}

// randomRequest goes some way around the ring.
func (w *world) randomRequest(from int) Request {
	way, n := []int{from}, len(w.routers)
	turn := 1 + (n-2)*w.random.IntN(2) // or n-1: the other way around
	for range 1 + w.random.IntN(n-1) {
		way = append(way, (way[len(way)-1]+turn)%n)
	}
	q := w.request(uint16(w.random.IntN(1000)), 1, uint64(w.random.IntN(5))*150, way...)
	q.Attribute.Holding = uint8(w.random.IntN(8))
	q.Attribute.Setup = q.Attribute.Holding + uint8(w.random.IntN(8-int(q.Attribute.Holding)))
	q.Attribute.Flags = uint8(w.random.IntN(2)) * (message.SharedStyle | message.LabelRecording)
	q.Record = w.random.IntN(2) == 0
	if w.random.IntN(2) == 0 {
		q.Attribute.Flags |= message.LocalProtection | uint8(w.random.IntN(2))*message.WantNodeBackup
	}
	if w.random.IntN(8) == 0 {
		q.Attribute.Affinities = &message.Affinities{ExcludeAny: 1}
	}
	return q
}

// replace asks for another bandwidth on the same way, make before break.
func (w *world) replace(i int, k Key) {
	q := w.routers[i].wanted[k]
	if q.Attribute.Flags&message.SharedStyle == 0 {
		return
	}
	q.Replaces = k.LSP
	q.Key.LSP += 1 + uint16(w.random.IntN(3))
	q.Bandwidth = uint64(w.random.IntN(5)) * 150
	if w.routers[i].lsps[q.Key] == nil {
		_ = w.add(i, q) // a refusal is one of the things that happen
	}
}

// randomBypass goes round a link of a router, to the router behind it or to one that follows; false: there is no way.
func (w *world) randomBypass(from int) (Request, bool) {
	first := 1 + w.random.IntN(len(w.routers[from].peers))
	round := w.routers[from].peers[first].router
	to := round
	if w.random.IntN(2) == 0 {
		to = w.routers[round].peers[1+w.random.IntN(len(w.routers[round].peers))].router
	}
	if to == from {
		return Request{}, false
	}
	before := map[int]int{from: from}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for index := range len(w.routers[at].peers) {
			next := w.routers[at].peers[index+1].router
			if _, seen := before[next]; seen || next == round && (to != round || at == from) {
				continue
			}
			before[next] = at
			queue = append(queue, next)
		}
	}
	if _, reached := before[to]; !reached {
		return Request{}, false
	}
	way := []int{to}
	for way[0] != from {
		way = append([]int{before[way[0]]}, way...)
	}
	q := w.request(uint16(1000+w.random.IntN(100)), 1, uint64(w.random.IntN(2))*100, way...)
	q.Attribute.Setup, q.Attribute.Holding = 3, 3
	q.Bypass = first
	return q, true
}
