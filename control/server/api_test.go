package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

// serve runs a server with a fake agent and gives a client of it.
func serve(t *testing.T, change ...func(*Config)) (*client.Client, Config) {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		StateDir: filepath.Join(dir, "run"), DataDir: filepath.Join(dir, "lib"),
		LogDir: filepath.Join(dir, "log"),
		Host:   "testhost", NewAgent: newFake, Log: quiet(),
	}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(cfg.StateDir, "pergola.sock")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return dialWhenReady(t, cfg.Socket), cfg
}

// dialWhenReady tries until the server answers.
func dialWhenReady(t *testing.T, socket string) *client.Client {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := client.Dial(t.Context(), socket)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		if !errors.Is(err, client.ErrNoServer) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// pair is a topology of two routers and a link.
func pair(name string) *topology.Topology {
	return &topology.Topology{
		Name: name,
		Nodes: map[string]topology.Node{
			"a": {Attributes: topology.Attributes{Kind: slice.Router}},
			"b": {Attributes: topology.Attributes{Kind: slice.Router}},
		},
		Links:  []topology.Link{{Name: "wire", Ends: []topology.End{"a:eth1", "b:eth1"}}},
		Checks: []topology.Check{{Name: "reach", Ping: topology.Strings{"a", "b"}}},
	}
}

func up(t *testing.T, c *client.Client, top *topology.Topology) *api.Applied {
	t.Helper()
	applied, err := c.Apply(t.Context(), top.Name, top, false)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, c, top.Name,
		func(p api.Progress) bool { return p.Status.Settled && p.Status.Generation == applied.Generation })
	return applied
}

func settle(t *testing.T, c *client.Client, name string, until func(api.Progress) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Progress(ctx, name, until); err != nil {
		t.Fatalf("progress of %s: %v", name, err)
	}
}

// refused checks that err is a problem with a status and words in its text.
func refused(t *testing.T, err error, status int, words ...string) {
	t.Helper()
	var p *api.Problem
	if !errors.As(err, &p) {
		t.Fatalf("error %v, want a problem", err)
	}
	text := p.Detail
	for _, e := range p.Errors {
		text += "\n" + e.Location + ": " + e.Message
	}
	if p.Status != status {
		t.Errorf("status %d, want %d: %s", p.Status, status, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("problem does not say %q: %s", w, text)
		}
	}
}

func TestSliceIsMadeAndDeleted(t *testing.T) {
	c, _ := serve(t)
	ctx := t.Context()
	dry, err := c.Apply(ctx, "net", pair("net"), true)
	if err != nil || len(dry.Plan.Nodes) != 2 || dry.Generation != 0 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if all, err := c.Slices(ctx); err != nil || len(all) != 0 {
		t.Fatalf("after a dry run: %v, %v", all, err)
	}
	if applied := up(t, c, pair("net")); applied.Generation != 1 || applied.Plan.Op != "create" {
		t.Errorf("applied %+v", applied)
	}
	if again := up(t, c, pair("net")); again.Generation != 1 || !again.Plan.Empty() {
		t.Errorf("the same file again: %+v", again)
	}
	bigger := pair("net")
	bigger.Nodes["c"] = topology.Node{}
	if applied := up(t, c, bigger); applied.Generation != 2 || len(applied.Plan.Nodes) != 1 {
		t.Errorf("one more node: %+v", applied)
	}
	all, err := c.Slices(ctx)
	if err != nil || len(all) != 1 || all[0].Running != 3 || !all[0].Settled || all[0].ID != 1 {
		t.Errorf("list: %+v, %v", all, err)
	}
	one, err := c.Slice(ctx, "net")
	if err != nil || one.Spec.Node("c") == nil || one.Status.Nodes["a"].Phase != slice.Running {
		t.Errorf("slice: %+v, %v", one, err)
	}
	if err := c.Delete(ctx, "net"); err != nil {
		t.Fatal(err)
	}
	gone := false
	err = c.Progress(ctx, "net", func(p api.Progress) bool { gone = p.Gone; return false })
	var p *api.Problem
	if known := errors.As(err, &p); !gone && (!known || p.Status != http.StatusNotFound) {
		t.Errorf("gone %v, %v", gone, err)
	}
}

func TestApplyAfterDeleteWaits(t *testing.T) {
	c, _ := serve(t)
	for range 3 {
		up(t, c, pair("net"))
		if err := c.Delete(t.Context(), "net"); err != nil {
			t.Fatal(err)
		}
	}
	up(t, c, pair("net"))
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	c, _ := serve(t)
	ctx := t.Context()
	up(t, c, pair("net"))
	bad := pair("net")
	bad.Links = append(bad.Links, topology.Link{Ends: []topology.End{"a", "dnever"}},
		topology.Link{Ends: []topology.End{"a", "x"}})
	_, err := c.Apply(ctx, "net", bad, false)
	refused(t, err, 422, `"dnever"`, `"x"`) // all of them, not the first
	_, err = c.Apply(ctx, "other", pair("net"), false)
	refused(t, err, 422, "other")
	_, err = c.Slice(ctx, "nte")
	refused(t, err, 404, "did you mean net?")
	refused(t, c.Delete(ctx, "zzz"), 404)
	refused(t, c.Node(ctx, "net", "A1", api.NodeStop), 404, "did you mean a?")
	refused(t, c.LinkDown(ctx, "net", "wier"), 404, "did you mean wire?")
	slow := pair("slow")
	slow.Links[0].Delay = "10ms"
	_, err = c.Apply(ctx, "slow", slow, false)
	refused(t, err, 501, "sch_netem")
	delay := 10 * time.Millisecond
	refused(t, c.SetLink(ctx, "net", "wire", api.LinkPatch{Delay: &delay}), 501, "sch_netem")
	refused(t, c.SetLink(ctx, "net", "wire", api.LinkPatch{}), 422, "nothing to set")
	_, err = c.Capture(ctx, "net", "a", "eth7", api.CaptureOptions{})
	refused(t, err, 404, "did you mean eth1?")
	_, err = c.Check(ctx, "net", api.CheckRequest{Names: []string{"reac"}}, nil)
	refused(t, err, 404, "did you mean reach?")
	if all, err := c.Slices(ctx); err != nil || len(all) != 1 {
		t.Errorf("slices %v, %v: something was created", all, err)
	}
}

func TestVerbsOfNodesAndLinksTakeEffect(t *testing.T) {
	c, _ := serve(t)
	ctx := t.Context()
	up(t, c, pair("net"))
	phase := func(want slice.Phase) {
		t.Helper()
		settle(t, c, "net", func(p api.Progress) bool { return p.Status.Nodes["a"].Phase == want })
	}
	verb := func(v api.NodeVerb) {
		t.Helper()
		if err := c.Node(ctx, "net", "a", v); err != nil {
			t.Fatal(err)
		}
	}
	verb(api.NodePause)
	phase(slice.Paused)
	refused(t, c.Node(ctx, "net", "a", api.NodeStart), 409, "paused")
	verb(api.NodeResume)
	phase(slice.Running)
	verb(api.NodeStop)
	phase(slice.Stopped)
	refused(t, c.Node(ctx, "net", "a", api.NodePause), 409, "start it first")
	verb(api.NodeRestart)
	phase(slice.Running)

	rate := unit.Rate(1e6)
	if err := errors.Join(c.LinkDown(ctx, "net", "wire"),
		c.SetLink(ctx, "net", "wire", api.LinkPatch{End: "a:eth1", Rate: &rate})); err != nil {
		t.Fatal(err)
	}
	settle(t, c, "net", func(p api.Progress) bool { return !p.Status.Links["wire"].Up })
	s, err := c.Slice(ctx, "net")
	if err != nil || !s.Overrides.Down["wire"] || s.Overrides.Shapes["a:eth1"].Rate != rate ||
		len(s.Overrides.Shapes) != 1 {
		t.Errorf("overrides %+v, %v", s.Overrides, err)
	}
	if err := c.ResetLink(ctx, "net", "wire"); err != nil {
		t.Fatal(err)
	}
	s, err = c.Slice(ctx, "net")
	if err != nil || len(s.Overrides.Shapes) != 0 || len(s.Overrides.Down) != 0 {
		t.Errorf("after reset: %+v, %v", s.Overrides, err)
	}
}

func TestCheckReportsProgressAndResults(t *testing.T) {
	c, _ := serve(t)
	up(t, c, pair("net"))
	var seen []api.CheckProgress
	results, err := c.Check(t.Context(), "net", api.CheckRequest{}, func(p api.CheckProgress) {
		seen = append(seen, p)
	})
	if err != nil || len(results) != 2 || results[1].Message != "no answer" || len(seen) != 2 ||
		seen[1].Failed != 1 {
		t.Errorf("results %+v, progress %+v, %v", results, seen, err)
	}
	_, err = c.Check(t.Context(), "net", api.CheckRequest{Timeout: 13}, nil)
	refused(t, err, 500, "an unlucky check")
	conv, err := c.Convergence(t.Context(), "net")
	if err != nil || conv.Converged || len(conv.Missing) != 1 {
		t.Errorf("convergence %+v, %v", conv, err)
	}
}

func TestEventsAreKeptAndFollowed(t *testing.T) {
	c, _ := serve(t)
	up(t, c, pair("net"))
	var kinds []events.Kind
	if err := c.Events(t.Context(), "net", false,
		func(e events.Event) error { kinds = append(kinds, e.Kind); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(kinds) == 0 || kinds[0] != events.SliceApplied {
		t.Errorf("events %v", kinds)
	}
	stop := errors.New("seen")
	var asked sync.WaitGroup
	asked.Go(func() {
		if err := c.Node(t.Context(), "net", "b", api.NodeStop); err != nil {
			t.Error(err)
		}
	})
	err := c.Events(t.Context(), "", true, func(e events.Event) error {
		if e.Kind == events.NodeWanted && e.Node == "b" {
			return stop
		}
		return nil
	})
	asked.Wait() // the event comes before the answer
	if !errors.Is(err, stop) {
		t.Errorf("follow: %v", err)
	}
}

func TestBlobsAreCheckedAndNeeded(t *testing.T) {
	c, _ := serve(t)
	ctx := t.Context()
	sum := sha256.Sum256([]byte("archive"))
	name := hex.EncodeToString(sum[:])
	top := pair("net")
	node := top.Nodes["a"]
	node.Rootfs = &topology.Source{Path: "x.tar", SHA256: name}
	top.Nodes["a"] = node
	_, err := c.Apply(ctx, "net", top, false)
	refused(t, err, 422, "send it first")
	if has, err := c.HasBlob(ctx, name); has || err != nil {
		t.Errorf("has %v, %v", has, err)
	}
	refused(t, c.PutBlob(ctx, name, 5, strings.NewReader("other")), 422, "SHA-256")
	if err := c.PutBlob(ctx, name, 7, strings.NewReader("archive")); err != nil {
		t.Fatal(err)
	}
	if has, err := c.HasBlob(ctx, name); !has || err != nil {
		t.Errorf("has %v, %v", has, err)
	}
	up(t, c, top)
}

func TestMetricsCountNodes(t *testing.T) {
	c, cfg := serve(t)
	up(t, c, pair("net"))
	web := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (
		net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", cfg.Socket)
	}}}
	defer web.CloseIdleConnections()
	resp, err := web.Get("http://pergola/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pergola_slices 1", `pergola_nodes{phase="running",slice="net"} 2`,
		`pergola_links{slice="net",state="up"} 1`, `pergola_slice_settled{slice="net"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestManyClientsApplyOneSlice(t *testing.T) {
	c, _ := serve(t)
	const writers = 5
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			top := pair("net")
			for i := range w {
				top.Nodes[fmt.Sprintf("x%d", i)] = topology.Node{}
			}
			top.Attribution = fmt.Sprint(w)
			_, err := c.Apply(t.Context(), "net", top, false)
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s, err := c.Slice(t.Context(), "net")
	if err != nil || fmt.Sprint(len(s.Spec.Nodes)-2) != s.Spec.Attribution || s.Spec.Generation != writers {
		t.Errorf("generation %d by writer %s has %d nodes: a mix, %v", s.Spec.Generation, s.Spec.Attribution,
			len(s.Spec.Nodes), err)
	}
}
