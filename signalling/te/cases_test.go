package te_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/signalling/te"
)

// Cases that random networks seldom have.

// joined is a network of cables between routers, each with a TE metric for both directions.
func joined(routers int, cables ...[3]int) world {
	w := world{routers: routers}
	for i, c := range cables {
		var both cable
		for side := range both {
			both[side] = port{router: c[side], addr: address(byte(2*i + side)),
				link: te.Link{TEMetric: uint32(c[2])}}
		}
		w.cables = append(w.cables, both)
	}
	return w
}

func TestALimitOfHopsTakesTheLongerWayWithFewer(t *testing.T) {
	// To router 2, the way by 1 is shorter and has a hop more.
	d := joined(4, [3]int{0, 1, 1}, [3]int{1, 2, 1}, [3]int{0, 2, 10}, [3]int{2, 3, 1}).database()
	for limit, want := range map[int]uint64{0: 3, 3: 3, 2: 11} {
		p, err := d.Path(te.Request{From: routerAddr(0), To: routerAddr(3), Hops: limit})
		if err != nil || p.Cost != want {
			t.Errorf("at most %d hops: %+v, %v, want a cost of %d", limit, p, err, want)
		}
	}
}

func TestPathsOfParallelLinksAreAllFound(t *testing.T) {
	d := joined(3, [3]int{0, 1, 1}, [3]int{0, 1, 10}, [3]int{1, 2, 1}, [3]int{1, 2, 2}).database()
	paths, err := d.Paths(te.Request{From: routerAddr(0), To: routerAddr(2)}, 9)
	var costs []uint64
	for _, p := range paths {
		costs = append(costs, p.Cost)
	}
	if err != nil || !slices.Equal(costs, []uint64{2, 3, 11, 12}) {
		t.Errorf("costs %v, %v", costs, err)
	}
}

// What one end of a link does not advertise is taken from the other end, if there is one link only.
func TestTheFarEndOfALinkMayBeSaidThere(t *testing.T) {
	link := func(from, to int, local byte) te.Link {
		return te.Link{LinkID: te.LinkID{From: routerID(from), To: routerID(to), Local: address(local)}}
	}
	nodes := []te.Node{{ID: routerID(0)}, {ID: routerID(1)}}
	links := []te.Link{link(0, 1, 1), link(1, 0, 2)}
	q := te.Request{From: routerAddr(0), To: routerAddr(1)}
	p, err := te.New(nodes, links).Path(q)
	if err != nil || p.Hops[0].Remote != address(2) {
		t.Errorf("one link: %+v, %v", p, err)
	}
	p, err = te.New(nodes, append(links, link(0, 1, 3), link(1, 0, 4))).Path(q)
	if err == nil || !strings.Contains(err.Error(), "2 links have no address at the far end") {
		t.Errorf("two links, and which belongs to which is not known: %+v, %v", p, err)
	}
}

// A link of 100 Gbit/s cannot be said exactly by the protocols, and what is asked for neither.
func TestAnLSPAsLargeAsItsLinkFits(t *testing.T) {
	const rate = 12_500_000_000
	w := joined(2, [3]int{0, 1, 1})
	said, err := te.BandwidthOf(te.Float(rate))
	if err != nil || said == rate {
		t.Fatalf("%d is said exactly, %v", said, err)
	}
	w.cables[0][0].link.Unreserved[0] = said
	q := te.Request{From: routerAddr(0), To: routerAddr(1), Bandwidth: rate}
	if _, err := w.database().Path(q); err != nil {
		t.Error(err)
	}
}

func TestARouterIsFoundByItsAddresses(t *testing.T) {
	d := square().database()
	for a, want := range map[netip.Addr]string{routerAddr(2): routerID(2), address(5): routerID(2),
		address(2): routerID(1)} {
		if n, ok := d.Router(a); !ok || n.ID != want {
			t.Errorf("%s is %+v, want %s", a, n, want)
		}
	}
	if n, ok := d.Router(address(200)); ok {
		t.Errorf("an address of no router is of %+v", n)
	}
}

func TestOtherValuesOfALinkChangeThePath(t *testing.T) {
	d := square().database()
	q := te.Request{From: routerAddr(0), To: routerAddr(3), Bandwidth: 1}
	full := d.Links()[0]
	full.Unreserved = [te.Priorities]uint64{}
	foreign := full
	foreign.Local = address(99)
	for name, c := range map[string]struct {
		with *te.Database
		want string
	}{
		"as it was":         {d, routerID(1)},
		"full":              {d.With(full), routerID(2)},
		"none of its own":   {d.With(foreign), routerID(1)},
		"full, and emptied": {d.With(full).With(d.Links()...), routerID(1)},
	} {
		p, err := c.with.Path(q)
		if err != nil || p.Hops[0].To != c.want {
			t.Errorf("%s: %v: %v, want it by %s", name, p.Routers(), err, c.want)
		}
	}
}

func TestTwoPathsThatShareNothing(t *testing.T) {
	d := square().database()
	q := te.Request{From: routerAddr(0), To: routerAddr(3)}
	first, err := d.Path(q)
	if err != nil {
		t.Fatal(err)
	}
	q.Avoid = first.Avoid(true)
	second, err := d.Path(q)
	if err != nil || !slices.Equal(second.Routers(), []string{routerID(0), routerID(2), routerID(3)}) {
		t.Errorf("%v: %v", second.Routers(), err)
	}
	q.Avoid = q.Avoid.And(second.Avoid(false))
	var no *te.NoPath
	if p, err := d.Path(q); !errors.As(err, &no) {
		t.Errorf("a third one: %v, %v", p, err)
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	for name, q := range map[string]te.Request{
		"priority 8":       {Setup: 8},
		"less than no hop": {Hops: -1},
	} {
		q.From, q.To = routerAddr(0), routerAddr(3)
		var no *te.NoPath
		if p, err := square().database().Path(q); err == nil || errors.As(err, &no) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}
