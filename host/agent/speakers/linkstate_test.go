package speakers

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/te"
)

var (
	routerB = sliver.ID{Slice: 7, Node: "b"}
	routerC = sliver.ID{Slice: 7, Node: "c"}
)

// reserved is a link of 1,000 bytes a second of which so many are reserved.
func reserved(b uint64) rsvp.Bandwidth {
	return rsvp.Bandwidth{Reservable: 1000, Unreserved: whole(1000 - b)}
}

func newSpeakers() *Speakers {
	return New(slog.New(slog.DiscardHandler), func() {}, func(events.Event) {})
}

// flood floods in a bubble, and gives what was told so far.
func flood(ctx context.Context, s *Speakers, fails func() bool) (told func() []slice.LinkState) {
	var mu sync.Mutex // guards all
	var all []slice.LinkState
	go s.Flood(ctx, func(_ context.Context, network string, is slice.LinkState) error {
		if network != "lab" {
			return errors.New("another network: " + network)
		}
		if fails() {
			return errors.New("no answer")
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, is)
		return nil
	})
	return func() []slice.LinkState {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func never() bool { return false }

func TestAThousandSetUpsASecondAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		told := flood(t.Context(), s, never)
		const seconds = 10
		for i := range seconds * 1000 {
			s.setUnreserved(routerB, "lab", "eth1", reserved(uint64(i%2)*500))
			time.Sleep(time.Millisecond)
		}
		if n := len(told()); n < 2 || n > seconds+1 {
			t.Errorf("in %d s, other hosts were told %d times", seconds, n)
		}
	})
}

func TestOtherHostsAreToldWhenAThresholdIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		told := flood(t.Context(), s, never)
		s.setUnreserved(routerB, "lab", "eth1", reserved(0))
		s.setUnreserved(routerC, "lab", "eth1", reserved(100))
		if all := told(); len(all) != 0 {
			t.Errorf("below every threshold, other hosts are told %v", all)
		}
		s.setUnreserved(routerB, "lab", "eth2", reserved(900))
		both := slice.LinkState{"b": {"eth2": whole(100)}, "c": {"eth1": whole(900)}}
		if diff := cmp.Diff([]slice.LinkState{both}, told()); diff != "" {
			t.Errorf("at once, -want +got:\n%s", diff)
		}
		// What is small is told from time to time, and nothing where nothing has changed.
		s.setUnreserved(routerC, "lab", "eth1", reserved(110))
		time.Sleep(2*floodAll + floodPause)
		both = slice.LinkState{"b": {"eth2": whole(100)}, "c": {"eth1": whole(890)}}
		if all := told(); len(all) != 2 || !cmp.Equal(all[1], both) {
			t.Errorf("later, it is %v, want once more %v", all, both)
		}
		s.setUnreserved(routerB, "lab", "eth2", reserved(0))
		if all := told(); len(all) != 3 || len(all[2]["b"]) != 0 {
			t.Errorf("what is free again is %v", all)
		}
	})
}

// What an earlier server has told stands until it is known to differ.
func TestAServerThatStartsTellsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		told := flood(t.Context(), s, never)
		s.setUnreserved(routerB, "lab", "eth1", reserved(0))
		time.Sleep(2 * floodAll)
		if all := told(); len(all) != 1 || len(all[0]) != 0 {
			t.Errorf("nothing is reserved, and other hosts are told %v, want that once", all)
		}
	})
}

func TestWhatCouldNotBeToldIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		var tries atomic.Int32
		told := flood(t.Context(), s, func() bool { return tries.Add(1) < 3 })
		s.setUnreserved(routerB, "lab", "eth1", reserved(900))
		time.Sleep(floodAll / 2)
		if all := told(); len(all) != 1 || tries.Load() != 3 {
			t.Errorf("after %d tries, other hosts are told %v", tries.Load(), all)
		}
		// The last router of the network ends, and with it what it has told.
		s.mu.Lock()
		s.forgetLocked(routerB)
		s.mu.Unlock()
		time.Sleep(2 * floodAll)
		if all := told(); len(all) != 2 || len(all[1]) != 0 {
			t.Errorf("without routers, other hosts are told %v", all)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.told) > 0 {
			t.Errorf("%d networks without routers are remembered", len(s.told))
		}
	})
}

func TestPathsGoRoundLinksThatAreFullAtOtherHosts(t *testing.T) {
	s := resolved(t, square, nil)
	s.Node("a").Host, s.Node("b").Host = "h1", "h2"
	full := map[string][te.Priorities]uint64{"eth2": {}}
	input := plan.Input{Spec: s, LinkState: slice.LinkState{"b": full, "a": {"eth2": {}}}}
	a := Of(plan.Place{Host: "h1", Joined: true}, []plan.Input{input}, seen(s))[sliver.ID{Slice: 7, Node: "a"}]
	speakers := newSpeakers()
	for _, name := range []string{"eth1", "eth2"} { // of its own links, a knows better
		speakers.setUnreserved(sliver.ID{Slice: 7, Node: "a"}, "lab", name,
			rsvp.Bandwidth{Reservable: 1_250_000, Unreserved: whole(1_250_000)})
	}
	l := *s.LSP("free")
	l.Signal = &slice.Signal{Number: 1, Bandwidth: 5_000_000, Setup: 7, Holding: 7}
	known := databases{speakers, map[uint16]*te.Database{}}
	p, err := route(s, a.Overrides, &l, known.of(a), nil, nil)
	if by := strings.Join(p.Routers(), " "); by != "a c d" {
		t.Errorf("b has nothing left to d, and the LSP goes by %s, %v", by, err)
	}
	// What was told before a link became slower promises no more than the link has.
	s.Link(s.Node("c").Interface("eth2").Link).Ends[0].Shape.Rate = 1_000_000
	s.Link(s.Node("c").Interface("eth2").Link).Ends[1].Shape.Rate = 1_000_000
	a.Elsewhere["c"] = map[string][te.Priorities]uint64{"eth2": whole(1_250_000)}
	clear(known.have)
	if p, err := route(s, a.Overrides, &l, known.of(a), nil, nil); err == nil {
		t.Errorf("5 Mbit/s go by %v, whose last link has 1 Mbit/s", p.Routers())
	}
}
