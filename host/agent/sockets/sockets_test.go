package sockets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/tap"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/sdk/message"
	"github.com/pergola-net/pergola/sdk/node"
)

// fakeNodes are two nodes of slice 7, lab, whose filters are lines.
type fakeNodes struct {
	mu      sync.Mutex
	filters map[string][]string
	asked   []string // changes of queues and reservations
	memory  *os.File
	listing chan struct{} // is sent to when filters are listed, which then waits to send once more; may be nil
}

func (f *fakeNodes) IsSlice(id uint16, name string) bool { return id == 7 && name == "lab" }

func (f *fakeNodes) Programs(_ context.Context, _ string, nodes ...string) (all []api.NodeProgram, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.filters[nodes[0]]; there {
		all = append(all, api.NodeProgram{
			Node: nodes[0], Program: "post.c", State: api.ProgramRuns, Interfaces: []string{"eth1", "eth2"},
			Counters: map[string]uint64{"forwarded": 3}, Platform: map[string]uint64{"frames in": 4},
		})
	}
	return all, nil
}

func (f *fakeNodes) ProgramMemory(_ context.Context, _, node string) (*os.File, wire.ProgramMemory, error) {
	if node != "west" {
		return nil, wire.ProgramMemory{}, nil
	}
	fd, err := unix.Dup(int(f.memory.Fd()))
	return os.NewFile(uintptr(fd), "memory"), wire.ProgramMemory{Element: 12, Count: 100, Number: 9}, err
}

func (f *fakeNodes) NodeQueues(_ context.Context, _, node string) ([]api.QueueTraffic, error) {
	if node != "west" {
		return nil, nil
	}
	return []api.QueueTraffic{{From: "west:eth1", Class: "2", Sent: api.Traffic{Frames: 5, Bytes: 300}, Dropped: 1,
		Backlog: api.Traffic{Frames: 2, Bytes: 120}}}, nil
}

func (f *fakeNodes) OpenSlowPath(_ context.Context, _, node string) (*os.File, error) {
	if node != "west" {
		return nil, fmt.Errorf("open the slow path of %s: %w", node, wire.ErrNoSlowPath)
	}
	return nil, fmt.Errorf("open the slow path of %s: %w", node, tap.ErrBusy)
}

func (f *fakeNodes) Filters(_ context.Context, _, node string) (all api.NodeFilters, err error) {
	f.mu.Lock()
	listing := f.listing
	f.mu.Unlock()
	if listing != nil {
		listing <- struct{}{}
		listing <- struct{}{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all.Key = []api.KeyField{{Name: "area", Bytes: 1}}
	for i, line := range f.filters[node] {
		all.Filters = append(all.Filters, api.Filter{Priority: uint32(i), Match: line, Result: "send 2"})
	}
	return all, nil
}

func (f *fakeNodes) ChangeFilters(_ context.Context, _, node string, c api.FilterChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range c.Insert {
		if line == "area=256" {
			const status = http.StatusUnprocessableEntity
			return &api.Problem{Status: status, Detail: "filter area=256: too large"}
		}
	}
	f.filters[node] = append(f.filters[node], c.Insert...)
	return nil
}

func (f *fakeNodes) ReplaceFilters(_ context.Context, _, node string, filters []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filters[node] = filters
	return nil
}

func (f *fakeNodes) SetQueues(_ context.Context, _, node, iface string, queues []api.QueuePatch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range queues {
		f.asked = append(
			f.asked,
			fmt.Sprintf("%s %s %d: %v, %v", node, iface, q.Number, q.Share != nil, q.Length),
		)
	}
	return nil
}

func (f *fakeNodes) NodeReserved(_, _ string) ([]slice.HostPort, map[string]uint64, error) {
	return []slice.HostPort{{Protocol: slice.TCP, Port: 8080}}, map[string]uint64{"eth1": 1e6}, nil
}

func (f *fakeNodes) Reserve(_ context.Context, _, node string, c api.ReservationChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range c.Reserve {
		status := map[string]int{"tcp/80": http.StatusForbidden, "tcp/81": http.StatusConflict}[p]
		if status != 0 {
			return &api.Problem{Status: status, Detail: "not " + p}
		}
	}
	f.asked = append(f.asked, fmt.Sprint(node, " ", c.Reserve, c.Release, c.Bandwidth))
	return nil
}

// bed is the sockets of slivers west and east, in a directory of the test.
type bed struct {
	*Sockets
	nodes *fakeNodes
	dir   string
	want  map[sliver.ID]Owner
}

func newBed(t testing.TB) *bed {
	t.Helper()
	dir := t.TempDir()
	memory, err := os.Create(filepath.Join(dir, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	if err := memory.Truncate(100 * 16); err != nil {
		t.Fatal(err)
	}
	b := &bed{
		nodes: &fakeNodes{filters: map[string][]string{"west": nil, "east": nil}, memory: memory}, dir: dir,
		want: map[sliver.ID]Owner{
			{Slice: 7, Node: "west"}: {Slice: "lab"}, {Slice: 7, Node: "east"}: {Slice: "lab"},
		},
	}
	b.start()
	t.Cleanup(func() { b.Sockets.Close() })
	return b
}

func (b *bed) path(node string) string { return filepath.Join(b.dir, node) }

// start makes the sockets, as an agent that starts does.
func (b *bed) start() {
	listen := func(id sliver.ID) (*net.UnixListener, error) {
		_ = os.Remove(b.path(id.Node))
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: b.path(id.Node), Net: "unixpacket"})
		if err == nil {
			l.SetUnlinkOnClose(false)
		}
		return l, err
	}
	b.Sockets = New(b.nodes, listen, rate.NewLimiter(rate.Inf, 0), slog.New(slog.DiscardHandler))
	b.Sync(b.want)
}

func (b *bed) open(t testing.TB, name string) *node.Node {
	t.Helper()
	n, err := node.OpenAt(t.Context(), b.path(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// raw is a connection that sends what it likes.
func (b *bed) raw(t testing.TB, name string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.path(name), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t testing.TB, c *net.UnixConn, request string) string {
	t.Helper()
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, message.MaxSize+1)
	n, err := c.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

func TestASliverIsToldWhoItIs(t *testing.T) {
	b := newBed(t)
	h, err := b.open(t, "west").Hello(t.Context())
	want := node.Hello{Version: 1, Slice: "lab", Node: "west", Program: "post.c", State: "running",
		Interfaces: []string{"eth1", "eth2"}}
	if diff := cmp.Diff(want, h); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestFiltersAreChangedReplacedAndListedBySocket(t *testing.T) {
	b := newBed(t)
	n := b.open(t, "west")
	if err := n.ChangeFilters(t.Context(), nil, []string{"area=1", "area=2"}); err != nil {
		t.Fatal(err)
	}
	var refused *node.Error
	err := n.ChangeFilters(t.Context(), nil, []string{"area=256"})
	if !errors.As(err, &refused) || refused.Code != message.Invalid {
		t.Errorf("a filter with a wrong length: %v", err)
	}
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("area=%d", i))
	}
	if err := n.ReplaceFilters(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	all, err := n.Filters(t.Context())
	if err != nil || len(all.Filters) != len(many) || len(all.Key) != 1 {
		t.Fatalf("%d filters, %v", len(all.Filters), err)
	}
	for i, f := range all.Filters {
		if f.Match != many[i] {
			t.Fatalf("filter %d is %+v", i, f)
		}
	}
	if len(b.nodes.filters["east"]) != 0 {
		t.Errorf("the other node has filters: %q", b.nodes.filters["east"])
	}
}

func TestQueuesAreReadBySocket(t *testing.T) {
	have, err := newBed(t).open(t, "west").Queues(t.Context())
	want := []message.Queue{{Interface: "eth1", Queue: "2", Frames: 5, Bytes: 300, Dropped: 1, Waiting: 2,
		WaitingBytes: 120}}
	if diff := cmp.Diff(want, have); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestMemoryIsSharedThroughTheSocket(t *testing.T) {
	b := newBed(t)
	m, err := b.open(t, "west").Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	copy(m.At(99), "the last one")
	got := make([]byte, 12)
	if _, err := b.nodes.memory.ReadAt(got, 99*16); err != nil || string(got) != "the last one" {
		t.Errorf("%q, %v", got, err)
	}
	if m.At(100) != nil || m.At(-1) != nil || m.Number != 9 {
		t.Errorf("memory %+v", m.Memory)
	}
	var refused *node.Error
	if _, err := b.open(t, "east").Memory(t.Context()); !errors.As(err, &refused) || refused.Advice == "" {
		t.Errorf("a program without memory: %v", err)
	}
}

func TestASlowPathThatCannotBeHadIsExplained(t *testing.T) {
	b := newBed(t)
	for name, want := range map[string]message.Code{"west": message.Busy, "east": message.Invalid} {
		var refused *node.Error
		_, err := b.open(t, name).SlowPath(t.Context())
		if !errors.As(err, &refused) || refused.Code != want || refused.Advice == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadRequestsAreAnsweredByAnErrorAndTheConnectionGoesOn(t *testing.T) {
	c := newBed(t).raw(t, "west")
	for _, bad := range []struct{ request, want string }{
		{"garbage", "this is no request"},
		{"\x00", "this is no request"},
		{"[]", "this is no request"},
		{`{"id": 5, "do": "hello", "slice": "other"}`, "unknown field"},
		{`{"id": -5, "do": "hello"}`, "this is no request"},
		{`{"id": 5}`, `"id":5,"error":"the request does not say what to do"`},
		{`{"id": 5, "do": "reboot"}`, `there is no request \"reboot\"`},
		{`{"id": 5, "do": "hello"} {"id": 6, "do": "hello"}`, "more follows"},
		{`{"id": 5, "do": "hello", "node": "of another slice"}`, `"code":"not running"`},
		{`{"id": 5, "do": "counters", "insert": ["area=1"]}`, "takes no "},
		{`{"id": 5, "do": "replace_filters", "delete": ["area=1"]}`, "takes no "},
		{strings.Repeat("[", 100000), "this is no request"},
		{strings.Repeat("x", message.MaxSize+1), "has more than"},
	} {
		if got := ask(t, c, bad.request); !strings.Contains(got, bad.want) {
			t.Errorf("%.60q is answered %s, want %s", bad.request, got, bad.want)
		}
	}
	if got := ask(t, c, `{"id": 7, "do": "hello"}`); !strings.Contains(got, `"id":7,"ok":{`) {
		t.Errorf("afterwards: %s", got)
	}
}

// The name of a slice that is gone may be another slice's before the socket is closed.
func TestASliverOfAnEarlierSliceOfTheSameNameIsRefused(t *testing.T) {
	b := newBed(t)
	old := sliver.ID{Slice: 6, Node: "old"}
	b.want[old] = Owner{Slice: "lab"}
	b.Sync(b.want)
	got := ask(t, b.raw(t, "old"), `{"id": 1, "do": "replace_filters", "node": "west", "insert": ["area=1"]}`)
	if !strings.Contains(got, `"code":"not running"`) || b.nodes.filters["west"] != nil {
		t.Errorf("it is answered %s", got)
	}
}

func TestTheNinthConnectionIsRefusedAndOthersAnswer(t *testing.T) {
	b := newBed(t)
	for range maxConnections {
		ask(t, b.raw(t, "west"), `{"id": 1, "do": "hello"}`)
	}
	_, err := b.open(t, "west").Hello(t.Context())
	var refused *node.Error
	if !errors.As(err, &refused) || refused.Code != message.Busy {
		t.Errorf("connection %d: %v", maxConnections+1, err)
	}
	if _, err := b.open(t, "east").Hello(t.Context()); err != nil {
		t.Errorf("the other node: %v", err)
	}
}

// A sliver that asks and never reads is left alone when the socket's buffer is full.
func TestASliverThatNeverReadsHoldsUpNobody(t *testing.T) {
	b := newBed(t)
	if err := b.nodes.ReplaceFilters(t.Context(), "lab", "west", make([]string, 5000)); err != nil {
		t.Fatal(err)
	}
	c := b.raw(t, "west")
	for range 20 {
		if _, err := c.Write([]byte(`{"id": 1, "do": "filters"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.open(t, "east").Hello(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.open(t, "west").Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAClientGoesOnWhenTheAgentWasRestarted(t *testing.T) {
	b := newBed(t)
	n := b.open(t, "west")
	if _, err := n.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Sockets.Close()
	b.start()
	if _, err := n.Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSocketsOfSliversThatAreGoneAreClosed(t *testing.T) {
	b := newBed(t)
	c := b.raw(t, "west")
	ask(t, c, `{"id": 1, "do": "hello"}`)
	delete(b.want, sliver.ID{Slice: 7, Node: "west"})
	b.Sync(b.want)
	if n, err := c.Read(make([]byte, 10)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %d bytes, %v", n, err)
	}
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"id": 1, "do": "hello"}`, `{"id": 1, "do": "memory"}`, `{"id":1,"do":"filters","node":"east"}`,
		`{"id": 1, "do": "change_filters", "delete": ["area=1"], "insert": ["area=2 -> send 1"]}`, `{`, `null`,
		`{"id": 1, "do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, "share": 3, "length": ` +
			`"64KiB"}]}`,
		`{"id": 1, "do": "reserve", "ports": ["tcp/8080"], "bandwidth": {"eth1": 1000000}}`,
		`{"id": 1, "do": "release", "ports": ["tcp/8080"], "interfaces": ["eth1"]}`, `{"id": 1, "do": ` +
			`"reservations"}`,
	} {
		f.Add([]byte(seed))
	}
	b := newBed(f)
	k := b.Sockets.open[sliver.ID{Slice: 7, Node: "west"}]
	f.Fuzz(func(t *testing.T, data []byte) {
		answers := k.answer(parse(data, nil))
		defer closeFiles(answers)
		if len(answers) == 0 {
			t.Fatal("no answer")
		}
		for i, a := range answers {
			if (a.Error == "") == (a.OK == nil) || a.More != (i+1 < len(answers)) {
				t.Errorf("answer %d of %d is %+v", i+1, len(answers), a.Answer)
			}
		}
	})
}
