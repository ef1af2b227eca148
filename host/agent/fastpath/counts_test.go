package fastpath

import (
	"context"
	"log/slog"
	"maps"
	"testing"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
)

// fakePath is a data path that counts punts for one reason.
type fakePath struct {
	machine.DataPath                              // labels, which are not asked for
	numbers          map[int]uint32               // of routers, by port
	counts           map[uint32]map[string]uint64 // by number
}

func (p *fakePath) FIB() fib.Maps                   { return fib.Maps{} }
func (p *fakePath) Hold(map[int]bool)               {}
func (p *fakePath) Router(port int) (uint32, error) { return p.numbers[port], nil }

func (p *fakePath) Punts(_ context.Context, number uint32) (map[string]uint64, error) {
	return maps.Clone(p.counts[number]), nil
}

func (p *fakePath) SetPunts(number uint32, counts map[string]uint64) error {
	p.counts[number] = maps.Clone(counts)
	if p.counts[number] == nil {
		p.counts[number] = map[string]uint64{}
	}
	return nil
}

func TestPuntsNeverGoBack(t *testing.T) {
	path := &fakePath{numbers: map[int]uint32{52: 5}, counts: map[uint32]map[string]uint64{
		5: {"ttl": 205}, 6: {"ttl": 1000}, 9: {"ttl": 77}, // of routers that are gone
	}}
	a := sliver.ID{Slice: 7, Node: "a"}
	c := newCounts(slog.New(slog.DiscardHandler))
	check := func(when string, want uint64) {
		t.Helper()
		if got, err := c.punts(t.Context(), a); err != nil || got["ttl"] != want {
			t.Errorf("%s: %v, %v; want %d", when, got, err, want)
		}
	}
	c.open(path)
	c.adopt(a, thisRouter(52))
	check("an earlier server's", 205)
	path.counts[5]["ttl"] = 207
	c.live("7/a", 9)
	check("in this server's mirror", 207)
	path.counts[9]["ttl"] += 3
	c.gone("7/a", 9)
	check("while it is read again", 210)
	c.live("7/b", 9)
	c.adopt(a, thisRouter(52))
	check("when another router has its number", 210)
	c.live("7/a", 6)
	path.counts[6]["ttl"]++
	check("read again", 211)
	c.open(nil)
	check("without a host network", 211)

	// What another server finds is no less.
	c = newCounts(slog.New(slog.DiscardHandler))
	path.numbers[52] = 6
	c.open(path)
	c.adopt(a, thisRouter(52))
	check("in the next server", 211)
	c.keep(map[sliver.ID]Router{{Slice: 8, Node: "x"}: {}})
	check("when there is no router of the slice", 0)
}

func TestWhatTheMirrorCountsNeverGoesBack(t *testing.T) {
	m := &fakeMirror{routers: map[string]mirror.Router{}, counters: mirror.Counters{Resyncs: 2, Left: [2]int{4, 3}}}
	f := newFastPath()
	f.mirror = m
	a := sliver.ID{Slice: 7, Node: "a"}
	check := func(when string, resyncs, left4, left6 uint64) {
		t.Helper()
		if r := f.Router(a); r.Resyncs != resyncs || r.IPv4.Left != left4 || r.IPv6.Left != left6 {
			t.Errorf("%s: %+v", when, r)
		}
	}
	f.mirrorLocked(map[sliver.ID]Router{a: thisRouter(52)})
	check("it runs", 2, 4, 3)
	f.Forget(a)
	check("it was stopped", 2, 4, 3)
	m.counters = mirror.Counters{Left: [2]int{1, 1}}
	f.mirrorLocked(map[sliver.ID]Router{a: thisRouter(53)})
	check("it runs again", 2, 5, 4)
}
