package mapping_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/mapping"
)

// tiny is what all mappings can be tried of.
var tiny = size{hosts: 4, trunks: 6, nodes: 4, links: 4, parts: []int{0}}

// optimum tries all mappings of a request: each host for each node, each path without a loop for each link. It is
// infinite if none keeps the constraints.
func optimum(s mapping.Substrate, r mapping.Request) float64 {
	m := mapping.Mapping{Hosts: map[string]string{}, Paths: make([][]int, len(r.Links))}
	best := math.Inf(1)
	nodesOnly := r
	nodesOnly.Links = nil
	var place, route func(i int)
	route = func(l int) {
		if m.Cost(&r) >= best {
			return
		}
		if l == len(r.Links) {
			if len(faults(s, r, m)) == 0 {
				best = m.Cost(&r)
			}
			return
		}
		eachPath(s, m.Hosts[r.Links[l].A], m.Hosts[r.Links[l].B], func(path []int) {
			m.Paths[l] = path
			route(l + 1)
		})
		m.Paths[l] = nil
	}
	place = func(n int) {
		if n == len(r.Nodes) {
			if len(faults(s, nodesOnly, m)) == 0 {
				route(0)
			}
			return
		}
		for _, h := range s.Hosts {
			m.Hosts[r.Nodes[n].Name] = h.Name
			place(n + 1)
		}
	}
	place(0)
	return best
}

// eachPath calls use with each way from a place to another that meets no place twice.
func eachPath(s mapping.Substrate, from, to string, use func(path []int)) {
	var follow func(at string, beenAt map[string]bool, path []int)
	follow = func(at string, beenAt map[string]bool, path []int) {
		if at == to {
			use(append([]int(nil), path...))
			return
		}
		beenAt[at] = true
		for i, t := range s.Trunks {
			next := t.A
			if at == t.A {
				next = t.B
			}
			if (at == t.A || at == t.B) && !beenAt[next] {
				follow(next, beenAt, append(path, i))
			}
		}
		delete(beenAt, at)
	}
	follow(from, map[string]bool{}, nil)
}

// awake is the least cost of all mappings of a request without links, where each host that is woken costs so much.
func awake(s mapping.Substrate, r mapping.Request, most int, now mapping.Mapping) (least int) {
	m := mapping.Mapping{Hosts: map[string]string{}, Paths: make([][]int, len(r.Links))}
	least = math.MaxInt
	var place func(n int)
	place = func(n int) {
		if n == len(r.Nodes) {
			if len(faults(s, r, m)) == 0 && m.Moves(&now) <= most {
				least = min(least, len(m.Woken(&s)))
			}
			return
		}
		for _, h := range s.Hosts {
			m.Hosts[r.Nodes[n].Name] = h.Name
			place(n + 1)
		}
	}
	place(0)
	return least
}

// TestFewHostsAreWokenAndFewNodesMove compares with all mappings, of requests without links: of those that are
// possible, few are missed, and few wake more hosts than they have to.
func TestFewHostsAreWokenAndFewNodesMove(t *testing.T) {
	possible, missed, worse := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, tiny)
		r.Links = nil
		for i := range s.Hosts {
			s.Hosts[i].Used = nil
			s.Hosts[i].Asleep = rapid.Bool().Draw(t, "asleep")
		}
		o := quick
		o.Wake = 1
		now, err := mapping.Map(s, r, o)
		if err != nil {
			return
		}
		gone := &s.Hosts[rapid.IntRange(0, len(s.Hosts)-1).Draw(t, "gone")]
		gone.Closed = "is lost"
		left := mapping.Mapping{Hosts: map[string]string{}} // nodes that can stay
		for n, h := range now.Hosts {
			if h != gone.Name {
				left.Hosts[n] = h
			}
		}
		o.Now, o.Moves = &now, rapid.IntRange(1, 2).Draw(t, "moves")
		least := awake(s, r, o.Moves, left)
		m, err := mapping.Map(s, r, o)
		switch {
		case least == math.MaxInt:
			if err == nil {
				t.Fatalf("mapped, which is impossible: %+v\n%+v\n%+v", s, r, m)
			}
			return
		case err != nil:
			missed++
		case m.Moves(&left) > o.Moves:
			t.Fatalf("%d nodes moved, of %d that may: %+v", m.Moves(&left), o.Moves, m)
		case len(m.Woken(&s)) > least:
			worse++
		}
		possible++
	})
	t.Logf("of %d possible requests %d were refused, and %d woke more hosts than they had to", possible, missed,
		worse)
	if possible == 0 {
		t.Fatal("no request was possible")
	}
	if missed+worse > 1+possible/50 {
		t.Error("more than 2 % were refused, or woke more hosts than they had to")
	}
}

func TestWhatIsProvedImpossibleIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, tiny)
		_, err := mapping.Map(s, r, quick)
		var impossible *mapping.Impossible
		if errors.As(err, &impossible) && impossible.Proved {
			if cost := optimum(s, r); !math.IsInf(cost, 1) {
				t.Fatalf("%v, but there is a mapping that costs %v", err, cost)
			}
		}
	})
}

// TestSmallRequestsAreMappedAsWellAsCanBe counts how often the search misses what trying everything finds.
func TestSmallRequestsAreMappedAsWellAsCanBe(t *testing.T) {
	possible, missed, worse, cost, least := 0, 0, 0, 0.0, 0.0
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, tiny)
		for i := range s.Trunks { // so that cost is what the search goes by
			s.Trunks[i].Used = 0
		}
		for i := range s.Hosts {
			s.Hosts[i].Used = nil
		}
		best := optimum(s, r)
		m, err := mapping.Map(s, r, quick)
		if math.IsInf(best, 1) {
			if err == nil {
				t.Fatalf("mapped, which is impossible: %+v\n%+v\n%+v", s, r, m)
			}
			return
		}
		possible++
		if err != nil {
			missed++
			return
		}
		cost, least = cost+m.Cost(&r), least+best
		if m.Cost(&r) > best+1e-6 {
			worse++
		}
	})
	t.Logf("of %d possible requests %d were refused, and %d mapped at more than the least cost: "+
		"%.4g of %.4g together", possible, missed, worse, cost, least)
	if possible == 0 {
		t.Fatal("no request was possible")
	}
	if missed+worse > 1+possible/100 { // of a few, one is more than a hundredth
		t.Error("more than 1 % were refused, or mapped at more than the least cost")
	}
}
