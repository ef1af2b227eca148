package te_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// signal has routers of RSVP set up an LSP along a path, and gives the routers at which it has a label, and what it
// reserved at each; and by router and interface, all that was told to be unreserved.
func (w world) signal(t *testing.T, p te.Path, q te.Request) (map[int]uint64, map[[2]int][]rsvp.Bandwidth) {
	t.Helper()
	type place struct{ router, index int }
	peers := make(map[place]port)
	configs := make([]rsvp.Config, w.routers)
	for i, c := range w.cables { // the cable's number is the interface's
		for side, end := range c {
			peers[place{end.router, i + 1}] = c[1-side]
			n := &configs[end.router].Interfaces
			*n = append(*n, rsvp.Interface{Index: i + 1, Prefix: netip.PrefixFrom(end.addr, 31),
				Bandwidth: end.link.Unreserved[0]})
		}
	}
	var routers []*rsvp.Router
	for i, c := range configs {
		c.ID, c.Random = routerAddr(i), func() uint64 { return 1 }
		r, err := rsvp.New(c)
		if err != nil {
			t.Fatal(err)
		}
		routers = append(routers, r)
	}
	err := routers[0].Add(time.Second, rsvp.Request{Key: rsvp.Key{Session: message.Session{End: q.To, Tunnel: 1,
		Extended: q.From}, Sender: q.From, LSP: 1}, Route: p.Route(), Bandwidth: q.Bandwidth,
		Attribute: message.SessionAttribute{Setup: q.Setup, Holding: q.Setup}})
	if err != nil {
		t.Fatal(err)
	}
	up, reserved, left := false, make(map[int]uint64), make(map[[2]int][]rsvp.Bandwidth)
	for quiet := false; !quiet; {
		quiet = true
		for i, r := range routers {
			out := r.Take()
			for _, s := range out.Send {
				quiet = false
				to := peers[place{i, s.Interface}]
				routers[to.router].Receive(time.Second, rsvp.Packet{Interface: s.Interface,
					Source: s.Source, TTL: s.Message[4], Message: s.Message})
			}
			for _, l := range out.Labels {
				reserved[i] = l.Entry.Bandwidth
			}
			for _, b := range out.Bandwidth {
				left[[2]int{i, b.Interface}] = append(left[[2]int{i, b.Interface}], b)
			}
			for _, e := range out.Events {
				up = up || i == 0 && e.Kind == rsvp.Up
				if e.Kind == rsvp.Failed {
					t.Fatalf("router %d: %s", i+1, message.ErrorText(e.Error.Code, e.Error.Value))
				}
			}
		}
	}
	if !up {
		t.Fatalf("the LSP is not up: %v", reserved)
	}
	return reserved, left
}

// The short way has too little left: the LSP is set up by the long one, as it was found.
func TestRSVPSetsUpAnLSPAlongThePath(t *testing.T) {
	w := square()
	for p := range te.Priorities {
		w.cables[1][0].link.Unreserved[p] = 5_000_000
	}
	q := te.Request{From: routerAddr(0), To: routerAddr(3), Bandwidth: 12_500_000, Setup: 3}
	p, err := w.database().Path(q)
	if err != nil || !slices.Equal(p.Routers(), []string{routerID(0), routerID(2), routerID(3)}) {
		t.Fatalf("%v: %v", p.Routers(), err)
	}
	reserved, left := w.signal(t, p, q)
	if len(reserved) != 3 || reserved[0] != 12_500_000 || reserved[2] != 12_500_000 || reserved[3] != 0 {
		t.Errorf("reserved by router: %v", reserved)
	}
	// What RSVP tells is what decides on flooding: the links of the path are flooded, and no other ones.
	flooded := 0
	for at, told := range left {
		first, last := told[0], told[len(told)-1]
		flood := te.DefaultThresholds().Flood(last.Reservable, first.Unreserved, last.Unreserved)
		if flood != (len(told) > 1) || flood && reserved[at[0]] != q.Bandwidth {
			t.Errorf("router %d, interface %d: told %+v, flooded: %t", at[0]+1, at[1], told, flood)
		}
		if flood {
			flooded++
		}
	}
	if flooded != 2 {
		t.Errorf("%d links are flooded, want 2", flooded)
	}
}
