package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Contact logs once when a store gives no answers any more, and once when it answers again.
type Contact struct {
	log *slog.Logger

	mu    sync.Mutex // guards since
	since time.Time  // zero: it answers
}

// NewContact gives a Contact with a store that answers.
func NewContact(log *slog.Logger) *Contact { return &Contact{log: log} }

// Note takes the outcome of a request.
func (c *Contact) Note(err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller did not wait for the answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch answered := err == nil || isAnswer(err); {
	case !answered && c.since.IsZero():
		c.since = time.Now()
		c.log.Warn("the store does not answer; what runs here goes on, and is reported later", "error", err)
	case answered && !c.since.IsZero():
		c.log.Info("the store answers again", "after", time.Since(c.since).Round(time.Second))
		c.since = time.Time{}
	}
}

// isAnswer tells an error that is the store's answer from one that stands for none.
func isAnswer(err error) bool {
	for _, answer := range []error{ErrNotFound, ErrDeleting, ErrConflict, ErrCorrupt, ErrNoHost, ErrWanted} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}
