package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// bootPatience is how long a slice is not settled because exec lines still run. A line may never end, as a server in
// the foreground does not.
const bootPatience = 10 * time.Second

// booting is one run of a node's exec lines.
type booting struct {
	sliver.ID
	since time.Time
}

// boot begins to run a node's exec lines, each by a shell, once. Nothing waits for them but the slice's status. A line
// that fails is reported, and not tried again: the lines may not be repeatable.
func (d *driver) boot(ctx context.Context, id sliver.ID, lines []string) error {
	s, err := d.runtime.Observe(id)
	if err != nil {
		return err
	}
	if err := d.runtime.Note(id, plan.NoteOf[plan.KindBoot], plan.Booted); err != nil {
		return err
	}
	b := &booting{id, time.Now()}
	d.mu.Lock()
	d.boots[b] = true
	d.mu.Unlock()
	go func() {
		d.runLines(ctx, id, s.PID, lines)
		d.mu.Lock()
		delete(d.boots, b)
		d.mu.Unlock()
		d.Nudge()
	}()
	return nil
}

// runLines runs lines one after the other as long as the sliver's first process is the same.
func (d *driver) runLines(ctx context.Context, id sliver.ID, pid int, lines []string) {
	for _, line := range lines {
		late := time.AfterFunc(bootPatience, func() {
			d.warn(id, fmt.Sprintf("exec %q has not ended after %v: nothing waits for it any longer", line, bootPatience))
		})
		_, err := d.run(ctx, id, []string{"/bin/sh", "-c", line})
		late.Stop()
		if s, lost := d.runtime.Observe(id); lost != nil || s.PID != pid {
			return // the lines are those of a node that is no more
		}
		if err != nil {
			d.warn(id, fmt.Sprintf("exec %q: %v", line, err))
		}
	}
}

// bootsLocked counts the nodes of a slice whose exec lines keep it from being settled.
func (a *Agent) bootsLocked(id uint16, now time.Time) (count int) {
	for b := range a.boots {
		if b.Slice == id && now.Before(b.since.Add(bootPatience)) {
			count++
		}
	}
	return count
}
