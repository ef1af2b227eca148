package te_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// square is four routers: 1-2-4 is short, 1-3-4 long; link n of the list has the addresses 198.51.100.2n and 2n+1.
func square() world {
	w := world{routers: 4}
	for i, ends := range [][2]int{{0, 1}, {1, 3}, {0, 2}, {2, 3}} {
		var c cable
		for side, router := range ends {
			c[side] = port{router: router, addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(2*i + side)}),
				link: te.Link{TEMetric: uint32(10 + 10*(i/2)), SRLGs: []uint32{uint32(i)}}}
			for p := range te.Priorities {
				c[side].link.Unreserved[p] = 12_500_000 // 100 Mbit/s
			}
		}
		w.cables = append(w.cables, c)
	}
	return w
}

func address(last byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, last}) }

func step(last byte, loose bool) message.Step {
	return message.Step{Loose: loose, Prefix: netip.PrefixFrom(address(last), 32)}
}

// Links of the square, as errors name them.
const (
	link12 = "192.0.2.1 to 192.0.2.2 by 198.51.100.0"
	link13 = "192.0.2.1 to 192.0.2.3 by 198.51.100.4"
	link24 = "192.0.2.2 to 192.0.2.4 by 198.51.100.2"
	link31 = "192.0.2.3 to 192.0.2.1 by 198.51.100.5"
	link34 = "192.0.2.3 to 192.0.2.4 by 198.51.100.6"
	link42 = "192.0.2.4 to 192.0.2.2 by 198.51.100.3"
)

func TestErrorSaysWhichConstraintLeavesNoPath(t *testing.T) {
	none := func(world) {}
	free := func(bytes uint64, cables ...int) func(world) {
		return func(w world) {
			for _, i := range cables {
				w.cables[i][0].link.Unreserved[4] = bytes
			}
		}
	}
	silent := func(side int, cables ...int) func(world) {
		return func(w world) {
			for _, i := range cables {
				w.cables[i][side].silent = true
			}
		}
	}
	for name, c := range map[string]struct {
		change func(world)
		q      te.Request
		want   string
	}{
		"bandwidth": {
			free(3_125_000, 0, 3), te.Request{Bandwidth: 5_000_000, Setup: 4},
			"192.0.2.4: 2 links have less than 40 Mbit/s unreserved at priority 4, at most 25 Mbit/s (" +
				link12 + ", " + link34 + ")",
		},
		// Link 2-4 is too small too, but behind the one that is avoided.
		"two constraints": {
			free(0, 1, 2),
			te.Request{Bandwidth: 5_000_000, Setup: 4, Avoid: te.Avoid{Links: []netip.Addr{address(0)}}},
			"192.0.2.4: 1 link has less than 40 Mbit/s unreserved at priority 4: 0 bit/s (" + link13 +
				"); 1 link is to be avoided (" + link12 + ")",
		},
		"affinity": {
			none, te.Request{Affinities: message.Affinities{IncludeAny: 1}},
			"192.0.2.4: 2 links do not have the administrative groups (" + link12 + ", " + link13 + ")",
		},
		"routers": {
			none, te.Request{Avoid: te.Avoid{Nodes: []netip.Addr{routerAddr(1), routerAddr(2)}}},
			"192.0.2.4: 2 links lead to routers that are to be avoided (" + link12 + ", " + link13 + ")",
		},
		"one way": {
			silent(1, 1, 3), te.Request{},
			"192.0.2.4: 2 links are advertised by one end only (" + link24 + ", " + link34 + ")",
		},
		"no links": {
			func(w world) { silent(0, 1, 3)(w); silent(1, 1, 3)(w) }, te.Request{},
			"192.0.2.4: no link leads there",
		},
		"hops": {
			none, te.Request{Hops: 1},
			"192.0.2.4: the path that meets the other constraints has 2 hops, of at most 1",
		},
		"strict": {
			none, te.Request{Via: []message.Step{step(3, false)}},
			"198.51.100.3: the step strict 198.51.100.3/32 is no interface next to it",
		},
		// The first part goes by 2, where the second one has to end.
		"back": {
			none, te.Request{To: routerAddr(1), Via: []message.Step{step(3, true)}},
			"192.0.2.2: 2 links lead back to routers of the path (" + link31 + ", " + link42 + ")",
		},
		// A link is avoided in both directions, also if one of them is not to be used for another reason.
		"link and risk": {
			func(w world) { w.cables[0][0].link.SRLGs = nil },
			te.Request{To: routerAddr(1), Avoid: te.Avoid{Links: []netip.Addr{address(1), address(5)},
				SRLGs: []uint32{0}}},
			"192.0.2.2: 2 links are to be avoided (" + link12 + ", " + link13 + ")",
		},
		"unknown": {
			none, te.Request{To: netip.MustParseAddr("203.0.113.1")},
			"203.0.113.1: no router with the address 203.0.113.1 is in the traffic engineering database, " +
				"which has 4",
		},
		"itself": {
			none, te.Request{To: address(4)},
			"198.51.100.4: both are of one router",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := square()
			c.change(w)
			c.q.From = routerAddr(0)
			if !c.q.To.IsValid() {
				c.q.To = routerAddr(3)
			}
			p, err := w.database().Path(c.q)
			var no *te.NoPath
			if !errors.As(err, &no) {
				t.Fatalf("path %v, error %v", p, err)
			}
			from := "192.0.2.1"
			if name == "back" {
				from = "192.0.2.4"
			}
			if want := "no path from " + from + " to " + c.want; err.Error() != want {
				t.Errorf("%v, want\n%s", err, want)
			}
		})
	}
}
