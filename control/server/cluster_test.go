package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// network is a part of 127.0.0.0/8 for the members of one test run: each has an address of its own, so all have the
// usual ports.
var network = fmt.Sprintf("127.%d.%d.", 16+rand.IntN(200), rand.IntN(250))

// member is one machine of a cluster in this process.
type member struct {
	*client.Client
	cfg  Config
	out  *syncBuffer
	stop func() error
}

// machineNumber gives the members of all tests addresses of their own.
var machineNumber = struct {
	sync.Mutex
	n int
}{}

func nextAddress() string {
	machineNumber.Lock()
	defer machineNumber.Unlock()
	machineNumber.n++
	return fmt.Sprint(network, machineNumber.n)
}

func machineConfig(t *testing.T, name string) Config {
	t.Helper()
	dir := t.TempDir()
	return Config{
		StateDir: filepath.Join(dir, "run"), DataDir: filepath.Join(dir, "lib"),
		LogDir: filepath.Join(dir, "log"),
		Socket: filepath.Join(dir, "s"), Host: name, NewAgent: newFake, Log: quiet(), Version: "v-test",
		MemberConfig: MemberConfig{Listen: nextAddress()},
	}
}

// run starts a member and waits until it answers, and is alive.
func run(t *testing.T, cfg Config) *member {
	t.Helper()
	m := runAlone(t, cfg)
	testkit.Eventually(t, func() error {
		hosts, err := m.Hosts(t.Context())
		if err == nil && !slices.ContainsFunc(hosts, func(h api.Host) bool { return h.Self && h.Alive }) {
			err = fmt.Errorf("%s is not among %v", cfg.Host, hosts)
		}
		return err
	}, 20*time.Second, cfg.Host+" to be alive")
	return m
}

// runAlone starts a machine, which may be in no cluster, and waits until it answers.
func runAlone(t *testing.T, cfg Config) *member {
	t.Helper()
	m := &member{cfg: cfg, out: &syncBuffer{}}
	cfg.Out = m.out
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	var once sync.Once
	var ended error
	m.stop = func() error {
		cancel()
		once.Do(func() { ended = <-done })
		return ended
	}
	t.Cleanup(func() {
		if err := m.stop(); err != nil {
			t.Errorf("%s: %v", cfg.Host, err)
		}
	})
	testkit.Eventually(t, func() (err error) {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("%s ended: %v", cfg.Host, err)
		default:
		}
		m.Client, err = client.Dial(t.Context(), cfg.Socket)
		return err
	}, 40*time.Second, cfg.Host+" to answer")
	t.Cleanup(func() { m.Client.Close() })
	return m
}

// joined starts a machine that joins.
func joined(t *testing.T, first *member, name string, role pki.Role) *member {
	t.Helper()
	cfg := machineConfig(t, name)
	invite(t, first, &cfg, role)
	return run(t, cfg)
}

// stopAll stops machines, one after the other.
func stopAll(t *testing.T, all ...*member) {
	t.Helper()
	for _, m := range all {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// nodesAnswer checks that each machine reaches the nodes of slice net, on the hosts that they are placed on.
func nodesAnswer(t *testing.T, placement map[string]string, from ...*member) {
	t.Helper()
	for _, m := range from {
		for node, host := range placement {
			var out bytes.Buffer
			status, err := m.Exec(t.Context(), "net", node,
				api.ExecRequest{Command: []string{"where"}, Stdout: &out})
			if err != nil || status != 0 || out.String() != host {
				t.Errorf("exec in %s from %s: %d %q %v", node, m.cfg.Host, status, out.String(), err)
			}
		}
	}
}

// getAs asks for a path of a machine's API by a connection, on behalf of root, and gives the HTTP status.
func getAs(t *testing.T, by http.RoundTripper, at *member, path string) (status int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at.cfg.Listen+":7470"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(rest.CallerHeader, "0 0 true")
	resp, err := by.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func invite(t *testing.T, first *member, cfg *Config, role pki.Role) {
	t.Helper()
	token, err := first.CreateToken(t.Context(), api.TokenRequest{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Role, cfg.Join, cfg.Token = role, token.Join, token.Text
}

// startFails starts a machine, which has to fail with an error that contains the words.
func startFails(t *testing.T, cfg Config, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := Run(ctx, cfg)
	if err == nil {
		t.Fatal("it started")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// pinned is a pair whose nodes are on two hosts.
func pinned(name, a, b string) *topology.Topology {
	top := pair(name)
	top.Nodes["a"] = topology.Node{Attributes: topology.Attributes{Kind: slice.Router, Host: a}}
	top.Nodes["b"] = topology.Node{Attributes: topology.Attributes{Kind: slice.Router, Host: b}}
	return top
}

func TestTwoMachinesAnswerAsOne(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	if line := h1.out.String(); strings.Count(line, "pergola agent --join https://"+network) != 1 {
		t.Errorf("the first server prints %q", line)
	}
	top := pinned("net", "h1", "h2")
	applied := up(t, h2.Client, top)
	if applied.Placement["a"] != "h1" || applied.Placement["b"] != "h2" {
		t.Fatalf("placement %v", applied.Placement)
	}
	nodesAnswer(t, applied.Placement, h1, h2)
	for _, m := range []*member{h1, h2} {
		for node := range applied.Placement {
			var out bytes.Buffer
			status, err := m.Exec(t.Context(), "net", node,
				api.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader("typed"),
					Stdout: &out})
			if err != nil || status != 0 || out.String() != "typed" {
				t.Errorf("cat in %s from %s: %d %q %v", node, m.cfg.Host, status, out.String(), err)
			}
			logs, err := m.Logs(t.Context(), "net", node, api.LogOptions{Tail: 7})
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(logs); err != nil || string(text) != "tail 7\n" {
				t.Errorf("logs of %s from %s: %q %v", node, m.cfg.Host, text, err)
			}
			logs.Close()
			// its trailer passes the proxy
			if logs, err = m.Logs(t.Context(), "net", node, api.LogOptions{Tail: 99}); err == nil {
				_, err = io.ReadAll(logs)
				logs.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "the file went away") {
				t.Errorf("logs that break, from %s: %v", m.cfg.Host, err)
			}
			if r, err := m.RouterFastPath(t.Context(), "net", node); err != nil ||
				r.Trouble != applied.Placement[node] {
				t.Errorf("fast path of %s from %s: %+v %v", node, m.cfg.Host, r, err)
			}
		}
		checkMerged(t, m)
		var kinds []string
		err := m.Events(t.Context(), "net", false, func(e events.Event) error {
			kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Message))
			return nil
		})
		if err != nil || !slices.Contains(kinds, "node-changed h1") ||
			!slices.Contains(kinds, "node-changed h2") {
			t.Errorf("events from %s: %v %v", m.cfg.Host, kinds, err)
		}
	}
}

func TestEventsOfAllHostsAreFollowed(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	enough := errors.New("both were reported")
	ended := make(chan error, 1)
	reported := map[string]int{}
	go func() {
		ended <- h1.Events(ctx, "", true, func(e events.Event) error {
			reported[e.Slice+" "+e.Message]++
			if reported["net h1"] > 0 && reported["net h2"] > 0 {
				return enough
			}
			return nil
		})
	}()
	up(t, h2.Client, pinned("net", "h1", "h2"))
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("%v: %v", err, reported)
	}
}

// checkMerged asks a member for what both hosts know.
func checkMerged(t *testing.T, m *member) {
	t.Helper()
	ctx, from := t.Context(), m.cfg.Host
	v, err := m.Verify(ctx, "net", "")
	if err != nil || !slices.Equal(v.Routers, []string{"a", "b"}) || len(v.Differences) != 2 ||
		v.Differences[1].What != "h2" || v.Unreachable != nil {
		t.Errorf("verify from %s: %+v %v", from, v, err)
	}
	if c, err := m.Convergence(ctx, "net"); err != nil || c.Routers != 4 || c.Pairs != 4 || c.Converged {
		t.Errorf("convergence from %s: %+v %v", from, c, err)
	}
	if f, err := m.FastPath(ctx, "net"); err != nil || len(f.Routers) != 2 || f.Memory.Bytes.Bound != 20 {
		t.Errorf("fast path from %s: %+v %v", from, f, err)
	}
	if tr, err := m.Traffic(ctx, "net"); err != nil || len(tr.Interfaces) != 2 || tr.Interfaces[1].Node != "b" {
		t.Errorf("traffic from %s: %+v %v", from, tr, err)
	} else if len(tr.Tunnels) != 2 || tr.Tunnels[0].Host == tr.Tunnels[1].Host {
		t.Errorf("tunnels from %s: %+v", from, tr.Tunnels)
	}
	link := "wire"
	if q, err := m.Queues(ctx, "net", link); err != nil || len(q.Queues) != 2 || q.Queues[0].Host != "h1" ||
		q.Queues[1].From != "b:eth1" || q.Queues[1].Link != link || q.Unreachable != nil {
		t.Errorf("queues from %s: %+v %v", from, q, err)
	}
	if q, err := m.Queues(ctx, "net"); err != nil || len(q.Queues) != 2 {
		t.Errorf("queues of all links from %s: %+v %v", from, q, err)
	}
	_, err = m.Queues(ctx, "net", "wires")
	if err == nil || !strings.Contains(err.Error(), "did you mean "+link) {
		t.Errorf("queues of no link from %s: %v", from, err)
	}
	for _, host := range []string{"h1", "h2"} {
		if u, err := m.Underlay(ctx, host); err != nil || u.Dropped[host] != 1 {
			t.Errorf("underlay of %s from %s: %+v %v", host, from, u, err)
		}
	}
	var last api.CheckProgress
	results, err := m.Check(ctx, "net", api.CheckRequest{AllPairs: true}, func(p api.CheckProgress) { last = p })
	if err != nil || len(results) != 2 || results[0].Message != "h1 knows of h1,h2" ||
		results[1].Message != "h2 knows of h1,h2" || last.Done != 2 {
		t.Errorf("check from %s: %+v %+v %v", from, results, last, err)
	}
}

func TestLostHostsAreNamed(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	up(t, h1.Client, pinned("net", "h1", "h2"))
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		h, err := h1.Host(t.Context(), "h2")
		if err == nil && h.Alive {
			err = errors.New("it is alive")
		}
		return err
	}, 20*time.Second, "h2 to be lost")
	v, err := h1.Verify(t.Context(), "net", "")
	if err != nil || len(v.Routers) != 1 || len(v.Unreachable) != 1 || v.Unreachable[0].Host != "h2" ||
		!strings.Contains(v.Unreachable[0].Why, "lost since") {
		t.Errorf("verify: %+v %v", v, err)
	}
	if c, err := h1.Convergence(t.Context(), "net"); err != nil || c.Converged ||
		!strings.Contains(strings.Join(c.Missing, ";"), "host h2") {
		t.Errorf("convergence: %+v %v", c, err)
	}
	_, err = h1.Exec(t.Context(), "net", "b", api.ExecRequest{Command: []string{"where"}})
	refused(t, err, http.StatusBadGateway, "node b is on host h2", "lost")
	results, err := h1.Check(t.Context(), "net", api.CheckRequest{}, nil)
	if err != nil || !slices.ContainsFunc(results, func(r api.CheckResult) bool { return r.OK }) {
		t.Errorf("check: %+v %v", results, err)
	}
	refused(t, h1.RemoveHost(t.Context(), "h2", false), http.StatusConflict, "has 1 nodes of net")
	if err := h1.RemoveHost(t.Context(), "h2", true); err != nil {
		t.Error(err)
	}
	_, err = h1.Host(t.Context(), "h2")
	refused(t, err, http.StatusNotFound, `no host "h2"`, "h1")

	// It was removed, but for its certificate: no member believes that.
	h2.cfg.Join, h2.cfg.Token = "", ""
	startFails(t, h2.cfg, "this host was removed from the cluster", "use a new token")
	if hosts, err := h1.Hosts(t.Context()); err != nil || len(hosts) != 1 {
		t.Errorf("hosts: %v %v", hosts, err)
	}
}

func TestHostsAreCordonedAndLabelled(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	cfg := machineConfig(t, "h2")
	cfg.Labels = map[string]string{"rack": "a"}
	invite(t, h1, &cfg, pki.Agent)
	h2 := run(t, cfg)
	yes := true
	patch := api.HostPatch{Cordoned: &yes, Labels: map[string]string{"rack": "", "ssd": "yes"}}
	if err := h2.SetHost(t.Context(), "h2", patch); err != nil {
		t.Fatal(err)
	}
	h, err := h1.Host(t.Context(), "h2")
	if err != nil || !h.Policy.Cordoned || h.Policy.Draining || len(h.AllLabels()) != 1 ||
		h.AllLabels()["ssd"] != "yes" {
		t.Errorf("%+v %v", h, err)
	}
	refused(t, h1.SetHost(t.Context(), "h3", patch), http.StatusNotFound, `no host "h3"`, "h1, h2")
	for _, force := range []bool{false, true} {
		refused(t, h1.RemoveHost(t.Context(), "h2", force), http.StatusConflict, "host h2 is alive")
	}

	// Without h2, all is placed on h1.
	if applied := up(t, h2.Client, pair("net")); applied.Placement["a"] != "h1" || applied.Placement["b"] != "h1" {
		t.Errorf("placed %v", applied.Placement)
	}
	h, err = h2.Host(t.Context(), "h1")
	if err != nil || h.Nodes != 2 || len(h.Slices) != 1 || h.Slices[0].Name != "net" {
		t.Errorf("%+v %v", h, err)
	}
}

// syncBuffer is what a server prints.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
