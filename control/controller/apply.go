package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/programs"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// application is a request to apply a topology. It is attempted again when another request was carried out meanwhile.
type application struct {
	*Controller
	caller Caller
	top    *topology.Topology
	dryRun bool

	// asked means that this machine was asked, and supports the slice. It is asked once for all attempts: that
	// takes long, and the answer does not depend on what others store.
	asked  bool
	doubts []string // of this machine

	plan api.Plan
	next *slice.Slice
}

// Apply admits a topology: afterwards its slice is wanted as the topology says. With dryRun nothing is stored. The
// slice holds what was stored, or would be; its Generation is the one to wait for.
func (c *Controller) Apply(ctx context.Context, caller Caller, t *topology.Topology, dryRun bool) (api.Plan,
	*slice.Slice, error) {
	a := application{Controller: c, caller: caller, top: t, dryRun: dryRun}
	if err := untilNoConflict(ctx, func() error { return a.attempt(ctx) }); err != nil {
		return api.Plan{}, nil, err
	}
	return a.plan, a.next, nil
}

// attempt admits the slice by what is stored now. If this machine has to be asked, that is done while nothing is
// locked; then what was read is old, and all is done again.
func (a *application) attempt(ctx context.Context) error {
	for {
		prev, generation, err := a.present(ctx)
		if err != nil {
			return err
		}
		next, err := a.resolve(prev)
		if err != nil {
			return err
		}
		decided, err := a.decide(ctx, prev, next, generation)
		if err != nil || decided {
			return err
		}
		if a.doubts, err = Supports(ctx, a.host, next); err != nil {
			return err
		}
		a.asked = true
	}
}

// present gives the version that is stored, and its generation; nil and 0 where there is none.
func (a *application) present(ctx context.Context) (*slice.Slice, int64, error) {
	prev, record, err := a.store.Slice(ctx, a.top.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case record.Deleting:
		return nil, 0, fmt.Errorf("%s: %w", a.top.Name, store.ErrDeleting)
	}
	return prev, record.Generation, nil
}

// resolve gives the version that the topology says, and refuses what the caller may not have.
func (a *application) resolve(prev *slice.Slice) (*slice.Slice, error) {
	next, diagnostics := topology.Resolve(a.top, prev)
	if err := diagnostics.Err(); err != nil {
		return nil, faulty(diagnostics)
	}
	if wrong := programs.Check(next); len(wrong) > 0 {
		return nil, faulty(wrong)
	}
	return next, a.admit(a.caller, next)
}

// decide places the slice, and stores it. It reports false, and has stored nothing, if this machine must be asked
// first.
func (a *application) decide(ctx context.Context, prev, next *slice.Slice, generation int64) (bool, error) {
	if !a.dryRun {
		a.placeMu.Lock()
		defer a.placeMu.Unlock()
	}
	admission, err := a.admission(ctx, next.Name)
	if err != nil {
		return false, err
	}
	if err := keepsOverrides(admission.overrides, prev, next); err != nil {
		return false, err
	}
	own := a.caller.Root && a.caller.Local
	moves, notes, err := a.place(ctx, a.top, prev, next, generation+1, a.caller.home(a.self))
	if err != nil {
		return false, err
	}
	if !a.asked && a.isHere(next) {
		return false, nil
	}
	plan := Diff(prev, next)
	locate(&plan, next, moves)
	plan.Warnings = slices.Concat(plan.Warnings, notes, a.doubts)
	if parts := next.Disconnected(); parts != "" && !plan.Empty() {
		plan.Warnings = append(plan.Warnings, parts)
	}
	next.Generation = generation
	if prev != nil {
		next.ID = prev.ID
	}
	a.plan, a.next = plan, next
	if a.dryRun {
		return true, nil
	}
	return true, a.put(ctx, own, admission.of(prev, next))
}

// isHere reports whether all nodes are on this machine. Else it is not asked what it lacks: the directories of other
// hosts are not known here.
func (a *application) isHere(s *slice.Slice) bool {
	elsewhere := func(n slice.Node) bool { return n.Kind != slice.Switch && n.Host != a.self }
	return a.cluster == nil || !slices.ContainsFunc(s.Nodes, elsewhere)
}

// put stores the slice, and what root of this machine gives it, if that is the caller.
func (a *application) put(ctx context.Context, own bool, conditions []store.Condition) error {
	put := func() error {
		if a.plan.Empty() {
			return nil
		}
		return a.store.PutSlice(ctx, a.next, a.next.Generation, conditions...)
	}
	var err error
	if own {
		err = a.give(a.next, put)
	} else {
		err = put()
	}
	if err != nil {
		return fmt.Errorf("store network %s: %w", a.next.Name, err)
	}
	if !a.plan.Empty() {
		a.events.Publish(events.Event{Slice: a.next.Name, Kind: events.SliceApplied,
			Message: fmt.Sprintf("generation %d: %s", a.next.Generation, a.plan.Summary())})
	}
	return nil
}
