package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/member/membertest"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// hostA is host A of a cluster whose other members are the test's word.
type hostA struct {
	*testing.T
	agent *Agent
	store *store.Store
	lease *membertest.Lease
}

func newHostA(t *testing.T) *hostA {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	s, err := store.Open(t.Context(), store.Config{
		Dir: filepath.Join(dir, "etcd"), LogFile: filepath.Join(dir, "etcd.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := &hostA{T: t, store: s, lease: membertest.NewLease()}
	m.agent = m.newAgent(dir, s, t.Output())
	m.agent.membership.register = func(ctx context.Context) (member.Lease, error) {
		if _, err := s.Register(ctx, m.agent.membership.host.Describe(ctx), time.Hour); err != nil {
			return nil, err
		}
		return m.lease, nil
	}
	stop := m.run(m.agent)
	t.Cleanup(func() { stop(); m.sweep(filepath.Join(dir, "run")) })
	return m
}

// newAgent gives the agent of host A, with root's rights, which keeps all in a directory.
func (m *hostA) newAgent(dir string, s store.ForAgent, log io.Writer) *Agent {
	m.Helper()
	state, logs := filepath.Join(dir, "run"), filepath.Join(dir, "log")
	rt, err := sliver.New(m.Context(), sliver.Config{
		StateDir: state, LogDir: logs, BlobDir: filepath.Join(dir, "blobs"),
	})
	if err != nil {
		m.Fatal(err)
	}
	a, err := New(m.Context(), Config{
		Host: "A", Runtime: rt, Platform: machine.Root{StateDir: state}, StateDir: state, LogDir: logs,
		Store: s, Events: events.NewBus(10),
		Cluster: &hosts.Membership{Machine: "a", Address: plantest.Hosts["A"]},
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		m.Fatal(err)
	}
	return a
}

// run runs an agent until stop is called; what it made stays.
func (m *hostA) run(a *Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			m.Errorf("agent: %v", err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// sweep removes what a test that failed left.
func (m *hostA) sweep(state string) {
	rt, err := sliver.New(context.Background(), sliver.Config{
		StateDir: state, LogDir: m.TempDir(), BlobDir: m.TempDir(),
	})
	if err != nil {
		m.Error(err)
		return
	}
	defer rt.Close()
	ids, _ := rt.Slices()
	for _, id := range ids {
		if err := rt.RemoveSlice(context.Background(), id); err != nil {
			m.Error(err)
		}
	}
	if err := wire.Remove(context.Background(), state); err != nil {
		m.Error(err)
	}
}

// know makes another host a member, at an address.
func (m *hostA) know(host string, address netip.Addr) {
	m.Helper()
	h := hosts.Host{Name: host, Machine: host, Address: address}
	err := m.store.PutHost(m.Context(), h)
	if errors.Is(err, store.ErrNoHost) {
		_, err = m.store.Register(m.Context(), h, time.Hour)
	}
	if err != nil {
		m.Fatal(err)
	}
}

func (m *hostA) put(s *slice.Slice, expect int64) {
	m.Helper()
	if err := m.store.PutSlice(m.Context(), s, expect); err != nil {
		m.Fatal(err)
	}
}

// await waits until what A reports of the slice is as it should be.
func (m *hostA) await(what string, is func(slice.Status) bool) {
	m.Helper()
	testkit.Eventually(m.T, func() error {
		st, err := m.store.Status(m.Context(), "lab7")
		if err == nil && !is(st) {
			err = fmt.Errorf("the status is %+v", st)
		}
		return err
	}, time.Minute, what)
}

// pid gives the first process of a node that runs here; 0: there is none.
func (m *hostA) pid(node string) int {
	o, err := m.agent.machine.Runtime.Observe(sliver.ID{Slice: 1, Node: node})
	if err != nil || o.State != sliver.Running {
		return 0
	}
	return o.PID
}

func (m *hostA) awaitPID(what string, is func() bool) {
	m.Helper()
	testkit.Eventually(m.T, func() error {
		if !is() {
			return errors.New("not yet")
		}
		return nil
	}, time.Minute, what)
}

// lab is a slice of h1 and h2 on A, and h3 on B: h1 may start elsewhere when A is lost.
func lab() *slice.Slice {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h2", "h3"})
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Exec = nil
		for j := range n.Interfaces {
			n.Interfaces[j].MAC = fmt.Sprintf("02:00:00:00:00:%02x", n.Interfaces[j].Port)
		}
	}
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	return plantest.Spread(s, map[string]string{"h1": "A", "h2": "A", "h3": "B"})
}

func TestAMemberHoldsItsPartAndFollowsItsPeers(t *testing.T) {
	m := newHostA(t)
	s := lab()
	m.put(s, 0)
	m.await("the link to an unknown host to be the trouble", func(st slice.Status) bool {
		here, away := st.Links[s.Links[0].Name], st.Links[s.Links[1].Name]
		return len(st.Errors) == 1 && st.Nodes["h2"].Phase == slice.Running && here.Up && !away.Up
	})
	if h3, told := func() (slice.NodeStatus, bool) {
		st, err := m.store.Status(t.Context(), "lab7")
		h3, told := st.Nodes["h3"]
		return h3, told && err == nil && h3.Phase == slice.Running
	}(); told {
		t.Errorf("A tells how h3 on B is: %+v", h3)
	}
	tunnel := func() (d string) {
		if n := m.agent.machine.Network(); n != nil {
			if state, err := n.Observe(t.Context()); err == nil && state.Ports["s1p4"].Tunnel {
				d = state.Ports["s1p4"].Digest + state.Ports["s1p4"].Peer
			}
		}
		return d
	}
	m.know("B", plantest.Hosts["B"])
	m.awaitPID("the tunnel", func() bool { return tunnel() != "" })
	before, running := tunnel(), m.pid("h2")
	m.know("B", netip.MustParseAddr("198.51.100.2"))
	m.awaitPID("the tunnel to follow its peer", func() bool { return tunnel() != "" && tunnel() != before })
	if m.pid("h2") != running {
		t.Error("h2 was started anew because a peer moved")
	}
	m.end(s)
}

func TestANodeMovesOnceItsOldHostHasLetGo(t *testing.T) {
	m := newHostA(t)
	m.know("B", plantest.Hosts["B"])
	s := lab()
	m.put(s, 0)
	m.awaitPID("h2", func() bool { return m.pid("h2") != 0 })

	s.Node("h2").Host, s.Node("h2").Left = "B", map[string]int64{"A": 2} // and from B to A
	s.Node("h3").Host, s.Node("h3").Left = "A", map[string]int64{"B": 2}
	m.put(plantest.Spread(s, map[string]string{"h1": "A", "h2": "B", "h3": "A"}), 1)
	testkit.Eventually(t, func() error {
		generations, err := m.store.Generations(t.Context(), "lab7")
		if err == nil && generations["A"] != 2 {
			err = fmt.Errorf("A reports generation %d", generations["A"])
		}
		return err
	}, time.Minute, "A to report that it has let go of h2")
	h2 := sliver.ID{Slice: 1, Node: "h2"}
	if _, err := m.agent.machine.Runtime.Observe(h2); !errors.Is(err, sliver.ErrNotFound) {
		t.Errorf("h2 is still here: %v", err)
	}
	if m.pid("h3") != 0 {
		t.Error("h3 runs here, and B may still have it")
	}
	if err := m.store.PutStatus(t.Context(), "B", slice.Status{Slice: "lab7", Generation: 2}); err != nil {
		t.Fatal(err)
	}
	m.awaitPID("h3, which B has let go of", func() bool { return m.pid("h3") != 0 })
	m.end(s)
}

func TestTheFenceEndsWhatMayStartElsewhereAndNothingElse(t *testing.T) {
	m := newHostA(t)
	m.know("B", plantest.Hosts["B"])
	s := lab()
	m.put(s, 0)
	noted := func() bool {
		o, err := m.agent.machine.Runtime.Observe(sliver.ID{Slice: 1, Node: "h1"})
		return err == nil && o.State == sliver.Running && o.Notes[plan.FenceNote] != ""
	}
	m.awaitPID("both nodes", func() bool { return noted() && m.pid("h2") != 0 })
	stays := m.pid("h2")

	m.lease.EndIn(time.Second)
	m.awaitPID("h1 to be ended", func() bool {
		_, err := m.agent.machine.Runtime.Observe(sliver.ID{Slice: 1, Node: "h1"})
		return errors.Is(err, sliver.ErrNotFound)
	})
	m.await("why", func(st slice.Status) bool {
		return st.Nodes["h1"].Phase == slice.Pending && st.Nodes["h1"].Message != ""
	})
	m.lease.Renew()
	m.awaitPID("h1 to be back", func() bool { return m.pid("h1") != 0 })
	if m.pid("h2") != stays {
		t.Error("h2 was started anew, and was not to be ended")
	}
	m.end(s)
}

// end removes the slice: of A, nothing is left, and of B there never was anything.
func (m *hostA) end(s *slice.Slice) {
	m.Helper()
	if err := m.store.DeleteSlice(m.Context(), s.Name); err != nil {
		m.Fatal(err)
	}
	if err := m.store.Release(m.Context(), "B", s.Name); err != nil {
		m.Fatal(err)
	}
	m.awaitRelease(s)
}

// awaitRelease waits until A has let go of a slice.
func (m *hostA) awaitRelease(s *slice.Slice) {
	m.Helper()
	testkit.Eventually(m.T, func() error {
		_, err := m.store.Record(m.Context(), s.Name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("the slice is there: %w", err)
	}, time.Minute, "A to let go of the slice")
}
