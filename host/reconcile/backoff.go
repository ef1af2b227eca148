package reconcile

import "time"

// Backoff remembers failures and says when a key may be tried again: after 250 ms, then twice as long each time, up to
// 4 minutes. The zero value is ready for use. It is not safe for concurrent use.
type Backoff struct {
	failures map[Key]failure
}

type failure struct {
	count int
	until time.Time
	cause error
}

// The bounds of the pause between tries.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 4 * time.Minute
)

// Fail records that an attempt at k failed at now.
func (b *Backoff) Fail(k Key, now time.Time, cause error) {
	if b.failures == nil {
		b.failures = make(map[Key]failure)
	}
	f := b.failures[k]
	pause := min(firstPause<<min(f.count, 10), lastPause)
	b.failures[k] = failure{count: f.count + 1, until: now.Add(pause), cause: cause}
}

// Forget drops what is remembered of k: it was made, or is no longer wanted, or the user asked anew.
func (b *Backoff) Forget(k Key) { delete(b.failures, k) }

// Retain drops every key for which keep answers false.
func (b *Backoff) Retain(keep func(Key) bool) {
	for k := range b.failures {
		if !keep(k) {
			delete(b.failures, k)
		}
	}
}

// Holds reports whether k is to be left alone at now.
func (b *Backoff) Holds(k Key, now time.Time) bool { return now.Before(b.failures[k].until) }

// Next gives the earliest time after now at which a held key is free again; ok is false where none is held.
func (b *Backoff) Next(now time.Time) (next time.Time, ok bool) {
	for _, f := range b.failures {
		if now.Before(f.until) && (!ok || f.until.Before(next)) {
			next, ok = f.until, true
		}
	}
	return next, ok
}

// Failures gives how often k failed in a row, and the last cause.
func (b *Backoff) Failures(k Key) (count int, cause error) {
	f := b.failures[k]
	return f.count, f.cause
}

// Each calls visit for every remembered failure.
func (b *Backoff) Each(visit func(k Key, cause error, count int)) {
	for k, f := range b.failures {
		visit(k, f.cause, f.count)
	}
}
