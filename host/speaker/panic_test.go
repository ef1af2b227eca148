package speaker

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp"
)

// A panic is an error of this speaker, which says where it was, and holds no lock.
func TestAPanicEndsOneSpeakerAndNotTheProcess(t *testing.T) {
	r, err := rsvp.New(rsvp.Config{ID: idOf(0), Random: rand.Uint64})
	if err != nil {
		t.Fatal(err)
	}
	s := &Speaker{start: time.Now(), router: r}
	if err := s.do(func(time.Duration) {}); err != nil {
		t.Fatal(err)
	}
	broken := s.do(func(time.Duration) { panic("a fault") })
	if broken == nil || !strings.Contains(broken.Error(), "a fault") ||
		!strings.Contains(broken.Error(), "panic_test.go") {
		t.Fatalf("a panic is told as %v", broken)
	}
	if err := s.do(func(time.Duration) { t.Error("the router is asked again") }); !errors.Is(err, broken) {
		t.Errorf("after a panic: %v", err)
	}
	if err := s.Add(request(1, 1)); !errors.Is(err, broken) {
		t.Errorf("an LSP is added after a panic: %v", err)
	}
}

// Run ends at once, though it may be waiting for a refresh that is far away.
func TestAPanicWakesRun(t *testing.T) {
	s, timer := timed(t)
	_ = s.do(func(time.Duration) { panic("a fault") })
	if len(s.wake) != 1 {
		t.Fatal("Run is not woken")
	}
	s.sleep(timer)
	select {
	case <-timer.C:
	case <-time.After(patience):
		t.Error("Run does not look at the speaker")
	}
}
