package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// world is a server without a machine: the real store, controller and API on a unix socket, and a host that only says
// that it did everything.
type world struct {
	socket string
	store  *store.Store
	bus    *events.Bus
	server *http.Server
	*host

	mu     sync.Mutex                     // guards all below
	seen   map[string]func(*http.Request) // by the end of a path: called when a request comes
	caller *controller.Caller             // the user of requests; nil: the one that runs the test
}

const timeout = 20 * time.Second // of anything that should happen at once

func newWorld(t *testing.T, change ...func(*rest.Config, *store.Store)) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	s, err := store.Open(ctx, store.Config{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		socket: filepath.Join(dir, "pergola.sock"), store: s, bus: events.NewBus(100),
		host: &host{store: s, machines: []string{"here"}}, seen: map[string]func(*http.Request){},
	}
	blobs := blob.Dir(filepath.Join(dir, "blobs"))
	cfg := rest.Config{
		Records: s, Store: s, Controller: controller.New(s, w.host, blobs,
			w.bus), Agent: w.host, Blobs: blobs, Events: w.bus, Version: "v-test",
	}
	for _, c := range change {
		c(&cfg, s)
	}
	if cfg.Cluster != nil {
		w.machines = []string{"h1", "h2", "h3"}
	}
	handler := rest.New(cfg)
	w.server = &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(rw, w.notice(r))
		}),
		ConnContext: rest.WithPeer,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	listener, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.server.Serve(listener) })
	running.Go(func() { w.work(ctx, changes) })
	t.Cleanup(func() {
		cancel()
		w.server.Close()
		running.Wait()
		s.Close()
	})
	t.Setenv("PERGOLA_SOCKET", w.socket)
	return w
}

// when calls f at the next request whose path ends so.
func (w *world) when(end string, f func(*http.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[end] = f
}

// be makes all further requests those of a user.
func (w *world) be(who controller.Caller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caller = &who
}

func (w *world) notice(r *http.Request) *http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end, f := range w.seen {
		if strings.HasSuffix(r.URL.Path, end) {
			delete(w.seen, end)
			f(r)
		}
	}
	if w.caller != nil {
		r = r.WithContext(rest.WithMember(r.Context(), pki.Member{Name: "h1", Role: pki.Server}, *w.caller))
	}
	return r
}

// outcome is what one command line did.
type outcome struct {
	status    int
	out, errs string
}

func (o outcome) String() string { return fmt.Sprintf("status %d\n%s--\n%s", o.status, o.out, o.errs) }

// pergola carries out one command line, in a pipe.
func pergola(t *testing.T, args ...string) outcome {
	t.Helper()
	return pergolaWith(t.Context(), t, "", args...)
}

func pergolaWith(ctx context.Context, t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the command did not end"))
	defer cancel()
	var out, errs bytes.Buffer
	status := run(ctx, args, ui.New(strings.NewReader(stdin), &out, &errs))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("pergola %s did not end:\n%s%s", strings.Join(args, " "), &out, &errs)
	}
	return outcome{status, out.String(), errs.String()}
}

// host is the agent of the world. Everything that is wanted is done at once, unless hold is set.
type host struct {
	store    *store.Store
	machines []string // that it stands for

	mu       sync.Mutex // guards all below
	hold     bool       // nothing settles
	fault    string     // what fails, again and again
	doubts   []string
	lacks    error             // what the machine lacks
	waiting  int               // how often routing has not converged yet
	commands []string          // that were run, as node: words
	looks    uint64            // at the traffic
	filters  []string          // of program nodes
	changes  []api.NodeChanges // made by hand
	volumes  []api.Volume
	behind   int // how often it will answer about LSPs by the version before
}

// set changes what the host does.
func (h *host) set(change func(*host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

func (h *host) work(ctx context.Context, changes <-chan store.Change) {
	for c := range changes {
		if c.What == store.StatusChanged || c.What == store.Gone || c.Slice == "" {
			continue
		}
		spec, record, err := h.store.Slice(ctx, c.Slice)
		if err != nil {
			continue
		}
		if h.held() {
			_ = h.store.PutStatus(ctx, "here", slice.Status{Slice: c.Slice, Generation: record.Generation,
				Done: 1, Total: 4, Errors: h.faults()})
			continue
		}
		if record.Deleting {
			for _, host := range h.machines {
				_ = h.store.Release(ctx, host, c.Slice)
			}
			continue
		}
		o, _ := h.store.Overrides(ctx, c.Slice)
		for _, host := range h.machines {
			st := done(spec, o, record.Generation)
			for name := range st.Nodes {
				if on := spec.Node(name).Host; on != "" && on != host {
					delete(st.Nodes, name)
				}
			}
			_ = h.store.PutStatus(ctx, host, st)
		}
	}
}

func (h *host) held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hold
}

func (h *host) faults() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault == "" {
		return nil
	}
	return []string{h.fault}
}

// done is the status of a host that has nothing left to do.
func done(spec *slice.Slice, o slice.Overrides, generation int64) slice.Status {
	st := slice.Status{Slice: spec.Name, Generation: generation, Settled: true,
		Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{}}
	phases := map[slice.Power]slice.Phase{slice.PowerOff: slice.Stopped, slice.PowerFrozen: slice.Paused}
	for i, n := range spec.Nodes {
		phase, ok := phases[o.Power[n.Name]]
		if !ok {
			phase = slice.Running
		}
		st.Nodes[n.Name] = slice.NodeStatus{Phase: phase, PID: 100 + i + 100*o.Restarts[n.Name],
			Restarts: o.Restarts[n.Name]}
	}
	for _, l := range spec.Links {
		link := slice.LinkStatus{Up: !o.Down[l.Name], Shapes: map[string]slice.Shape{}}
		for _, e := range l.Ends {
			if shape, changed := o.Shapes[e.String()]; changed && !shape.Equal(e.Shape) {
				link.Shapes[e.String()] = shape
			}
		}
		st.Links[l.Name] = link
	}
	return st
}

func (h *host) HaveRoom(context.Context, *hosts.Host, *slice.Slice, map[string]slice.Shape) error {
	return nil
}

func (h *host) Lacks() []string { return nil }

func (h *host) Reservable() slice.Reserve { return slice.Reserve{Filters: 1000} }

func (h *host) Capacity() (cores float64, memory uint64) { return 8, 8 << 30 }

func (h *host) Supports(context.Context, *slice.Slice) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doubts, h.lacks
}

// Exec has the programs cat and false, tar and test as this machine has them, and echo for all other words.
func (h *host) Exec(ctx context.Context, _, node string, r api.ExecRequest) (int, error) {
	h.set(func(h *host) { h.commands = append(h.commands, node+": "+strings.Join(r.Command, " ")) })
	switch r.Command[0] {
	case "cat":
		_, err := io.Copy(r.Stdout, r.Stdin)
		return 0, err
	case "false":
		fmt.Fprintln(r.Stderr, "it is false")
		return 3, nil
	case "tar", "test":
		cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
		err := cmd.Run()
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return ended.ExitCode(), nil
		}
		return 0, err
	}
	fmt.Fprintln(r.Stdout, strings.Join(r.Command, " "))
	return 0, nil
}

func (h *host) Logs(ctx context.Context, _, node string, opt api.LogOptions, w io.Writer) error {
	fmt.Fprintf(w, "%s says hello (tail %d)\n", node, opt.Tail)
	if opt.Follow {
		<-ctx.Done()
	}
	return nil
}

func (h *host) Capture(_ context.Context, _, _, _ string, opt api.CaptureOptions, w io.Writer) error {
	p := pcapgo.NewWriterNanos(w)
	if err := p.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		return err
	}
	for range opt.Count {
		if err := p.WritePacket(gopacket.CaptureInfo{CaptureLength: 60, Length: 60},
			make([]byte, 60)); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) Convergence(context.Context, string) (api.Convergence, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting > 0 {
		h.waiting--
		return api.Convergence{Routers: 2, Pairs: 2, Reached: 1, Missing: []string{"b: no route to a"}}, nil
	}
	return api.Convergence{Converged: true, Routers: 2, Pairs: 2, Reached: 2}, nil
}

func (h *host) Addresses(context.Context, string) (map[string][]netip.Addr, error) { return nil, nil }
func (h *host) Check(_ context.Context, _ string, r api.CheckRequest,
	progress func(api.CheckProgress)) ([]api.CheckResult, error) {
	results := []api.CheckResult{
		{Name: "there", Kind: slice.CheckPing, From: "a", To: "b", OK: true, RTT: 90000, Duration: 1e6},
		{
			Name:     "back",
			Kind:     slice.CheckPing,
			From:     "b",
			To:       "a",
			OK:       !r.AllPairs,
			Message:  "no answer",
			Duration: 1e6,
		},
	}
	for i := range results {
		progress(api.CheckProgress{Done: i + 1, Total: len(results)})
	}
	return results, nil
}

func (h *host) FastPath(_ context.Context, name string) (api.FastPath, error) {
	spec, _, err := h.store.Slice(context.Background(), name)
	if err != nil {
		return api.FastPath{}, err
	}
	f := api.FastPath{Routers: []api.RouterFastPath{},
		Memory: api.FastPathMemory{Bytes: api.Share{Used: 1 << 20, Bound: 1 << 30}}}
	for _, n := range spec.Nodes {
		if n.Kind == slice.Router {
			f.Routers = append(f.Routers, api.RouterFastPath{
				Node: n.Name, IPv4: api.FamilyFastPath{On: true},
				IPv6: api.FamilyFastPath{Why: []string{"an ip rule of the user"}},
				Interfaces: []api.InterfaceFastPath{{Interface: "eth1",
					IPv4: []string{"net.ipv4.conf.eth1.rp_filter is not 0"}}},
				Routes: 12, Neighbours: 3, Punts: map[string]uint64{"ttl": 2, "no route": 5},
			})
		}
	}
	return f, nil
}

// Verify finds what is wrong with the host, if it has a fault.
func (h *host) Verify(_ context.Context, _ string, nodes ...string) (api.Verification, error) {
	v := api.Verification{Routers: append([]string{"a", "b"}, nodes...)[len(nodes):],
		Differences: []api.Difference{}}
	if faults := h.faults(); len(faults) > 0 {
		v.Differences = append(v.Differences, api.Difference{Node: "a", What: "192.0.2.0/24", Kernel: "by eth1",
			Mirror: faults[0]})
	}
	return v, nil
}

func (h *host) Retry(context.Context, string) {}

func (h *host) Underlay(context.Context) (api.UnderlayTraffic, error) {
	return api.UnderlayTraffic{Received: 12, Sent: 3, Dropped: map[string]uint64{"unknown tunnel": 2}}, nil
}

// LSPs says that static ones are up, and that others are by the way that they are to have.
func (h *host) LSPs(_ context.Context, name string, lsps ...string) (all api.SliceLSPs, err error) {
	spec, _, err := h.store.Slice(context.Background(), name)
	if err != nil {
		return all, err
	}
	h.set(func(h *host) {
		if all.Generation = spec.Generation; h.behind > 0 {
			all.Generation--
			h.behind--
		}
	})
	for _, l := range spec.LSPs {
		if len(lsps) > 0 && !slices.Contains(lsps, l.Name) {
			continue
		}
		if l.Signal != nil {
			all.Signalled = append(all.Signalled, api.SignalledLSP{LSP: l.Name, Up: true, ID: 16,
				Number: l.Signal.Number, Bandwidth: l.Signal.Bandwidth, Hops: l.Hops})
			continue
		}
		for _, hop := range l.Hops {
			all.Hops = append(all.Hops, api.LSPHop{LSP: l.Name, Node: hop.Node})
		}
	}
	return all, nil
}

// Queues counts a frame in each direction of a link with a rate.
func (h *host) Queues(_ context.Context, name string, links ...string) (all []api.QueueTraffic, err error) {
	spec, _, err := h.store.Slice(context.Background(), name)
	if err != nil {
		return nil, err
	}
	for _, l := range spec.Links {
		for i, e := range l.Ends {
			if e.Shape.Rate != 0 && (len(links) == 0 || slices.Contains(links, l.Name)) {
				all = append(all, api.QueueTraffic{
					Link: l.Name, From: e.String(), To: l.Ends[1-i].String(),
					Sent: api.Traffic{Frames: 1, Bytes: 60}, Dropped: 3,
				})
			}
		}
	}
	return all, nil
}

func (h *host) Changes(_ context.Context, _ string, q api.ChangesQuery) (all []api.NodeChanges, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.changes {
		if len(q.Nodes) == 0 || slices.Contains(q.Nodes, n.Node) {
			all = append(all, n)
		}
	}
	return all, nil
}

func (h *host) Volumes(context.Context) ([]api.Volume, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.volumes), nil
}

func (h *host) RemoveVolumes(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.volumes = slices.DeleteFunc(h.volumes, func(v api.Volume) bool { return v.Slice == name })
	return nil
}

// Programs counts more frames with every look.
func (h *host) Programs(_ context.Context, name string, nodes ...string) (all []api.NodeProgram, err error) {
	spec, _, err := h.store.Slice(context.Background(), name)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	for _, n := range spec.Nodes {
		if n.Program == nil || len(nodes) > 0 && !slices.Contains(nodes, n.Name) {
			continue
		}
		all = append(all, api.NodeProgram{
			Node: n.Name, Program: n.Program.Name, Object: n.Program.Object, State: api.ProgramRuns,
			Verified: 250, Stack: 64, Filters: len(n.Program.Filters), Interfaces: n.Program.Interfaces,
			Counters: map[string]uint64{"passed": 100 * h.looks, "malformed": 0},
			Platform: map[string]uint64{"frames": 100 * h.looks},
		})
	}
	return all, nil
}

// Filters lists what was inserted.
func (h *host) Filters(_ context.Context, _, node string) (api.NodeFilters, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := api.NodeFilters{Node: node, Filters: []api.Filter{},
		Key: []api.KeyField{{Name: "destination", Bytes: 4}}}
	for i, line := range h.filters {
		match, result, _ := strings.Cut(line, " -> ")
		all.Filters = append(all.Filters, api.Filter{Table: 1, Priority: 7, Match: match, Result: result,
			Hits: uint64(10 * i)})
	}
	return all, nil
}

// ChangeFilters knows lines, and no fields.
func (h *host) ChangeFilters(_ context.Context, _, _ string, change api.FilterChange) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range change.Delete {
		there := func(f string) bool { return strings.HasPrefix(f, line) }
		if !slices.ContainsFunc(h.filters, there) {
			return &api.Problem{Status: http.StatusNotFound, Detail: "there is no filter " + line}
		}
		h.filters = slices.DeleteFunc(h.filters, there)
	}
	h.filters = append(h.filters, change.Insert...)
	return nil
}

func (h *host) ReplaceFilters(_ context.Context, _, _ string, filters []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.filters = filters
	return nil
}

// Traffic grows with every look.
func (h *host) Traffic(context.Context, string) (api.SliceTraffic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	n := h.looks
	walked := api.Traffic{Frames: 1000 * n, Bytes: 64000 * n}
	return api.SliceTraffic{
		Interfaces: []api.InterfaceTraffic{{Node: "a", Interface: "eth1"},
			{Node: "b", Interface: "eth1", Received: walked, WalkedIn: walked}},
		Punts: map[string]map[string]uint64{"b": {"ttl": n, "local": 5}},
	}, nil
}
