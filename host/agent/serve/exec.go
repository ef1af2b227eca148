package serve

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/host/probe/running"
	"github.com/pergola-net/pergola/host/sliver"
)

// Exec runs a command in a node. How its routing daemon is configured is noted before the first one.
func (s *Server) Exec(ctx context.Context, name, node string, r api.ExecRequest) (int, error) {
	id, _, err := s.find(name, node)
	if err != nil {
		return 0, err
	}
	s.noteRouting(ctx, name, id)
	return s.machine.Runtime.Exec(ctx, id, sliver.ExecRequest{
		Args: r.Command, Env: environment(r.Env), Dir: r.Dir, TTY: r.TTY, Resize: sizes(ctx, r.Size, r.Resize),
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	})
}

// startTime is how long after its start a node keeps a command waiting whose routing daemon has not loaded its files:
// what the command changed before, nobody could tell from what they say.
const startTime = 5 * time.Second

// noteRouting notes how a node's routing daemon is configured, before somebody gets in who may change that. If the
// daemon does not say so, the next one who gets in tries again.
func (s *Server) noteRouting(ctx context.Context, name string, id sliver.ID) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return
	}
	n := w.Spec.Node(id.Node)
	if n == nil || n.Routing == nil {
		return
	}
	if o, err := s.machine.Runtime.Observe(id); err == nil {
		d := running.Daemon{Runtime: s.machine.Runtime, ID: id, Kind: n.Routing.Daemon}
		_ = d.Note(ctx, o.StartedAt.Add(startTime))
	}
}

// environment splits NAME=value lines.
func environment(lines []string) map[string]string {
	env := make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

// sizes forwards the sizes of a terminal, the first one first, until ctx ends or there will be none.
func sizes(ctx context.Context, first api.Size, in <-chan api.Size) <-chan [2]uint16 {
	out := make(chan [2]uint16, 1)
	if first != (api.Size{}) {
		out <- [2]uint16{first.Cols, first.Rows}
	}
	go func() {
		for {
			select {
			case s, open := <-in:
				if !open {
					return
				}
				select {
				case out <- [2]uint16{s.Cols, s.Rows}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Capture copies frames of an interface, as pcapng.
func (s *Server) Capture(
	ctx context.Context, name, node, iface string, opt api.CaptureOptions, w io.Writer,
) error {
	id, pid, err := s.find(name, node)
	if err != nil && !errors.As(err, new(errPaused)) {
		return err
	}
	defer s.fastPath.Capture(id)()
	filter, err := probe.CompileFilter(ctx, opt.Filter)
	if err != nil {
		return err
	}
	options := probe.CaptureOptions{Filter: filter, Snaplen: opt.Snaplen, Count: opt.Count}
	return probe.Capture(ctx, pid, iface, options, w)
}
