package drive

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
)

// lingering is a runtime with one sliver, whose commands run until it is deleted. That takes its time.
type lingering struct {
	machine.Runtime
	deleted chan struct{}

	mu    sync.Mutex // guards notes
	notes map[string]string
}

func (l *lingering) Observe(id sliver.ID) (sliver.Observed, error) {
	return sliver.Observed{ID: id, State: sliver.Running, PID: 7}, nil
}

func (l *lingering) Exec(context.Context, sliver.ID, sliver.ExecRequest) (int, error) {
	<-l.deleted
	return 128 + 9, nil
}

func (l *lingering) Delete(context.Context, sliver.ID) error {
	close(l.deleted)
	return nil
}

func (l *lingering) Note(_ sliver.ID, key, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes[key] = value
	return nil
}

// A line that ends because its node is made anew is no failure of the node that follows.
func TestALineThatEndsWithItsNodeDoesNotFail(t *testing.T) {
	r := &lingering{deleted: make(chan struct{}), notes: map[string]string{}}
	ended := make(chan struct{})
	d := New(Config{
		Machine: &machine.Machine{Runtime: r}, FastPath: fastpath.New(slog.New(slog.DiscardHandler), nil),
		Warn: func(_ sliver.ID, message string) { t.Error(message) },
		Wake: func() { close(ended) },
	})
	id := sliver.ID{Slice: 1, Node: "r1"}
	if err := d.boot(t.Context(), id, []string{"sleep 100"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	if got, ok := r.notes[plan.ExecNote]; ok {
		t.Errorf("the node that follows is told: %s", got)
	}
	if r.notes[plan.NoteOf[plan.KindBoot]] != plan.Booted {
		t.Error("the lines were not begun")
	}
}
