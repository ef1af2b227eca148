package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/containerd/console"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/slice"
	"github.com/pergola-net/pergola/store"
)

// fakeAgent reports every slice as running at once and runs commands on the machine itself.
type fakeAgent struct {
	cfg AgentConfig
}

func newFake(_ context.Context, cfg AgentConfig) (Agent, error) { return &fakeAgent{cfg: cfg}, nil }

func (f *fakeAgent) Supports(s *slice.Slice) error {
	for _, l := range s.Links {
		for _, e := range l.Ends {
			if e.Shape.NeedsNetem() {
				return errors.New("link delay needs the kernel module sch_netem")
			}
		}
	}
	return nil
}

func (f *fakeAgent) Retry(context.Context, string) {}

func (f *fakeAgent) Run(ctx context.Context) error {
	changes, err := f.cfg.Store.Watch(ctx)
	if err != nil {
		return err
	}
	records, err := f.cfg.Store.Slices(ctx)
	if err != nil {
		return err
	}
	for _, r := range records {
		f.settle(ctx, r.Name)
	}
	for c := range changes {
		if c.What == store.SpecChanged || c.What == store.OverridesChanged {
			f.settle(ctx, c.Slice)
		}
	}
	return nil
}

func (f *fakeAgent) settle(ctx context.Context, name string) {
	s, r, err := f.cfg.Store.Slice(ctx, name)
	if err != nil {
		return
	}
	if r.Going {
		if err := f.cfg.Store.Release(ctx, f.cfg.Host, name); err != nil {
			f.cfg.Log.Error("release", "error", err)
		}
		return
	}
	o, _ := f.cfg.Store.Overrides(ctx, name)
	st := slice.Status{Slice: name, Generation: r.Generation, Settled: true, Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{}}
	for _, n := range s.Nodes {
		phase := slice.Running
		switch o.Power[n.Name] {
		case slice.PowerOff:
			phase = slice.Stopped
		case slice.PowerFrozen:
			phase = slice.Paused
		case slice.PowerOn:
		}
		st.Nodes[n.Name] = slice.NodeStatus{Phase: phase, Host: f.cfg.Host}
	}
	for _, l := range s.Links {
		st.Links[l.Name] = slice.LinkStatus{Up: !o.Down[l.Name]}
	}
	if err := f.cfg.Store.PutStatus(ctx, f.cfg.Host, st); err != nil {
		f.cfg.Log.Error("report", "error", err)
	}
}

func (f *fakeAgent) Exec(ctx context.Context, _, node string, r api.ExecRequest) (int, error) {
	if node == "off" {
		return 0, fmt.Errorf("node %s: %w", node, api.ErrNotRunning)
	}
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	cmd.Env, cmd.Dir = r.Env, r.Dir
	if r.TTY {
		return runTTY(cmd, r)
	}
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		_, _ = io.Copy(in, r.Stdin)
		in.Close()
	}()
	return exitOf(cmd.Wait())
}

func runTTY(cmd *exec.Cmd, r api.ExecRequest) (int, error) {
	pty, name, err := console.NewPty()
	if err != nil {
		return 0, err
	}
	defer pty.Close()
	slave, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	_ = pty.Resize(console.WinSize{Height: r.Size.Rows, Width: r.Size.Cols})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	slave.Close()
	go func() { _, _ = io.Copy(pty, r.Stdin) }()
	ended := make(chan struct{})
	var sizes sync.WaitGroup
	sizes.Go(func() {
		for {
			select {
			case size, ok := <-r.Resize:
				if !ok {
					return
				}
				_ = pty.Resize(console.WinSize{Height: size.Rows, Width: size.Cols})
			case <-ended:
				return
			}
		}
	})
	_, _ = io.Copy(r.Stdout, pty) // ends with EIO when the last process has closed the terminal
	close(ended)
	sizes.Wait()
	return exitOf(cmd.Wait())
}

func exitOf(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

func (f *fakeAgent) Logs(ctx context.Context, _, node string, opt api.LogOptions, w io.Writer) error {
	if node == "off" {
		return fmt.Errorf("node %s: %w", node, api.ErrNotRunning)
	}
	fmt.Fprintf(w, "tail %d\n", opt.Tail)
	if opt.Follow {
		<-ctx.Done()
	}
	if opt.Tail == 99 {
		return errors.New("the file\nwent away")
	}
	return nil
}

func (f *fakeAgent) Capture(_ context.Context, _, _, iface string, opt api.CaptureOptions, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s %q %d %d", iface, opt.Filter, opt.Snaplen, opt.Count)
	return err
}

func (f *fakeAgent) Convergence(context.Context, string) (api.Convergence, error) {
	return api.Convergence{Routers: 2, Pairs: 2, Reached: 1, Missing: []string{"b: no route to 10.0.0.1"}}, nil
}

func (f *fakeAgent) Check(_ context.Context, _ string, r api.CheckRequest, progress func(api.CheckProgress)) ([]api.CheckResult, error) {
	if r.Timeout == 13 {
		return nil, errors.New("an unlucky check")
	}
	progress(api.CheckProgress{Done: 1, Total: 2})
	progress(api.CheckProgress{Done: 2, Total: 2, Failed: 1})
	return []api.CheckResult{{Name: "a to b", OK: true}, {Name: "b to a", Message: "no answer"}}, nil
}

func (f *fakeAgent) FastPath(context.Context, string) (api.FastPath, error) {
	return api.FastPath{Routers: []api.RouterFastPath{}}, nil
}

func (f *fakeAgent) Verify(context.Context, string, ...string) (api.Verification, error) {
	return api.Verification{}, nil
}

func (f *fakeAgent) Traffic(context.Context, string) (api.SliceTraffic, error) {
	return api.SliceTraffic{}, nil
}
