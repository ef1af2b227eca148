package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// Soon is how long a change that was asked for by hand may take before the wait ends.
const Soon = 30 * time.Second

// Until waits until a host reports that something holds, and that it has nothing left to do.
func Until(ctx context.Context, s Server, p *ui.Progress, name, what string, holds func(*slice.Status) bool) error {
	soon, cancel := context.WithTimeout(ctx, Soon)
	defer cancel()
	var last slice.Status
	held := false
	p.Step(what, 0, 0)
	err := s.Progress(soon, name, func(m api.Progress) bool {
		last = m.Status
		held = m.Status.Settled && holds(&m.Status)
		return held || m.Gone
	})
	switch {
	case held:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case soon.Err() != nil:
		return ui.Advise(fmt.Errorf("%s: asked for, but not done within %s", what, ui.Elapsed(Soon)), "%s",
			list(last.Errors))
	case err == nil:
		err = errors.New("the network was taken down")
	}
	return fmt.Errorf("%s: %w", what, err)
}

// NodeIs reports whether a node is as a verb wants it, from what was reported before it was asked for and now.
func NodeIs(verb api.NodeVerb, before, now slice.NodeStatus) bool {
	switch verb {
	case api.NodeStop:
		return now.Phase == slice.Stopped
	case api.NodePause:
		return now.Phase == slice.Paused
	case api.NodeRestart:
		return now.Phase == slice.Running && (before.PID == 0 || now.PID != before.PID)
	default:
		return now.Phase == slice.Running
	}
}

// LinkIs reports whether a link is as users changed it by hand. One whose nodes do not run need not be up.
func LinkIs(l *slice.Link, wanted *slice.Overrides, st *slice.Status) bool {
	now, known := st.Links[l.Name]
	if !known {
		return false
	}
	running := true
	for _, e := range l.Ends {
		running = running && st.Nodes[e.Node].Phase == slice.Running
		shape, changed := wanted.Shapes[e.String()]
		changed = changed && !shape.Equal(e.Shape)
		if got, is := now.Shapes[e.String()]; is != changed || changed && !got.Equal(shape) {
			return false
		}
	}
	if wanted.Down[l.Name] {
		return !now.Up
	}
	return now.Up || !running
}

// ServerEnd waits until a process of this machine has ended, and reports whether it has. One that cannot be watched
// counts as ended.
func ServerEnd(ctx context.Context, pid int, patience time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	const look = 100 // milliseconds between looks at ctx
	for deadline := time.Now().Add(patience); ctx.Err() == nil && time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, look)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
	return false
}
