package mapping_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/mapping"
)

// drawResources draws an amount of each kind, in units of which hosts have few. Of two kinds, all nodes want
// something; of the others, one in six.
func drawResources(t *rapid.T, label string, from, to int) (r mapping.Resources) {
	for kind, unit := range [...]float64{mapping.Cores: 1, mapping.Memory: gib,
		mapping.FastPath: 0.5, mapping.Filters: 1000, mapping.Masks: 64,
		mapping.Queues: 100, mapping.Buffer: 1 << 20} {
		if from == 0 && mapping.Resource(kind) > mapping.Memory && rapid.IntRange(0, 5).Draw(t, "wants") > 0 {
			continue
		}
		r[kind] = unit * float64(rapid.IntRange(from, to).Draw(t, fmt.Sprint(label, kind)))
	}
	return r
}

// problem draws a substrate with little room and a request for it.
func problem(t *rapid.T) (mapping.Substrate, mapping.Request) {
	var s mapping.Substrate
	for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
		s.Hosts = append(s.Hosts, mapping.Host{
			Name:     fmt.Sprintf("h%d", i),
			Capacity: drawResources(t, "capacity", 1, 6),
			Rate:     uint64(rapid.SampledFrom([]int{0, 1e9, 2e9}).Draw(t, "rate")),
			MTU:      rapid.SampledFrom([]int{0, 1500, 9000}).Draw(t, "mtu"),
			UsedRate: uint64(rapid.SampledFrom([]int{0, 5e8}).Draw(t, "used rate")),
			Cordoned: rapid.IntRange(0, 9).Draw(t, "cordoned") == 0,
			Draining: rapid.IntRange(0, 9).Draw(t, "draining") == 0,
			Closed:   rapid.SampledFrom([]string{"", "", "", "", "", "", "", "is lost"}).Draw(t, "closed"),
			Features: rapid.SampledFrom([][]string{{"netem"}, {"netem"}, nil}).Draw(t, "features"),
		})
	}
	r := mapping.Request{Strategy: rapid.SampledFrom([]mapping.Strategy{mapping.Spread, mapping.Pack}).Draw(t,
		"strategy")}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := mapping.Node{Name: fmt.Sprintf("n%d", i), Demand: drawResources(t, "demand", 0, 2)}
		if rapid.IntRange(0, 5).Draw(t, "needs") == 0 {
			n.Needs = []string{"netem"}
		}
		for _, h := range s.Hosts {
			if rapid.IntRange(0, 9).Draw(t, "barred") == 0 {
				n.Barred = map[string]string{h.Name: "does not allow it"}
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "pinned") == 0 {
			n.Host = rapid.SampledFrom(s.Hosts).Draw(t, "pin").Name
		}
		r.Nodes = append(r.Nodes, n)
	}
	for range rapid.IntRange(0, 12).Draw(t, "links") {
		ends := rapid.SliceOfNDistinct(rapid.IntRange(0, len(r.Nodes)-1), 1, min(3, len(r.Nodes)),
			rapid.ID[int]).Draw(t, "ends")
		l := mapping.Link{Rate: uint64(rapid.SampledFrom([]int{0, 1e8, 4e8, 9e8}).Draw(t, "link rate"))}
		l.MTU = rapid.SampledFrom([]int{0, 1322, 1322, 9000}).Draw(t, "link mtu")
		l.Reserved = map[string]uint64{}
		for _, e := range ends {
			l.Nodes = append(l.Nodes, r.Nodes[e].Name)
			if l.Rate > 0 && rapid.Bool().Draw(t, "reserves") {
				l.Reserved[r.Nodes[e].Name] = l.Rate / uint64(rapid.IntRange(1, 2).Draw(t, "reserved"))
			}
		}
		r.Links = append(r.Links, l)
	}
	if len(r.Nodes) > 2 && rapid.IntRange(0, 2).Draw(t, "together") == 0 {
		r.Together = [][]string{{r.Nodes[2].Name, r.Nodes[0].Name}}
	}
	return s, r
}

// faults checks a mapping against the definitions, in the plainest way.
func faults(s mapping.Substrate, r mapping.Request, m, now mapping.Mapping) (list []string) {
	used, rate := map[string]mapping.Resources{}, map[string]uint64{}
	byName := map[string]mapping.Host{}
	for _, h := range s.Hosts {
		byName[h.Name], used[h.Name], rate[h.Name] = h, h.Used, h.UsedRate
	}
	for _, n := range r.Nodes {
		h, known := byName[m[n.Name]]
		stays := now[n.Name] == m[n.Name]
		switch {
		case !known:
			list = append(list, n.Name+" has no host")
		case n.Host != "" && n.Host != h.Name:
			list = append(list, n.Name+" is not where it is pinned")
		case h.Draining && (!stays || n.Host != h.Name), (h.Cordoned || h.Closed != "") && !stays:
			list = append(list, n.Name+" is on a closed host")
		case len(n.Needs) > 0 && !slices.Contains(h.Features, n.Needs[0]):
			list = append(list, n.Name+" lacks what it needs")
		case n.Barred[h.Name] != "":
			list = append(list, n.Name+" is on a host that does not allow it")
		}
		used[h.Name] = used[h.Name].Plus(n.Demand)
		rate[h.Name] += n.Rate
	}
	for _, unit := range r.Together {
		for _, n := range unit {
			if m[n] != m[unit[0]] {
				list = append(list, n+" is not where "+unit[0]+" is")
			}
		}
	}
	for _, l := range r.Links {
		on := map[string]uint64{}
		for _, n := range l.Nodes {
			on[m[n]] += l.Reserved[n]
		}
		if len(on) > 1 {
			for h, reserved := range on {
				rate[h] += max(l.Rate, reserved)
				if has := byName[h].MTU; now == nil && has > 0 && has < l.MTU {
					list = append(list, fmt.Sprintf("%s carries %d bytes, not %d", h, has, l.MTU))
				}
			}
		}
	}
	for _, h := range s.Hosts {
		for kind, n := range used[h.Name] {
			if n > h.Capacity[kind]+1e-6 {
				list = append(list, h.Name+" is overfull")
			}
		}
		if h.Rate > 0 && rate[h.Name] > max(h.Rate, h.UsedRate) {
			list = append(list, h.Name+" carries too much")
		}
	}
	return list
}

func TestMappingsAreSoundStableAndDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := problem(t)
		for i := range r.Nodes {
			r.Nodes[i].Rate = uint64(rapid.SampledFrom([]int{0, 0, 3e8}).Draw(t, "node rate"))
		}
		m, err := mapping.Greedy(s, r, nil)
		if err != nil {
			if !errors.Is(err, mapping.ErrImpossible) {
				t.Fatal(err)
			}
			return
		}
		if list := faults(s, r, m, nil); len(list) > 0 {
			t.Fatalf("%v: %v", list, m)
		}
		again, err := mapping.Greedy(s, r, m)
		if err != nil || len(moved(m, again)) > 0 {
			t.Fatalf("mapped again: %v (%v), was %v", again, err, m)
		}
		random := rand.New(rand.NewPCG(1, 2))
		shuffled, other := mapping.Substrate{Hosts: slices.Clone(s.Hosts)}, r
		other.Nodes = slices.Clone(r.Nodes)
		random.Shuffle(len(shuffled.Hosts), func(i, j int) {
			shuffled.Hosts[i], shuffled.Hosts[j] = shuffled.Hosts[j], shuffled.Hosts[i]
		})
		random.Shuffle(len(other.Nodes), func(i, j int) {
			other.Nodes[i], other.Nodes[j] = other.Nodes[j], other.Nodes[i]
		})
		if got, err := mapping.Greedy(shuffled, other, nil); err != nil || !maps.Equal(got, m) {
			t.Fatalf("in another order: %v (%v), was %v", got, err, m)
		}
	})
}

func TestALostHostMovesItsOwnNodesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := problem(t)
		for i := range s.Hosts {
			s.Hosts[i].Cordoned, s.Hosts[i].Draining, s.Hosts[i].Closed = false, false, ""
		}
		now, err := mapping.Greedy(s, r, nil)
		if err != nil {
			return
		}
		lost := s.Hosts[0].Name
		s.Hosts = s.Hosts[1:]
		m, err := mapping.Greedy(s, r, now)
		if err != nil {
			return
		}
		if list := faults(s, r, m, now); len(list) > 0 {
			t.Fatalf("%v: %v", list, m)
		}
		for _, n := range moved(now, m) {
			if now[n] != lost {
				t.Fatalf("%s moved from %s, but %s was lost: %v, was %v", n, now[n], lost, m, now)
			}
		}
	})
}

// possible tries every mapping.
func possible(s mapping.Substrate, r mapping.Request, m mapping.Mapping, n int) bool {
	if n == len(r.Nodes) {
		return len(faults(s, r, m, nil)) == 0
	}
	for _, h := range s.Hosts {
		m[r.Nodes[n].Name] = h.Name
		if possible(s, r, m, n+1) {
			return true
		}
	}
	delete(m, r.Nodes[n].Name)
	return false
}

// A heuristic may miss what is possible. How often is part of what users meet: on hosts that are nearly full, one
// request in fifty at most.
func TestFewPossibleMappingsAreMissed(t *testing.T) {
	type drawn struct {
		s mapping.Substrate
		r mapping.Request
	}
	problems := rapid.Custom(func(t *rapid.T) drawn {
		s, r := problem(t)
		return drawn{s, r}
	})
	found, missed := 0, 0
	for seed := range 6000 {
		p := problems.Example(seed)
		if len(p.r.Nodes) > 4 || len(p.s.Hosts) > 4 {
			continue
		}
		if _, err := mapping.Greedy(p.s, p.r, nil); err == nil {
			found++
		} else if possible(p.s, p.r, mapping.Mapping{}, 0) {
			missed++
		}
	}
	if t.Logf("found %d, missed %d", found, missed); found < 1000 || missed*50 > found {
		t.Errorf("found %d, missed %d", found, missed)
	}
}

// moved lists the nodes whose host differs between two mappings, sorted; nodes that only one of them has are not in it.
func moved(from, to mapping.Mapping) []string {
	var names []string
	for node, host := range to {
		if old, had := from[node]; had && old != host {
			names = append(names, node)
		}
	}
	slices.Sort(names)
	return names
}
