package member

import (
	"sync"
	"time"
)

// term is a lease that a test ends and gives back.
type term struct {
	mu    sync.Mutex // guards all below
	until time.Time
	lost  chan struct{}
}

func newTerm() *term { return &term{until: time.Now().Add(time.Hour), lost: make(chan struct{})} }

func (l *term) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *term) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// end lets the deadline be near, as it is when renewals do not get through.
func (l *term) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Now().Add(fenceMargin / 2)
}
