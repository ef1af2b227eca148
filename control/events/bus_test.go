package events

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestRecentKeepsTheNewest(t *testing.T) {
	b := NewBus(4)
	if es := b.Recent(0); len(es) != 0 {
		t.Fatalf("a new bus has %v", es)
	}
	for range 6 {
		b.Publish(Event{Kind: NodeChanged})
	}
	es := b.Recent(0)
	if len(es) != 4 || es[0].Seq != 3 || es[3].Seq != 6 || es[0].Time.IsZero() {
		t.Errorf("recent %v, want 3 to 6", es)
	}
	if es := b.Recent(5); len(es) != 1 || es[0].Seq != 6 {
		t.Errorf("after 5: %v", es)
	}
	if es := b.Recent(6); len(es) != 0 {
		t.Errorf("after 6: %v", es)
	}
}

func TestNextWaitsForNews(t *testing.T) {
	b := NewBus(8)
	got := make(chan []Event)
	go func() {
		es, _ := b.Next(t.Context(), 0)
		got <- es
	}()
	b.Publish(Event{Message: "hello"})
	select {
	case es := <-got:
		if len(es) != 1 || es[0].Message != "hello" {
			t.Errorf("got %v", es)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Next still waits")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Next(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}
