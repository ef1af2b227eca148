package drive

import (
	"context"
	"fmt"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// bootTimeout is how long a slice is not settled because exec lines still run. A line may never end, as a server in the
// foreground does not.
const bootTimeout = 10 * time.Second

// Boot is one run of a node's exec lines.
type Boot struct {
	ID    sliver.ID
	Until time.Time // the slice is not settled because of it
}

// Boots gives the runs of exec lines that have not ended.
func (d *Driver) Boots() (all []Boot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.boots {
		all = append(all, *b)
	}
	return all
}

// boot begins to run a node's exec lines, each by a shell, once. Nothing waits for them but the slice's status. A line
// that fails is reported, and not tried again: the lines may not be repeatable.
func (d *Driver) boot(ctx context.Context, id sliver.ID, lines []string) error {
	s, err := d.Machine.Runtime.Observe(id)
	if err != nil {
		return err
	}
	if err := d.Machine.Runtime.Note(id, plan.NoteOf[plan.KindBoot], plan.Booted); err != nil {
		return err
	}
	b := &Boot{id, time.Now().Add(bootTimeout)}
	d.mu.Lock()
	d.boots[b] = true
	d.mu.Unlock()
	go func() {
		d.runLines(ctx, id, s.PID, lines)
		d.mu.Lock()
		delete(d.boots, b)
		d.mu.Unlock()
		d.Wake()
	}()
	return nil
}

// runLines runs lines one after the other as long as the sliver's first process is the same.
func (d *Driver) runLines(ctx context.Context, id sliver.ID, pid int, lines []string) {
	for _, line := range lines {
		late := time.AfterFunc(bootTimeout, func() {
			d.Warn(id, fmt.Sprintf("exec %q has not ended after %v: nothing waits for it any longer", line,
				bootTimeout))
		})
		_, err := d.run(ctx, id, []string{"/bin/sh", "-c", line})
		late.Stop()
		if s, lost := d.Machine.Runtime.Observe(id); lost != nil || s.PID != pid {
			return // the lines are those of a node that is no more
		}
		if err != nil {
			d.Warn(id, fmt.Sprintf("exec %q: %v", line, err))
		}
	}
}
