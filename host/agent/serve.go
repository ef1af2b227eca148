package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// The methods below implement rest.Agent, which documents them.

// Supports says what this machine lacks for a slice.
func (a *Agent) Supports(ctx context.Context, s *slice.Slice) error {
	at := a.place()
	var netem, htb bool
	for i := range s.Links {
		for _, e := range s.Links[i].Ends {
			if n := s.Node(e.Node); a.cfg.Cluster != nil && n != nil && n.Kind != slice.Switch && !at.Owns(n) {
				continue // shaped on another host
			}
			netem = netem || e.Shape.NeedsNetem()
			htb = htb || e.Shape.NeedsHTB()
		}
	}
	missing := []error{canRender(s), a.haveRoots(ctx, s)}
	if netem {
		missing = append(missing, a.platform.HaveNetem())
	}
	if htb {
		missing = append(missing, a.platform.HaveHTB())
	}
	return errors.Join(missing...)
}

// canRender works all nodes out, wherever they are.
func canRender(s *slice.Slice) error {
	r := routing.NewRenderer(s)
	for i := range s.Nodes {
		if s.Nodes[i].Kind == slice.Switch {
			continue
		}
		if _, err := r.Render(&s.Nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// haveRoots checks that there is what the file systems of this host's nodes are to come from.
func (a *Agent) haveRoots(ctx context.Context, s *slice.Slice) error {
	at := a.place()
	users := make(map[slice.Rootfs]string) // the first node of each
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if _, known := users[n.Rootfs]; !known && (a.cfg.Cluster == nil || at.Owns(n)) {
			users[n.Rootfs] = n.Name
		}
	}
	var group sync.WaitGroup
	missing := make(chan error, len(users))
	for from, node := range users {
		group.Go(func() {
			if err := a.runtime.Available(ctx, from); err != nil {
				missing <- fmt.Errorf("root file system of %s: %w", node, err)
			}
		})
	}
	group.Wait()
	close(missing)
	var all []error
	for err := range missing {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// find gives a slice and the process of one of its nodes that runs.
func (a *Agent) find(name, node string) (id sliver.ID, pid int, err error) {
	a.mu.Lock()
	w := a.wishes[name]
	a.mu.Unlock()
	if w == nil {
		return id, 0, fmt.Errorf("slice %s is not on this host", name)
	}
	n := w.Spec.Node(node)
	switch {
	case n == nil:
		return id, 0, fmt.Errorf("slice %s has no node %s", name, node)
	case !a.place().Owns(n):
		return id, 0, fmt.Errorf("%s is on host %s, and this is %s: %w", node, n.Host, a.cfg.Host, api.ErrNotRunning)
	case !n.HasSliver():
		return id, 0, fmt.Errorf("%s is a %s, which has no processes of its own: %w", node, n.Kind, api.ErrNotRunning)
	}
	id = sliver.ID{Slice: w.Spec.ID, Node: node}
	s, err := a.runtime.Observe(id)
	if errors.Is(err, sliver.ErrNotFound) || err == nil && s.State != sliver.Running && s.State != sliver.Paused {
		return id, 0, fmt.Errorf("%s: %w", node, api.ErrNotRunning)
	}
	if err != nil {
		return id, 0, err
	}
	if s.State == sliver.Paused {
		return id, s.PID, errPaused{node}
	}
	return id, s.PID, nil
}

// errPaused stops what needs a node's processes, but not those who only look.
type errPaused struct{ node string }

func (e errPaused) Error() string {
	return fmt.Sprintf("%s is paused: `pergola node resume %s` lets it go on", e.node, e.node)
}
func (e errPaused) Unwrap() error { return api.ErrNotRunning }

// Exec runs a command in a node.
func (a *Agent) Exec(ctx context.Context, name, node string, r api.ExecRequest) (int, error) {
	id, _, err := a.find(name, node)
	if err != nil {
		return 0, err
	}
	return a.runtime.Exec(ctx, id, sliver.ExecRequest{
		Args: r.Command, Env: environment(r.Env), Dir: r.Dir, TTY: r.TTY, Resize: sizes(ctx, r.Size, r.Resize),
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr,
	})
}

// Logs writes what a node's first process printed, also that of one that has ended.
func (a *Agent) Logs(ctx context.Context, name, node string, opt api.LogOptions, w io.Writer) error {
	return follow(ctx, a.runtime.LogPath(name, node), opt.Tail, opt.Follow, w)
}

// Capture copies frames of an interface, as pcapng.
func (a *Agent) Capture(ctx context.Context, name, node, iface string, opt api.CaptureOptions, w io.Writer) error {
	id, pid, err := a.find(name, node)
	if err != nil && !errors.As(err, new(errPaused)) {
		return err
	}
	defer a.fast.watched(id)()
	filter, err := probe.CompileFilter(ctx, opt.Filter)
	if err != nil {
		return err
	}
	return probe.Capture(ctx, pid, iface, probe.CaptureOptions{Filter: filter, Snaplen: opt.Snaplen, Count: opt.Count}, w)
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

// sizes hands on the sizes of a terminal, the first one first, until ctx ends or there will be none.
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

// running gives a slice and the first process of each of its nodes that has one.
func (a *Agent) running(name string) (*plan.Input, map[string]int, error) {
	a.mu.Lock()
	w := a.wishes[name]
	a.mu.Unlock()
	if w == nil {
		return nil, nil, fmt.Errorf("slice %s is not on this host", name)
	}
	all, err := a.runtime.List()
	if err != nil {
		return nil, nil, err
	}
	pids := make(map[string]int)
	for _, s := range all {
		if s.ID.Slice == w.Spec.ID && s.State == sliver.Running {
			pids[s.ID.Node] = s.PID
		}
	}
	return w, pids, nil
}
