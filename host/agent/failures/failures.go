// Package failures remembers what failed on a host, and until when it is held back: actions, and first processes of
// nodes that ended. It is pure: time is a value.
package failures

import (
	"errors"
	"slices"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
)

const (
	// mostRestarts is how many ends in a row make a node one that does not run, rather than one about to be started
	// again.
	mostRestarts = 3
	// probation is how long a node must run after that to be told from one that ends at once.
	probation = 500 * time.Millisecond
	// soundAfter is how long a first process must live for its earlier ends to be forgotten.
	soundAfter = 10 * time.Second
)

var errExited = errors.New("its first process ended")

// Failures is what failed. The zero value is ready for use. It is not safe for concurrent use.
type Failures struct {
	actions reconcile.Backoff // that failed
	exits   reconcile.Backoff // of slivers whose first process ended by itself
}

func (f *Failures) both() [2]*reconcile.Backoff {
	return [...]*reconcile.Backoff{&f.actions, &f.exits}
}

func sliverKey(slice uint16, node string) reconcile.Key {
	return reconcile.Key{Kind: plan.KindSliver, Slice: slice, Name: node}
}

// Acted records how an action on k ended, and gives the cause of the failure that k had before, or nil.
func (f *Failures) Acted(k reconcile.Key, now time.Time, err error) (before error) {
	_, before = f.actions.Failures(k)
	if err != nil {
		f.actions.Fail(k, now, err)
	} else {
		f.actions.Forget(k)
	}
	return before
}

// Exited counts the end of a node's first process: one that ends again and again is started ever more slowly.
func (f *Failures) Exited(slice uint16, node string, now time.Time) {
	f.exits.Fail(sliverKey(slice, node), now, errExited)
}

// Runs forgets the ends of a node's first process, if it has run since a time long enough ago.
func (f *Failures) Runs(slice uint16, node string, since, now time.Time) {
	if now.Sub(since) > soundAfter {
		f.exits.Forget(sliverKey(slice, node))
	}
}

// Retain forgets the failures of all keys for which keep answers false.
func (f *Failures) Retain(keep func(reconcile.Key) bool) {
	for _, b := range f.both() {
		b.Retain(keep)
	}
}

// Reset forgets the failures of a slice, or with 0 those of the host: the cause may be mended. It reports whether there
// were any.
func (f *Failures) Reset(slice uint16) (had bool) {
	f.Retain(func(k reconcile.Key) bool {
		had = had || k.Slice == slice
		return k.Slice != slice
	})
	return had
}

// Holds reports whether k is to be left alone at now.
func (f *Failures) Holds(k reconcile.Key, now time.Time) bool {
	return f.actions.Holds(k, now) || f.exits.Holds(k, now)
}

// Wait gives how long after now something that is held back is free again, or a node has been on probation for long
// enough; most where that is later than that.
func (f *Failures) Wait(now time.Time, most time.Duration) time.Duration {
	for _, b := range f.both() {
		if next, held := b.Next(now); held {
			most = min(most, next.Sub(now))
		}
	}
	if next, held := f.exits.Next(now.Add(-probation)); held {
		most = min(most, next.Add(probation).Sub(now))
	}
	return most
}

// Of gives how often an action on k failed in a row, and the last cause.
func (f *Failures) Of(k reconcile.Key) (count int, cause error) { return f.actions.Failures(k) }

// Consequence marks an error that follows from another one: what the action needed had gone, as everything of a node
// goes whose first process ended.
func Consequence(err error) error { return consequence{err} }

type consequence struct{ error }

func (c consequence) Unwrap() error { return c.error }

// Messages words the actions of a slice, or of the host itself, that failed. Consequences are told only where there is
// no cause to tell: neither another failure, nor a node whose first process ended.
func (f *Failures) Messages(slice uint16) []string {
	var causes, consequences []string
	f.actions.Each(func(k reconcile.Key, cause error, _ int) {
		if k.Slice != slice && k.Slice != 0 {
			return
		}
		if errors.As(cause, new(consequence)) {
			consequences = append(consequences, cause.Error())
		} else {
			causes = append(causes, cause.Error())
		}
	})
	ended := false
	f.exits.Each(func(k reconcile.Key, _ error, _ int) { ended = ended || k.Slice == slice })
	if len(causes) == 0 && !ended {
		causes = consequences
	}
	slices.Sort(causes)
	return slices.Compact(causes)
}

// Restarting counts the nodes of a slice that are about to be started again, or just were.
func (f *Failures) Restarting(slice uint16, now time.Time) (count int) {
	f.exits.Each(func(k reconcile.Key, _ error, ends int) {
		if k.Slice == slice && ends < mostRestarts && f.exits.Holds(k, now.Add(-probation)) {
			count++
		}
	})
	return count
}
