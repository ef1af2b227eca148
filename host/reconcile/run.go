package reconcile

import (
	"context"
	"errors"
	"sync"
)

// ErrSkipped is the outcome of an action that did not begin because one that must come first failed, or because the
// context ended.
var ErrSkipped = errors.New("skipped")

// Run carries out a plan with so many workers. do is called at most once for each action, from many goroutines. The
// result holds the outcome of each action by its index; an action behind a failed one is ErrSkipped.
// When ctx ends, actions under way are waited for, and no further one begins.
func Run(ctx context.Context, plan []Action, workers int, do func(context.Context, Action) error) []error {
	r := runner{
		plan: plan, waits: make([]int, len(plan)), next: make([][]int, len(plan)),
		result: make([]error, len(plan)),
	}
	r.more.L = &r.mu
	for i, a := range plan {
		r.waits[i] = len(a.After) + len(a.Soft)
		for _, before := range a.After {
			r.next[before] = append(r.next[before], i)
		}
		for _, before := range a.Soft {
			r.next[before] = append(r.next[before], i)
		}
		if r.waits[i] == 0 {
			r.ready = append(r.ready, i)
		}
	}
	r.left = len(plan)
	var group sync.WaitGroup
	for range min(max(workers, 1), len(plan)) {
		group.Go(func() { r.work(ctx, do) })
	}
	group.Wait()
	return r.result
}

type runner struct {
	plan []Action
	next [][]int // by action: those that wait for it

	mu     sync.Mutex // guards all below
	more   sync.Cond  // ready or left changed
	waits  []int      // by action: how many it still waits for
	ready  []int      // may begin, first come first served
	left   int        // not ended
	result []error
}

func (r *runner) work(ctx context.Context, do func(context.Context, Action) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.ready) == 0 && r.left > 0 {
			r.more.Wait()
		}
		if r.left == 0 {
			return
		}
		i := r.ready[0]
		r.ready = r.ready[1:]
		err := r.verdict(ctx, i)
		if err == nil {
			r.mu.Unlock()
			err = do(ctx, r.plan[i])
			r.mu.Lock()
		}
		r.endLocked(i, err)
	}
}

// verdict tells whether action i may begin, now that all before it have ended.
func (r *runner) verdict(ctx context.Context, i int) error {
	if ctx.Err() != nil {
		return ErrSkipped
	}
	for _, before := range r.plan[i].After {
		if r.result[before] != nil {
			return ErrSkipped
		}
	}
	return nil
}

func (r *runner) endLocked(i int, err error) {
	r.result[i] = err
	r.left--
	for _, n := range r.next[i] {
		if r.waits[n]--; r.waits[n] == 0 {
			r.ready = append(r.ready, n)
		}
	}
	r.more.Broadcast()
}
