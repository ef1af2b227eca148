package drive

import (
	"context"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// MarkFenced keeps the marks of the fence as the slices want them; a new sliver has its mark from the start. There is a
// watchdog before there is a mark.
func (d *Driver) MarkFenced(at plan.Place, inputs []plan.Input, seen *observe.Snapshot) {
	if hasMarks(at, inputs) {
		d.callWatchdog()
	}
	for _, w := range inputs {
		for i := range w.Spec.Nodes {
			n := &w.Spec.Nodes[i]
			id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
			s, there := seen.Slivers[id]
			want := plan.FenceMark(n)
			if !there || !at.Owns(n) || s.State == sliver.Broken || s.Notes[plan.FenceNote] == want {
				continue
			}
			if err := d.Machine.Runtime.Note(id, plan.FenceNote, want); err != nil {
				d.Log.Warn("note that a node may start elsewhere", "node", id.String(), "error", err)
			}
		}
	}
}

// callWatchdog sees to it that there is a watchdog, or logs that there is none.
func (d *Driver) callWatchdog() {
	if err := d.CallWatchdog(); err != nil {
		d.Log.Error("nodes that start elsewhere are not ended here should this process be killed", "error", err)
	}
}

// hasMarks reports whether a host may have nodes now that the fence ends.
func hasMarks(at plan.Place, inputs []plan.Input) bool {
	return !at.Fenced && slices.ContainsFunc(inputs, func(w plan.Input) bool {
		for i := range w.Spec.Nodes {
			if n := &w.Spec.Nodes[i]; at.Owns(n) && plan.FenceMark(n) != "" {
				return true
			}
		}
		return false
	})
}

// EndFenced ends what the fence ends, at once: it waits for no plan. Passes keep it so.
func (d *Driver) EndFenced(ctx context.Context) {
	all, err := d.Machine.Runtime.List()
	if err != nil {
		d.Log.Error("end nodes that may start elsewhere", "error", err)
		return
	}
	var group sync.WaitGroup
	for _, s := range all {
		if s.Notes[plan.FenceNote] == "" {
			continue
		}
		group.Go(func() {
			if err := d.delete(context.WithoutCancel(ctx), s.ID); err != nil {
				d.Log.Error("end a node that may start elsewhere", "node", s.ID.String(), "error", err)
				return
			}
			d.Wake()
		})
	}
	group.Wait()
}
