package serve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
)

// mute is a runtime whose nodes run commands that never end.
type mute struct{ machine.Runtime }

func (mute) Exec(ctx context.Context, _ sliver.ID, _ sliver.ExecRequest) (int, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func TestDaemonsThatDoNotAnswerAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{machine: &machine.Machine{Runtime: mute{}}}
		begun := time.Now()
		_, err := s.askDaemons(t.Context(), sliver.ID{Slice: 1, Node: "a"})
		if took := time.Since(begun); took != askTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
