package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/api/client"
	"github.com/pergola-net/pergola/events"
	"github.com/pergola-net/pergola/pki"
	"github.com/pergola-net/pergola/slice"
	"github.com/pergola-net/pergola/test/testkit"
	"github.com/pergola-net/pergola/topology"
)

// network is a part of 127.0.0.0/8 for the members of one test run: each has an address of its own, so all have the usual ports.
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
		StateDir: filepath.Join(dir, "run"), DataDir: filepath.Join(dir, "lib"), LogDir: filepath.Join(dir, "log"),
		Socket: filepath.Join(dir, "s"), Host: name, NewAgent: newFake, Log: quiet(), Version: "v-test", Membership: Membership{Listen: nextAddress()},
	}
}

// run starts a member and waits until it answers.
func run(t *testing.T, cfg Config) *member {
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
	testkit.Eventually(t, func() error {
		hosts, err := m.Hosts(t.Context())
		if err == nil && !slices.ContainsFunc(hosts, func(h api.Host) bool { return h.Self && h.Alive }) {
			err = fmt.Errorf("%s is not among %v", cfg.Host, hosts)
		}
		return err
	}, 20*time.Second, cfg.Host+" to be alive")
	return m
}

// joined starts a machine that joins.
func joined(t *testing.T, first *member, name string, role pki.Role) *member {
	t.Helper()
	cfg := machineConfig(t, name)
	invite(t, first, &cfg, role)
	return run(t, cfg)
}

func invite(t *testing.T, first *member, cfg *Config, role pki.Role) {
	t.Helper()
	token, err := first.CreateToken(t.Context(), api.TokenRequest{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Role, cfg.Join, cfg.Token = role, token.Join, token.Text
}

// start tries to start a machine that is to fail.
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
	testkit.Root(t) // who makes tokens
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
	for _, m := range []*member{h1, h2} {
		for node, host := range applied.Placement {
			var out bytes.Buffer
			status, err := m.Exec(t.Context(), "net", node, client.Exec{Command: []string{"where"}, Stdout: &out})
			if err != nil || status != 0 || out.String() != host {
				t.Errorf("exec in %s from %s: %d %q %v", node, m.cfg.Host, status, out.String(), err)
			}
			out.Reset()
			status, err = m.Exec(t.Context(), "net", node, client.Exec{Command: []string{"cat"}, Stdin: strings.NewReader("typed"), Stdout: &out})
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
			if logs, err = m.Logs(t.Context(), "net", node, api.LogOptions{Tail: 99}); err == nil { // its trailer passes the proxy
				_, err = io.ReadAll(logs)
				logs.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "the file went away") {
				t.Errorf("logs that break, from %s: %v", m.cfg.Host, err)
			}
			if r, err := m.RouterFastPath(t.Context(), "net", node); err != nil || r.Trouble != host {
				t.Errorf("fast path of %s from %s: %+v %v", node, m.cfg.Host, r, err)
			}
		}
		checkMerged(t, m)
		var kinds []string
		err := m.Events(t.Context(), "net", false, func(e events.Event) error {
			kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Message))
			return nil
		})
		if err != nil || !slices.Contains(kinds, "node-changed h1") || !slices.Contains(kinds, "node-changed h2") {
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
	enough := errors.New("both were told of")
	ended := make(chan error, 1)
	told := map[string]int{}
	go func() {
		ended <- h1.Events(ctx, "", true, func(e events.Event) error {
			told[e.Slice+" "+e.Message]++
			if told["net h1"] > 0 && told["net h2"] > 0 {
				return enough
			}
			return nil
		})
	}()
	up(t, h2.Client, pinned("net", "h1", "h2"))
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("%v: %v", err, told)
	}
}

// checkMerged asks a member for what both hosts know.
func checkMerged(t *testing.T, m *member) {
	t.Helper()
	ctx, from := t.Context(), m.cfg.Host
	v, err := m.Verify(ctx, "net", "")
	if err != nil || !slices.Equal(v.Routers, []string{"a", "b"}) || len(v.Differences) != 2 || v.Differences[1].What != "h2" || v.Silent.Silent != nil {
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
	}
	var last api.CheckProgress
	results, err := m.Check(ctx, "net", api.CheckRequest{AllPairs: true}, func(p api.CheckProgress) { last = p })
	if err != nil || len(results) != 2 || results[0].Message != "h1" || results[1].Message != "h2" || last.Done != 2 {
		t.Errorf("check from %s: %+v %+v %v", from, results, last, err)
	}
}

func TestLostHostsAreNamed(t *testing.T) {
	testkit.Root(t) // who makes tokens
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
	if err != nil || len(v.Routers) != 1 || len(v.Silent.Silent) != 1 || v.Silent.Silent[0].Host != "h2" || !strings.Contains(v.Silent.Silent[0].Why, "lost since") {
		t.Errorf("verify: %+v %v", v, err)
	}
	if c, err := h1.Convergence(t.Context(), "net"); err != nil || c.Converged || !strings.Contains(strings.Join(c.Missing, ";"), "host h2") {
		t.Errorf("convergence: %+v %v", c, err)
	}
	_, err = h1.Exec(t.Context(), "net", "b", client.Exec{Command: []string{"where"}})
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
	again := run(t, h2.cfg) // its agent registers, and so it is a host again
	if hosts, err := again.Hosts(t.Context()); err != nil || len(hosts) != 2 {
		t.Errorf("hosts: %v %v", hosts, err)
	}
}

func TestHostsAreCordonedAndLabelled(t *testing.T) {
	testkit.Root(t) // who makes tokens
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
	if err != nil || !h.Policy.Cordoned || h.Policy.Draining || len(h.AllLabels()) != 1 || h.AllLabels()["ssd"] != "yes" {
		t.Errorf("%+v %v", h, err)
	}
	refused(t, h1.SetHost(t.Context(), "h3", patch), http.StatusNotFound, `no host "h3"`, "h1, h2")
	refused(t, h1.RemoveHost(t.Context(), "h2", false), http.StatusConflict, "host h2 is alive")

	// Without h2, all is placed on h1.
	if applied := up(t, h2.Client, pair("net")); applied.Placement["a"] != "h1" || applied.Placement["b"] != "h1" {
		t.Errorf("placed %v", applied.Placement)
	}
	h, err = h2.Host(t.Context(), "h1")
	if err != nil || h.Nodes != 2 || len(h.Slices) != 1 || h.Slices[0].Name != "net" {
		t.Errorf("%+v %v", h, err)
	}
}

func TestTokensThatAreNoGood(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	ctx := t.Context()
	good := machineConfig(t, "h2")
	invite(t, h1, &good, pki.Agent)

	with := func(change func(*Config)) Config {
		cfg := good
		cfg.StateDir, cfg.Socket = filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "s")
		change(&cfg)
		return cfg
	}
	revoked, err := h1.CreateToken(ctx, api.TokenRequest{Role: pki.Agent, Note: "short"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := h1.Tokens(ctx)
	if err != nil || !slices.ContainsFunc(all, func(k api.Token) bool { return k.ID == revoked.ID && k.Note == "short" && !k.Expired }) {
		t.Errorf("tokens %+v %v", all, err)
	}
	if err := h1.RevokeToken(ctx, revoked.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, h1.RevokeToken(ctx, revoked.ID), http.StatusNotFound, "no such token")
	startFails(t, with(func(c *Config) { c.Token = revoked.Text }), "it was revoked", "pergola token create")
	expired, err := h1.CreateToken(ctx, api.TokenRequest{Role: pki.Agent, Life: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	startFails(t, with(func(c *Config) { c.Token = expired.Text }), "it expired at", "it is")
	startFails(t, with(func(c *Config) { c.Role = pki.Server }), "it is for agents", "pergola agent --join")
	startFails(t, with(func(c *Config) { c.Token = c.Token[:40] }), "was its end cut off")
	startFails(t, with(func(c *Config) { c.Host = "h1" }), "the name is taken", "h1 is a host already", "--host NAME")
	startFails(t, with(func(c *Config) { c.Host = "not a name" }), "no name for a host")
	startFails(t, with(func(c *Config) { c.Advertise = h1.cfg.Listen }), "is the address of host h1")
	startFails(t, with(func(c *Config) { c.Join = "https://" + nextAddress() }), "join the cluster at", "connection refused")
	stranger, err := pki.NewAuthority("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := pki.NewToken(stranger, pki.Agent, "", time.Hour, time.Now())
	startFails(t, with(func(c *Config) { c.Token = foreign.Text() }), "this is not the cluster that the token is from")
	startFails(t, with(func(c *Config) { c.Join, c.Token = "", "" }), "this machine is in no cluster", "pergola agent --join")
	if hosts, err := h1.Hosts(ctx); err != nil || len(hosts) != 1 {
		t.Errorf("hosts %v %v", hosts, err)
	}
	run(t, good) // nothing of that spoiled it
}

func TestMembersRememberTheirCluster(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	up(t, h1.Client, pinned("net", "h1", "h2"))
	for _, m := range []*member{h2, h1} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	h1.cfg.Listen = ListenAuto // what it was is on disk
	again1 := run(t, h1.cfg)
	h2.cfg.Join, h2.cfg.Token, h2.cfg.Listen, h2.cfg.Host, h2.cfg.Role = "", "", ListenNone, "", "" // as the service starts it
	again2 := run(t, h2.cfg)
	if line := again1.out.String(); !strings.Contains(line, "cluster of 2 hosts") {
		t.Errorf("the first server prints %q", line)
	}
	var out bytes.Buffer
	if _, err := again1.Exec(t.Context(), "net", "b", client.Exec{Command: []string{"where"}, Stdout: &out}); err != nil || out.String() != "h2" {
		t.Errorf("exec: %q %v", out.String(), err)
	}
	for _, m := range []*member{again1, again2} {
		for _, name := range []string{keyFile, certificateFile, membershipFile} {
			if info, err := os.Stat(filepath.Join(m.cfg.DataDir, "cluster", name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, info.Mode(), err)
			}
		}
	}
	other := again2.cfg
	if err := again2.stop(); err != nil {
		t.Fatal(err)
	}
	other.Host = "h3"
	startFails(t, other, "a member by the name h2")
	other = again2.cfg
	invite(t, again1, &other, pki.Server)
	startFails(t, other, "a member already, as one of the agents")
}

func TestThreeServersOutliveOne(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Server)
	h3 := joined(t, h2, "h3", pki.Server)
	h4 := joined(t, h3, "h4", pki.Agent)
	testkit.Eventually(t, func() error {
		st, err := h4.Cluster(t.Context())
		if err == nil && (len(st.Servers) != 3 || st.Trouble != "" || st.Alive != 4 || st.Server) {
			err = fmt.Errorf("cluster %+v", st)
		}
		return err
	}, 30*time.Second, "three servers")
	if err := h1.stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		_, err := h4.Apply(t.Context(), "net", pinned("net", "h2", "h4"), false)
		return err
	}, 30*time.Second, "a change without h1")
	token, err := h4.CreateToken(t.Context(), api.TokenRequest{Role: pki.Agent}) // by a server that is there
	if err != nil || strings.Contains(token.Join, h1.cfg.Listen+":") && token.Join == "" {
		t.Errorf("%+v %v", token, err)
	}
	if err := h4.RemoveHost(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	if st, err := h4.Cluster(t.Context()); err != nil || len(st.Servers) != 2 || st.Hosts != 3 || st.Trouble != "" {
		t.Errorf("without h1: %+v %v", st, err)
	}
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		_, err := h3.Apply(t.Context(), "other", pair("other"), false)
		var p *api.Problem
		if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "no quorum (1 of 2") {
			return fmt.Errorf("a change gives another error: %w", cmp.Or(err, errors.New("none")))
		}
		return nil
	}, 30*time.Second, "changes to be refused")
	st, err := h3.Cluster(t.Context())
	if err != nil || !strings.Contains(st.Trouble, "1 of 2 servers answer") {
		t.Errorf("cluster %+v %v", st, err)
	}
	if all, err := h3.Slices(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("reading: %v %v", all, err)
	}
}

func TestCertificatesAreRenewed(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	for _, m := range []*member{h2, h1} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	certificate := func(m *member) string {
		text, err := os.ReadFile(filepath.Join(m.cfg.DataDir, "cluster", certificateFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	was1, was2 := certificate(h1), certificate(h2)
	h2.cfg.Join, h2.cfg.Token = "", ""
	var renewed sync.Map
	for _, m := range []*member{h1, h2} {
		m.cfg.renewal = func(c *x509.Certificate) time.Time { // each once
			if _, done := renewed.LoadOrStore(c.Subject.CommonName, true); done {
				return pki.Renewal(c)
			}
			return c.NotBefore
		}
		run(t, m.cfg)
	}
	await(t, "new certificates", func() bool { return certificate(h1) != was1 && certificate(h2) != was2 })
}

func TestArchivesGoWhereTheyAreNeeded(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	content := []byte("an archive")
	digest := sha256.Sum256(content)
	sum := hex.EncodeToString(digest[:])
	if err := h1.PutBlob(t.Context(), sum, int64(len(content)), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	top := pinned("net", "h1", "h2")
	node := top.Nodes["b"]
	node.Rootfs = &topology.Source{Path: "root.tar", SHA256: sum}
	top.Nodes["b"] = node
	up(t, h1.Client, top)
	testkit.Eventually(t, func() error {
		has, err := h2.HasBlob(t.Context(), sum)
		if err == nil && !has {
			err = errors.New("not there")
		}
		return err
	}, 20*time.Second, "the archive on h2")
}

func TestMembersAloneAreLetIn(t *testing.T) {
	testkit.Root(t) // who makes tokens
	h1 := run(t, machineConfig(t, "h1"))
	token, err := pki.ParseToken(mustToken(t, h1))
	if err != nil {
		t.Fatal(err)
	}
	by := newTransport()
	by.TLSClientConfig = pki.JoinConfig(token)
	defer by.CloseIdleConnections()
	for path, status := range map[string]int{"/v1/slices": 401, "/v1/tokens": 401, "/v1/renew": 401, "/metrics": 401, "/v1/blobs/x": 401, "/v1/join": 405} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h1.cfg.Listen+":7470"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(api.CallerHeader, "0 0 true")
		resp, err := by.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", path, resp.Status, status)
		}
	}
}

func mustToken(t *testing.T, m *member) string {
	t.Helper()
	token, err := m.CreateToken(t.Context(), api.TokenRequest{Role: pki.Agent})
	if err != nil {
		t.Fatal(err)
	}
	return token.Text
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

func TestMembersMove(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	for _, m := range []*member{h2, h1} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	h1.cfg.Listen = nextAddress()
	h1 = run(t, h1.cfg)
	h2.cfg.Listen = nextAddress()
	invite(t, h1, &h2.cfg, pki.Agent) // so it learns where the server is now
	h2 = run(t, h2.cfg)
	up(t, h2.Client, pinned("net", "h1", "h2"))
	for _, m := range []*member{h1, h2} {
		for node, host := range map[string]string{"a": "h1", "b": "h2"} {
			var out bytes.Buffer
			if _, err := m.Exec(t.Context(), "net", node, client.Exec{Command: []string{"where"}, Stdout: &out}); err != nil || out.String() != host {
				t.Errorf("exec in %s from %s: %q %v", node, m.cfg.Host, out.String(), err)
			}
		}
	}
}

func TestRemovedHostsAreNotBelieved(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	k, err := openKept(filepath.Join(h2.cfg.DataDir, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	by := newTransport()
	by.TLSClientConfig = pki.ClientConfig(func() *pki.Identity { return k.identity.Load() })
	defer by.CloseIdleConnections()
	ask := func(verb, path, who string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), verb, "https://"+h1.cfg.Listen+":7470"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(api.CallerHeader, who)
		resp, err := by.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, text := ask(http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusOK {
		t.Errorf("a member: %d %s", status, text)
	}
	// On behalf of whom a member asks, it says itself.
	if status, text := ask(http.MethodDelete, "/v1/tokens/x", "1000 1000 false"); status != http.StatusForbidden {
		t.Errorf("a user of a member: %d %s", status, text)
	}
	if status, text := ask(http.MethodDelete, "/v1/tokens/x", "0 0 true"); status != http.StatusNotFound {
		t.Errorf("root of a member: %d %s", status, text)
	}
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	if err := h1.RemoveHost(t.Context(), "h2", false); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusForbidden || !strings.Contains(text, "host h2 is not in the cluster any more") {
		t.Errorf("a host that was removed: %d %s", status, text)
	}
}

func TestAgentWaitsForItsServers(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	for _, m := range []*member{h2, h1} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	h2.cfg.Join, h2.cfg.Token = "", ""
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, h2.cfg) }()
	testkit.Eventually(t, func() error {
		c, err := client.Dial(t.Context(), h2.cfg.Socket)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "do not answer: it tries again") {
			return fmt.Errorf("it says something else: %w", cmp.Or(err, errors.New("nothing")))
		}
		return nil
	}, 60*time.Second, "h2 to say what is wrong")
	run(t, h1.cfg)
	testkit.Eventually(t, func() error {
		c, err := client.Dial(t.Context(), h2.cfg.Socket)
		if err == nil {
			c.Close()
		}
		return err
	}, 30*time.Second, "h2 to answer")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
