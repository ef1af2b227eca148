// Package membertest has what tests of members of a cluster share.
package membertest

import (
	"sync"
	"time"
)

// Lease is a member.Lease that a test ends and renews. It may be used by many goroutines.
type Lease struct {
	lost chan struct{}

	mu    sync.Mutex // guards until
	until time.Time
}

// NewLease gives a lease that holds for an hour.
func NewLease() *Lease { return &Lease{until: time.Now().Add(time.Hour), lost: make(chan struct{})} }

// Deadline implements member.Lease.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Lost implements member.Lease.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// EndIn sets how long the lease still holds: not for long, if renewals do not get through.
func (l *Lease) EndIn(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Now().Add(d)
}

// Renew lets the lease hold for an hour.
func (l *Lease) Renew() { l.EndIn(time.Hour) }
