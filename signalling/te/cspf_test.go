package te_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/te"
)

func (w world) best(q te.Request) (best score, ok bool) {
	w.every(q, func(_ []way, s score) {
		if !ok || s.better(best) {
			best, ok = s, true
		}
	})
	return best, ok
}

// check wants a path that the oracle knows, and with the score that it gives.
func (w world) check(t *rapid.T, q te.Request, p te.Path) score {
	var found *score
	w.every(q, func(path []way, s score) {
		if slices.EqualFunc(path, p.Hops, func(x way, h te.Hop) bool {
			return x.out.addr == h.Local && x.in.addr == h.Remote && routerID(x.out.router) == h.From &&
				routerID(x.in.router) == h.To
		}) {
			found = &s
		}
	})
	got := score{p.Cost, len(p.Hops), p.Unreserved}
	if found == nil || got != *found {
		t.Fatalf("the path %v with %+v: one by one it is %+v", p, got, found)
	}
	return got
}

func TestPathIsTheBestOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		q := w.drawRequest(t)
		d := w.database()
		p, err := d.Path(q)
		best, ok := w.best(q)
		var no *te.NoPath
		switch {
		case err != nil && !errors.As(err, &no):
			t.Fatal(err)
		case ok != (err == nil):
			t.Fatalf("a path is there: %t; found: %v", ok, err)
		case ok:
			if got := w.check(t, q, p); got != best {
				t.Fatalf("found %+v, the best is %+v", got, best)
			}
			again, err := d.Path(q)
			if err != nil || !reflect.DeepEqual(again, p) {
				t.Fatalf("another path the second time: %v, %v, %v", p, again, err)
			}
		}
	})
}

// What the path holds counts as unreserved for the LSP that takes its place: with just so much, it can stay.
func TestPathSharesWhatTheOldOneHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		q := w.drawRequest(t)
		d := w.database()
		old, err := d.Path(te.Request{From: q.From, To: q.To, Setup: q.Setup, IGP: q.IGP})
		if err != nil {
			t.Skip("no old path")
		}
		q.Replaces = &te.Held{Path: old, Bandwidth: rapid.Uint64Range(0, 3).Draw(t, "held"),
			Holding: uint8(rapid.IntRange(0, 7).Draw(t, "holding"))}
		p, err := d.Path(q)
		best, ok := w.best(q)
		if ok != (err == nil) {
			t.Fatalf("a path is there: %t; found: %v", ok, err)
		}
		if ok && w.check(t, q, p) != best {
			t.Fatalf("found %v, the best is %+v", p, best)
		}
	})
}

func TestPathsAreTheBestInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		q := w.drawRequest(t)
		k := rapid.IntRange(1, 6).Draw(t, "k")
		var all []score
		w.every(q, func(_ []way, s score) { all = append(all, s) })
		slices.SortFunc(all, func(a, b score) int {
			if a.better(b) {
				return -1
			}
			return 1
		})
		got, err := w.database().Paths(q, k)
		if (len(all) == 0) != (err != nil) || len(got) != min(k, len(all)) {
			t.Fatalf("%d paths of %d, %d asked for: %v", len(got), len(all), k, err)
		}
		for i, p := range got {
			if w.check(t, q, p) != all[i] {
				t.Fatalf("path %d is %v, want %+v", i, p, all[i])
			}
			for _, other := range got[:i] {
				if reflect.DeepEqual(p.Route(), other.Route()) {
					t.Fatalf("twice: %v", p)
				}
			}
		}
	})
}

func TestBypassAvoidsWhatItProtects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		q := w.drawRequest(t)
		d := w.database()
		p, err := d.Path(te.Request{From: q.From, To: q.To})
		if err != nil {
			t.Skip("no path to protect")
		}
		hop := rapid.IntRange(0, len(p.Hops)-1).Draw(t, "hop")
		node := rapid.Bool().Draw(t, "node")
		bypass, err := d.Bypass(p, hop, node, q)
		if node && hop == len(p.Hops)-1 {
			if err == nil {
				t.Fatal("a bypass of the router where the path ends")
			}
			return
		}
		// The oracle is given what RFC 4090 wants, by the numbers of routers.
		h := p.Hops[hop]
		q.From, q.To = w.owner(h.Local), w.owner(h.Remote)
		q.Avoid.Links = append(q.Avoid.Links, h.Local, h.Remote)
		q.Avoid.SRLGs = append(q.Avoid.SRLGs, h.SRLGs...)
		if node {
			q.Avoid.Nodes = append(q.Avoid.Nodes, q.To)
			q.To = w.owner(p.Hops[hop+1].Remote)
		}
		best, ok := w.best(q)
		if ok != (err == nil) {
			t.Fatalf("a bypass is there: %t; found: %v", ok, err)
		}
		if ok && w.check(t, q, bypass) != best {
			t.Fatalf("found %v, the best is %+v", bypass, best)
		}
	})
}

// With steps to go through, a path is one of those that go through them, and no step more than it must.
func TestPathGoesThroughItsSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		q := w.drawRequest(t)
		q.Hops = 0
		q.Via = nil
		loose := w.steps(t)
		for _, s := range loose {
			q.Via = append(q.Via, s.step)
		}
		p, err := w.database().Path(q)
		best, ok := score{cost: math.MaxUint64}, false
		w.every(q, func(path []way, s score) {
			if through(path, loose, q.From) && (!ok || s.better(best)) {
				best, ok = s, true
			}
		})
		if err != nil {
			// The parts are found one after another: one may be in the way of another.
			if ok && len(loose) == 0 {
				t.Fatalf("there is a path: %v", err)
			}
			return
		}
		got := w.check(t, q, p)
		if !ok || best.better(got) && len(loose) == 0 {
			t.Fatalf("found %v; the best is %+v, %t", p, best, ok)
		}
	})
}
