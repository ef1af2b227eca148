package events

import (
	"context"
	"sync"
	"time"
)

// Bus keeps the most recent events. Publish never waits: a reader that is too slow misses events, which it can
// tell from a gap in Seq.
type Bus struct {
	mu   sync.Mutex
	ring []Event       // guarded by mu; event n is at n modulo its length
	last uint64        // Seq of the newest; guarded by mu
	news chan struct{} // closed and replaced by Publish; guarded by mu
}

// NewBus makes a bus that keeps size events.
func NewBus(size int) *Bus {
	return &Bus{ring: make([]Event, size), news: make(chan struct{})}
}

// Publish gives the event its number, and its time where it has none, and delivers it.
func (b *Bus) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	e.Seq = b.last
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	b.ring[e.Seq%uint64(len(b.ring))] = e
	close(b.news)
	b.news = make(chan struct{})
}

// Recent gives the events that are kept with a Seq above after, oldest first.
func (b *Bus) Recent(after uint64) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recentLocked(after)
}

func (b *Bus) recentLocked(after uint64) []Event {
	if n := uint64(len(b.ring)); b.last > n {
		after = max(after, b.last-n)
	}
	var es []Event
	for seq := after + 1; seq <= b.last; seq++ {
		es = append(es, b.ring[seq%uint64(len(b.ring))])
	}
	return es
}

// Next is Recent, but waits until there is an event, or ctx ends.
func (b *Bus) Next(ctx context.Context, after uint64) ([]Event, error) {
	for {
		b.mu.Lock()
		es, news := b.recentLocked(after), b.news
		b.mu.Unlock()
		if len(es) > 0 {
			return es, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
