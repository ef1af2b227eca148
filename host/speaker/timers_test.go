package speaker

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp"
)

// timed is a speaker without a socket, whose router has a link, and the timer of its Run.
func timed(t *testing.T) (*Speaker, *time.Timer) {
	t.Helper()
	r, err := rsvp.New(rsvp.Config{ID: idOf(0), Random: rand.Uint64, Refresh: refresh, Interfaces: []rsvp.Interface{
		{Index: 1, Prefix: netip.PrefixFrom(linkAddress(0, 0), 24), Bandwidth: bandwidth}},
		Route: func(netip.Addr) (int, netip.Addr, bool) { return 1, linkAddress(0, 1), true }})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(time.Hour)
	t.Cleanup(func() { timer.Stop() })
	return &Speaker{config: Config{Labels: func(rsvp.LabelChange) error { return nil }, Event: func(rsvp.Event) {}},
		start: time.Now(), wake: make(chan struct{}, 1), wakes: asleep, router: r}, timer
}

// A router without LSPs is never looked at. An LSP wakes Run, once, and its refresh is waited for.
func TestASpeakerSleepsUntilSomethingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, timer := timed(t)
		s.sleep(timer)
		if s.wakes != asleep || len(s.wake) > 0 {
			t.Fatalf("without an LSP, Run waits until %s", s.wakes)
		}
		now := func() time.Duration { return time.Since(s.start) }
		s.mu.Lock()
		if err := s.router.Add(now(), request(1, 1)); err != nil {
			t.Fatal(err)
		}
		s.router.Take() // there is no socket
		s.mu.Unlock()
		if err := s.do(func(time.Duration) {}); err != nil {
			t.Fatal(err)
		}
		if len(s.wake) != 1 {
			t.Fatal("an LSP does not wake Run")
		}
		<-s.wake
		s.sleep(timer)
		want := s.wakes
		if err := s.do(func(time.Duration) {}); err != nil {
			t.Fatal(err)
		}
		if len(s.wake) > 0 {
			t.Error("Run is woken though nothing is due earlier")
		}
		<-timer.C
		if next, ok := s.router.Next(); now() != want || !ok || next != want {
			t.Errorf("Run looks at the router at %s; it is due at %s", now(), next)
		}
		if want < refresh/2 || want > refresh*3/2 {
			t.Errorf("a refresh after %s", want)
		}
	})
}

// What a link that goes down means is told at once.
func TestALinkThatIsDownIsTold(t *testing.T) {
	s, _ := timed(t)
	var told []string
	var left []rsvp.Bandwidth
	s.config.Bandwidth = func(b rsvp.Bandwidth) { left = append(left, b) }
	s.config.Event = func(e rsvp.Event) { told = append(told, e.Kind) }
	s.mu.Lock()
	if err := s.router.Add(0, request(1, 1)); err != nil {
		t.Fatal(err)
	}
	s.router.Take() // there is no socket
	s.mu.Unlock()
	if err := s.SetLink(1, false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(told, []string{rsvp.Failed}) {
		t.Errorf("told %v", told)
	}
	if !slices.Equal(left, []rsvp.Bandwidth{{Interface: 1, Reservable: bandwidth}}) {
		t.Errorf("unreserved: %+v", left)
	}
}
