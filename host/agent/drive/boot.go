package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// bootTimeout is how long a slice is not settled because exec lines still run. A line may never end, as a server in the
// foreground does not.
const bootTimeout = 10 * time.Second

// Boot is one run of a node's exec lines.
type Boot struct {
	ID    sliver.ID
	Until time.Time // the slice is not settled because of it

	ended bool // its node is deleted, which ends the lines; guarded by Driver.mu
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

// execOutput is how many bytes of a line's output are kept: the last ones.
const execOutput = 2048

// boot begins to run a node's exec lines, each by a shell, once. Nothing waits for them but the slice's status. A line
// that fails is reported, and not tried again: the lines may not be repeatable. What a line printed, and how it ended,
// is kept with the sliver. After the lines, note is run.
func (d *Driver) boot(ctx context.Context, id sliver.ID, lines, note []string) error {
	s, err := d.Machine.Runtime.Observe(id)
	if err != nil {
		return err
	}
	if err := d.Machine.Runtime.Note(id, plan.NoteOf[plan.KindBoot], plan.Booted); err != nil {
		return err
	}
	b := &Boot{ID: id, Until: time.Now().Add(bootTimeout)}
	d.mu.Lock()
	d.boots[b] = true
	d.mu.Unlock()
	go func() {
		d.runLines(ctx, b, s.PID, lines)
		d.note(ctx, b, s.PID, note)
		d.mu.Lock()
		delete(d.boots, b)
		d.mu.Unlock()
		d.Wake()
	}()
	return nil
}

// endBoots makes the runs of a node's exec lines count no more: the node is deleted next, and that is no failure of the
// line that it ends. The next sliver of the node has lines of its own.
func (d *Driver) endBoots(id sliver.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := range d.boots {
		if b.ID == id {
			b.ended = true
		}
	}
}

// counts reports whether a run of exec lines is still that of the node's present sliver.
func (d *Driver) counts(b *Boot, pid int) bool {
	d.mu.Lock()
	ended := b.ended
	d.mu.Unlock()
	s, err := d.Machine.Runtime.Observe(b.ID)
	return !ended && err == nil && s.PID == pid
}

// runLines runs lines one after the other as long as they count.
func (d *Driver) runLines(ctx context.Context, b *Boot, pid int, lines []string) {
	id := b.ID
	var results []slice.ExecResult
	for _, line := range lines {
		late := time.AfterFunc(bootTimeout, func() {
			d.Warn(id, fmt.Sprintf("exec %q has not ended after %v: nothing waits for it any longer", line,
				bootTimeout))
		})
		result := d.runLine(ctx, id, line)
		late.Stop()
		if !d.counts(b, pid) {
			return // the lines are those of a node that is no more
		}
		if result.Failed() {
			d.Warn(id, fmt.Sprintf("exec %q: exit status %d: %s", line, result.Status, result.Output))
		}
		if result.Failed() || result.Output != "" {
			results = append(results, result)
			d.keepResults(id, results)
		}
	}
}

// note has a node remember how its routing daemon is configured by now.
func (d *Driver) note(ctx context.Context, b *Boot, pid int, command []string) {
	if len(command) == 0 || !d.counts(b, pid) {
		return
	}
	if _, err := d.run(ctx, b.ID, command); err != nil && d.counts(b, pid) {
		d.Warn(b.ID, fmt.Sprintf("remember how the routing daemon is configured: %v", err))
	}
}

func (d *Driver) runLine(ctx context.Context, id sliver.ID, line string) slice.ExecResult {
	var out tail
	status, err := d.Machine.Runtime.Exec(ctx, id, sliver.ExecRequest{
		Args: []string{"/bin/sh", "-c", line}, Stdout: &out, Stderr: &out,
	})
	if err != nil {
		return slice.ExecResult{Line: line, Status: -1, Output: err.Error()}
	}
	return slice.ExecResult{Line: line, Status: status, Output: strings.TrimSpace(out.String())}
}

// tail keeps the end of what is written: a line may write without end.
type tail struct{ last []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.last = append(t.last, p[max(0, len(p)-execOutput):]...)
	t.last = t.last[max(0, len(t.last)-execOutput):]
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.ToValidUTF8(t.last, nil)) }

// keepResults notes how lines ended. Without the note, the status lacks them, and all else goes on.
func (d *Driver) keepResults(id sliver.ID, results []slice.ExecResult) {
	text, err := json.Marshal(results)
	if err == nil {
		err = d.Machine.Runtime.Note(id, plan.ExecNote, string(text))
	}
	if err != nil {
		d.Warn(id, fmt.Sprintf("keep the output of exec lines: %v", err))
	}
}
