package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/console"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// fakeAgent reports every slice as running at once and runs commands on the machine itself.
type fakeAgent struct {
	volumes []api.Volume
	cfg     AgentConfig
}

// fakeTTL is short, so that a host that has gone is lost soon.
const fakeTTL = 2 * time.Second

func newFake(_ context.Context, cfg AgentConfig) (Agent, error) { return &fakeAgent{cfg: cfg}, nil }

func (f *fakeAgent) Supports(_ context.Context, s *slice.Slice) ([]string, error) {
	for _, l := range s.Links {
		for _, e := range l.Ends {
			if e.Shape.NeedsNetem() {
				return nil, errors.New("link delay needs the kernel module sch_netem")
			}
		}
	}
	return nil, nil
}

func (f *fakeAgent) HaveRoom(context.Context, *hosts.Host, *slice.Slice, map[string]slice.Shape) error {
	return nil
}

func (f *fakeAgent) Lacks() []string { return nil }

func (f *fakeAgent) Reservable() slice.Reserve { return slice.Reserve{Filters: 1000, Masks: 100} }

func (f *fakeAgent) Capacity() (cores float64, memory uint64) { return 8, 8 << 30 }

func (f *fakeAgent) Retry(context.Context, string) {}

func (f *fakeAgent) Run(ctx context.Context) error {
	if m := f.cfg.Cluster; m != nil {
		host := hosts.Host{
			Name: f.cfg.Host, Machine: m.Machine, Address: m.Address, API: m.API, Cores: 8, Memory: 8 << 30,
			Reservable: f.Reservable(),
			Labels:     m.Labels, Version: m.Version,
			Allows: f.cfg.Terms.Terms().Allowance,
			Underlays: []hosts.Underlay{
				{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(m.Address, 24)}, MTU: 1500,
					XDP: "native"}},
		}
		lease, err := f.cfg.Store.Register(ctx, host, fakeTTL)
		for err != nil && !errors.Is(err, store.ErrNoHost) && !errors.Is(err, store.ErrNameTaken) &&
			ctx.Err() == nil {
			select { // asks again, as agents do, until the servers answer
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			lease, err = f.cfg.Store.Register(ctx, host, fakeTTL)
		}
		if err != nil {
			return err
		}
		defer func() {
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = lease.Close(farewell) // the servers may have gone before
		}()
	}
	changes, err := f.cfg.Store.Watch(ctx)
	if err != nil {
		return err
	}
	records, err := f.cfg.Store.Slices(ctx)
	if errors.Is(err, store.ErrUnreachable) { // the changes begin with a Resync
		err = nil
	}
	if err != nil {
		return err
	}
	for _, r := range records {
		f.settle(ctx, r.Name)
	}
	for c := range changes {
		switch c.What {
		case store.SpecChanged, store.OverridesChanged:
			f.settle(ctx, c.Slice)
		case store.Resync:
			records, _ := f.cfg.Store.Slices(ctx) // another Resync follows
			for _, r := range records {
				f.settle(ctx, r.Name)
			}
		case store.StatusChanged, store.LinkStateChanged, store.Gone, store.HostsChanged:
		}
	}
	return nil
}

func (f *fakeAgent) settle(ctx context.Context, name string) {
	s, r, err := f.cfg.Store.Slice(ctx, name)
	if err != nil {
		return
	}
	if r.Deleting {
		if err := f.cfg.Store.Release(ctx, f.cfg.Host, name); err != nil {
			f.cfg.Log.Error("release", "error", err)
		}
		return
	}
	o, _ := f.cfg.Store.Overrides(ctx, name)
	st := slice.Status{Slice: name, Generation: r.Generation, Settled: true, Nodes: map[string]slice.NodeStatus{},
		Links: map[string]slice.LinkStatus{}}
	for _, n := range s.Nodes {
		if !f.owns(n.Host) {
			continue
		}
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
	if f.cfg.Cluster != nil {
		f.cfg.Events.Publish(events.Event{Slice: name, Kind: events.NodeChanged, Message: f.cfg.Host})
	}
	if err := f.cfg.Store.PutStatus(ctx, f.cfg.Host, st); err != nil {
		f.cfg.Log.Error("report", "error", err)
	}
}

// owns is the contract's rule.
func (f *fakeAgent) owns(host string) bool {
	return host == f.cfg.Host || host == "" && (f.cfg.Cluster == nil || !f.cfg.Cluster.Joined)
}

// own lists the nodes of a slice that this host has.
func (f *fakeAgent) own(ctx context.Context, name string) (names []string) {
	s, _, err := f.cfg.Store.Slice(ctx, name)
	if err != nil {
		return nil
	}
	for _, n := range s.Nodes {
		if f.owns(n.Host) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (f *fakeAgent) Exec(ctx context.Context, _, node string, r api.ExecRequest) (int, error) {
	if node == "off" {
		return 0, fmt.Errorf("node %s: %w", node, api.ErrNotRunning)
	}
	if r.Command[0] == "where" {
		_, err := fmt.Fprint(r.Stdout, f.cfg.Host)
		return 0, err
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

func (f *fakeAgent) Addresses(context.Context, string) (map[string][]netip.Addr, error) {
	return map[string][]netip.Addr{f.cfg.Host: {netip.MustParseAddr("192.0.2.1")}}, nil
}
func (f *fakeAgent) Check(ctx context.Context, name string, r api.CheckRequest,
	progress func(api.CheckProgress)) ([]api.CheckResult, error) {
	if r.Timeout == 13 {
		return nil, errors.New("an unlucky check")
	}
	if f.cfg.Cluster != nil {
		var results []api.CheckResult
		own := f.own(ctx, name)
		for i, n := range own {
			progress(api.CheckProgress{Done: i + 1, Total: len(own)})
			results = append(results, api.CheckResult{Name: n, From: n, OK: true, Message: f.cfg.Host +
				" knows of " + strings.Join(slices.Sorted(maps.Keys(r.Addresses)), ",")})
		}
		return results, nil
	}
	progress(api.CheckProgress{Done: 1, Total: 2})
	progress(api.CheckProgress{Done: 2, Total: 2, Failed: 1})
	return []api.CheckResult{{Name: "a to b", OK: true}, {Name: "b to a", Message: "no answer"}}, nil
}

func (f *fakeAgent) FastPath(ctx context.Context, name string) (api.FastPath, error) {
	fast := api.FastPath{Routers: []api.RouterFastPath{}}
	if f.cfg.Cluster != nil {
		for _, n := range f.own(ctx, name) {
			fast.Routers = append(fast.Routers, api.RouterFastPath{Node: n, Trouble: f.cfg.Host})
		}
		fast.Memory.Bytes = api.Share{Used: 1, Bound: 10}
	}
	return fast, nil
}

func (f *fakeAgent) Verify(ctx context.Context, name string, nodes ...string) (api.Verification, error) {
	var v api.Verification
	if f.cfg.Cluster != nil && len(nodes) == 0 {
		nodes = f.own(ctx, name)
	}
	v.Routers = nodes
	for _, n := range nodes {
		v.Differences = append(v.Differences, api.Difference{Node: n, What: f.cfg.Host})
	}
	return v, nil
}

func (f *fakeAgent) Underlay(context.Context) (api.UnderlayTraffic, error) {
	return api.UnderlayTraffic{Dropped: map[string]uint64{f.cfg.Host: 1}}, nil
}

// LSPs finds nothing wrong with own nodes.
func (f *fakeAgent) LSPs(ctx context.Context, name string, _ ...string) (all api.SliceLSPs, err error) {
	for _, n := range f.own(ctx, name) {
		all.Hops = append(all.Hops, api.LSPHop{LSP: "a--c", Node: n})
	}
	return all, nil
}

// Queues counts what own nodes send into their first link.
func (f *fakeAgent) Queues(ctx context.Context, name string, links ...string) (all []api.QueueTraffic, err error) {
	if f.cfg.Cluster != nil {
		for _, n := range f.own(ctx, name) {
			q := api.QueueTraffic{Link: strings.Join(links, " "), From: n + ":eth1", Class: "voice"}
			all = append(all, q)
		}
	}
	return all, nil
}

// Programs says that own nodes have programs.
func (f *fakeAgent) Volumes(context.Context) ([]api.Volume, error) { return f.volumes, nil }

func (f *fakeAgent) RemoveVolumes(_ context.Context, name string) error {
	f.volumes = slices.DeleteFunc(f.volumes, func(v api.Volume) bool { return v.Slice == name })
	return nil
}

func (f *fakeAgent) Changes(_ context.Context, _ string, q api.ChangesQuery) ([]api.NodeChanges, error) {
	return []api.NodeChanges{{Node: "a", Routing: true, Unknown: strings.Join(q.Nodes, " ")}}, nil
}

func (f *fakeAgent) Programs(ctx context.Context, name string, nodes ...string) (all []api.NodeProgram, err error) {
	if f.cfg.Cluster != nil && len(nodes) == 0 {
		nodes = f.own(ctx, name)
	}
	for _, n := range nodes {
		all = append(all, api.NodeProgram{Node: n, Counters: map[string]uint64{"passed": 3}})
	}
	return all, nil
}

// Filters says which host has them.
func (f *fakeAgent) Filters(_ context.Context, _, node string) (api.NodeFilters, error) {
	all := api.NodeFilters{Node: node, Key: []api.KeyField{}, Filters: []api.Filter{}}
	if f.cfg.Cluster != nil {
		all.Filters = append(all.Filters, api.Filter{Match: f.cfg.Host})
	}
	return all, nil
}

func (f *fakeAgent) ChangeFilters(context.Context, string, string, api.FilterChange) error {
	return nil
}

func (f *fakeAgent) ReplaceFilters(context.Context, string, string, []string) error { return nil }

func (f *fakeAgent) Traffic(ctx context.Context, name string) (api.SliceTraffic, error) {
	var t api.SliceTraffic
	if f.cfg.Cluster != nil {
		for _, n := range f.own(ctx, name) {
			t.Interfaces = append(t.Interfaces, api.InterfaceTraffic{Node: n, Interface: "eth1"})
			t.Tunnels = append(t.Tunnels, api.TunnelTraffic{To: "other end", Port: n})
		}
	}
	return t, nil
}
