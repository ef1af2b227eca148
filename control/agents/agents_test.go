package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

const secret = "of another host"

// cluster is a server with agents, without certificates.
type cluster struct {
	t     *testing.T
	store *store.Store
	desk  *Desk
	log   *slog.Logger
}

// decisions are refused.
type decisions struct{}

func (decisions) SetLink(context.Context, string, string, api.LinkPatch) error { return nil }
func (decisions) Reserve(context.Context, string, string, api.ReservationChange) error {
	return nil
}

type archives struct{}

func (archives) Serve(w http.ResponseWriter, _ *http.Request, sum string) { fmt.Fprint(w, sum) }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{
		Dir: t.TempDir(), LogFile: filepath.Join(t.TempDir(), "etcd.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	log := slog.New(slog.DiscardHandler)
	c := &cluster{t: t, store: s, log: log}
	c.desk = NewDesk(DeskConfig{Store: s, Self: "h1", Decider: decisions{}, Blobs: archives{}, Log: log})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.desk.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		end()
		<-done
	})
	return c
}

// wire is the way of one agent to the server.
type wire struct {
	at     string
	cut    atomic.Bool
	full   atomic.Int32 // answers that had a body
	drops  atomic.Int32
	by     http.Transport
	server *httptest.Server
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errors.New("the wire is cut")
	}
	r = r.Clone(r.Context())
	r.URL.Host = w.at
	resp, err := w.by.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && strings.Count(r.URL.Path, "/slices/") == 1 {
		w.full.Add(1)
	}
	return resp, err
}

func (w *wire) Drop() { w.drops.Add(1) }

// set cuts or mends the wire.
func (w *wire) set(cut bool) {
	w.cut.Store(cut)
	if cut {
		w.server.CloseClientConnections()
	}
}

func (c *cluster) agent(host string) (*Client, *wire) {
	server := httptest.NewServer(c.desk.Handler(host))
	w := &wire{at: server.Listener.Addr().String(), server: server}
	c.t.Cleanup(func() {
		w.set(true)
		server.Close()
	})
	return c.again(host, w, c.t.TempDir()), w
}

func (c *cluster) again(host string, w *wire, dir string) *Client {
	return NewClient(c.t.Context(), ClientConfig{Host: host, Session: w, CacheDir: dir, Log: c.log})
}

// network makes a slice with one node on each host, which have something to hide.
func network(name string, on ...string) *slice.Slice {
	s := &slice.Slice{Name: name, Links: []slice.Link{{Name: "lan", LAN: true}}}
	for i, host := range on {
		n := slice.Node{
			Name: fmt.Sprintf("n%d", i), Kind: slice.Host, Host: host, Exec: []string{secret + " " + host},
			Interfaces: []slice.Interface{{Name: "eth1", Port: uint16(i + 1), Link: "lan"}},
			Rootfs:     slice.Rootfs{Kind: slice.RootfsTar, Ref: strings.Repeat(fmt.Sprint(i), 64)},
		}
		s.Links[0].Ends = append(s.Links[0].Ends, slice.End{Node: n.Name, Interface: "eth1"})
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func (c *cluster) put(s *slice.Slice) {
	c.t.Helper()
	if err := c.store.PutSlice(c.t.Context(), s, s.Generation); err != nil {
		c.t.Fatal(err)
	}
}

func TestAnAgentIsToldOfItsPartAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.put(network("lab", "h4", "h5"))
	c.put(network("other", "h5"))
	h4, _ := c.agent("h4")
	all, err := h4.Slices(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "lab" {
		t.Fatalf("%+v, %v", all, err)
	}
	got, r, err := h4.Slice(t.Context(), "lab")
	if err != nil || r.Generation != 1 {
		t.Fatal(r, err)
	}
	want, _, err := c.store.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Nodes[0], got.Nodes[0]); diff != "" {
		t.Error(diff)
	}
	if len(got.Nodes) != 2 || got.Nodes[1].Exec != nil || got.Nodes[1].Host != "h5" {
		t.Errorf("of the other host: %+v", got.Nodes[1])
	}
	if _, _, err := h4.Slice(t.Context(), "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another host's network: %v", err)
	}
}

// What did not change is not sent again.
func TestAPartIsSentOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.put(network("lab", "h4", "h5"))
	h4, w := c.agent("h4")
	for range 3 {
		if _, _, err := h4.Slice(t.Context(), "lab"); err != nil {
			t.Fatal(err)
		}
		if _, err := h4.Overrides(t.Context(), "lab"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.full.Load(); n != 1 {
		t.Errorf("the part was sent %d times", n)
	}
	if err := c.store.UpdateOverrides(t.Context(), "lab", func(o *slice.Overrides) (bool, error) {
		o.Down = map[string]bool{"lan": true}
		return false, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h4.Slice(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if o, err := h4.Overrides(t.Context(), "lab"); err != nil || !o.Down["lan"] || w.full.Load() != 2 {
		t.Errorf("%+v, %v, sent %d times", o, err, w.full.Load())
	}
}

// next waits for a change that is none of the kind that comes with a new stream.
func next(t *testing.T, changes <-chan store.Change) store.Change {
	t.Helper()
	for {
		select {
		case c := <-changes:
			if c.What != store.Resync {
				return c
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no change came")
		}
	}
}

func TestAnAgentHearsOfItsSlicesAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h4, w := c.agent("h4")
	changes, err := h4.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.put(network("other", "h5"))
	lab := network("lab", "h4", "h5")
	c.put(lab)
	if got := next(t, changes); got != (store.Change{Slice: "lab", What: store.SpecChanged}) {
		t.Error(got)
	}
	lab.Nodes[0].Host = "h5" // none is left on h4
	c.put(lab)
	if got := next(t, changes); got != (store.Change{Slice: "lab", What: store.SpecChanged}) {
		t.Error(got)
	}
	if s, _, err := h4.Slice(t.Context(), "lab"); err != nil || s.Nodes[0].Exec != nil {
		t.Errorf("until h4 has let go of it, it is told where the nodes are: %v", err)
	}
	if err := h4.Release(t.Context(), "h4", "lab"); err != nil {
		t.Fatal(err)
	}
	if got := next(t, changes); got != (store.Change{Slice: "lab", What: store.SpecChanged}) {
		t.Error(got)
	}
	if _, _, err := h4.Slice(t.Context(), "lab"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after that: %v", err)
	}
	// What changed while there was no session is found.
	w.set(true)
	again := network("again", "h4")
	c.put(again)
	w.set(false)
	for change := range changes {
		if change.What == store.Resync {
			break
		}
	}
	if all, err := h4.Slices(t.Context()); err != nil || len(all) != 1 || all[0].Name != "again" {
		t.Errorf("%+v, %v", all, err)
	}
}

// A slice that is made again after it was removed is another one, of which its hosts hear everything.
func TestASliceThatIsMadeAgainIsHeardOf(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h4, _ := c.agent("h4")
	changes, err := h4.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.put(network("lab", "h4"))
		if err := c.store.DeleteSlice(t.Context(), "lab"); err != nil {
			t.Fatal(err)
		}
		if err := h4.Release(t.Context(), "h4", "lab"); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := h4.Record(t.Context(), "lab"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%+v, %v", r, err)
	}
	c.put(network("lab", "h4"))
	off := func(o *slice.Overrides) (bool, error) {
		o.Down = map[string]bool{"lan": true}
		return false, nil
	}
	if err := c.store.UpdateOverrides(t.Context(), "lab", off); err != nil {
		t.Fatal(err)
	}
	for got := next(t, changes); got.What != store.OverridesChanged; got = next(t, changes) {
	}
	if o, err := h4.Overrides(t.Context(), "lab"); err != nil || !o.Down["lan"] {
		t.Errorf("%+v, %v", o, err)
	}
}

// What root of a machine gave to a slice stays given while the slice is elsewhere.
func TestAnAgentKnowsThatASliceIsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.put(network("theirs", "h5"))
	h4, w := c.agent("h4")
	if r, err := h4.Record(t.Context(), "theirs"); err != nil || r.Name != "theirs" || r.ID != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	w.set(true)
	if _, err := h4.Record(t.Context(), "theirs"); !errors.Is(err, store.ErrUnreachable) ||
		errors.Is(err, store.ErrNotFound) {
		t.Errorf("without a server: %v", err)
	}
}

// One that asks for too many streams is refused.
func TestAnAgentHasFewStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h4, _ := c.agent("h4")
	for range maxStreams {
		resp, err := h4.send(t.Context(), http.MethodGet, "changes", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	resp, err := h4.send(t.Context(), http.MethodGet, "changes", nil, nil)
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("one more: %v", err)
	}
}

func machine(name string) hosts.Host {
	return hosts.Host{
		Name: name, Machine: "m" + name, Address: netip.MustParseAddr("192.0.2.4"), API: "192.0.2.4:7470",
	}
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("not", what)
	}
}

func TestAServerKeepsTheLeaseOfAHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h4, w := c.agent("h4")
	const ttl = 2 * time.Second
	l, err := h4.Register(t.Context(), machine("h4"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := c.store.HostState(t.Context(), "h4"); err != nil || !h.Alive || h.Via != "h1" {
		t.Errorf("%+v, %v", h, err)
	}
	held := l.Deadline()
	testkit.Eventually(t, func() error {
		if now := l.Deadline(); !now.After(held.Add(ttl / 8)) {
			return fmt.Errorf("it holds until %v, as at first", now)
		}
		return nil
	}, 20*time.Second, "the lease to be renewed")
	lost := l.Lost()
	w.set(true)
	within(t, "lost", lost)
	renewed := l.Renewed()
	w.set(false)
	within(t, "renewed", renewed)
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if h, err := c.store.HostState(t.Context(), "h4"); err != nil || h.Alive {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := h4.Register(t.Context(), machine("h5"), ttl); !errors.Is(err, errDenied) {
		t.Errorf("as another host: %v", err)
	}
}

// Without servers an agent goes on by what it was told, also in its next process.
func TestWithoutServersTheCacheCounts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.put(network("lab", "h4", "h5"))
	server := httptest.NewServer(c.desk.Handler("h4"))
	defer server.Close()
	w, dir := &wire{at: server.Listener.Addr().String(), server: server}, t.TempDir()
	h4 := c.again("h4", w, dir)
	want, _, err := h4.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h4.Slices(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h4.PutStatus(t.Context(), "h4", slice.Status{Slice: "lab", Nodes: map[string]slice.NodeStatus{
		"n0": {Phase: slice.Running}, "n1": {Phase: slice.Running}}}); err != nil {
		t.Fatal(err)
	}
	w.set(true)
	if _, err := h4.Slices(t.Context()); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("who does not ask for it gets what was: %v", err)
	}
	if st, _ := h4.Status(t.Context(), "lab"); st.Nodes["n0"].Phase != slice.Running ||
		st.Nodes["n1"].Phase != slice.Lost {
		t.Errorf("%+v", st.Nodes)
	}
	stale := store.AllowStale(t.Context())
	for _, again := range []*Client{h4, c.again("h4", w, dir)} {
		all, err := again.Slices(stale)
		if err != nil || len(all) != 1 || all[0].Name != "lab" {
			t.Fatalf("%+v, %v", all, err)
		}
		got, _, err := again.Slice(stale, "lab")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	w.set(false)
	if _, _, err := c.again("h4", w, dir).Slice(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
	if n := w.full.Load(); n != 1 {
		t.Errorf("the part was sent %d times", n)
	}
}

// An agent in the wrong hands learns and changes nothing of other hosts.
func TestAHostileAgentLearnsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ours, theirs := network("ours", "h4", "h5"), network("theirs", "h5")
	c.put(ours)
	c.put(theirs)
	if err := c.store.PutStatus(t.Context(), "h5", slice.Status{Slice: "theirs", Generation: 1}); err != nil {
		t.Fatal(err)
	}
	var theirLease string // its number is no secret
	for _, name := range []string{"h4", "h5"} {
		id, err := c.store.Leases("h1").Claim(t.Context(), machine(name), time.Minute, false)
		if err != nil {
			t.Fatal(err)
		}
		theirLease = fmt.Sprint(id)
	}
	before := c.dump()
	handler := c.desk.Handler("h4")
	of5, _ := json.Marshal(machine("h5"))
	for _, try := range []struct {
		method, path string
		body         string
	}{
		{"GET", "slices/theirs", ""},
		{"GET", "slices/..%2fslices%2ftheirs", ""},
		{"GET", "slices/theirs/settled", ""},
		{"DELETE", "slices/theirs", ""},
		{"PUT", "slices/theirs/status", `{"slice": "theirs"}`},
		{"PUT", "slices/ours/status", `{"slice": "theirs"}`},
		{"PUT", "slices/theirs/linkstate", `{}`},
		{"PATCH", "slices/theirs/links/lan", `{}`},
		{"POST", "slices/theirs/reserve/n0", `{}`},
		{"POST", "slices/ours/reserve/n1", `{}`},
		{"PUT", "host", string(of5)},
		{"POST", "lease", `{"host": ` + string(of5) + `, "ttl": 10000000000}`},
		{"PUT", "lease/1", ""},
		{"DELETE", "lease/" + theirLease, ""},
		{"PUT", "lease/" + theirLease, ""},
		{"GET", "blobs/" + ours.Nodes[1].Rootfs.Ref, ""},
		{"GET", "blobs/..%2f..%2fetc%2fpasswd", ""},
		{"POST", "slices", `{}`},
		{"PUT", "slices/ours", `{}`},
	} {
		r := httptest.NewRequest(try.method, Prefix+try.path, strings.NewReader(try.body))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		ended := try.method == "DELETE" && strings.HasPrefix(try.path, "lease/") // which is none of h4's
		if w.Code < 400 && !ended || strings.Contains(w.Body.String(), secret) {
			t.Errorf("%s %s: %d %s", try.method, try.path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"slices", "slices/ours", "hosts"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Prefix+path, http.NoBody))
		text, _ := io.ReadAll(w.Body)
		if w.Code != http.StatusOK || bytes.Contains(text, []byte("theirs")) ||
			bytes.Contains(text, []byte("192.0.2.4:7470")) != (path == "hosts") {
			t.Errorf("%s: %d %s", path, w.Code, text)
		}
	}
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		t.Error(diff)
	}
	if h, err := c.store.HostState(t.Context(), "h5"); err != nil || !h.Alive {
		t.Errorf("h5: %+v, %v", h, err)
	}
}

// dump is all that the store has.
func (c *cluster) dump() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"ours", "theirs"} {
		s, r, err := c.store.Slice(c.t.Context(), name)
		text, _ := json.Marshal([]any{s, r})
		st, stErr := c.store.Reports(c.t.Context(), name)
		reports, _ := json.Marshal(st)
		all[name] = fmt.Sprint(string(text), err, string(reports), stErr)
	}
	states, err := c.store.Hosts(c.t.Context())
	text, _ := json.Marshal(states)
	all["hosts"] = fmt.Sprint(string(text), err)
	return all
}
