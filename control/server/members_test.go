package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

func TestInvalidTokensAreRefused(t *testing.T) {
	testkit.Root(t) // tokens are for root
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
	if err != nil || !slices.ContainsFunc(all,
		func(k api.Token) bool { return k.ID == revoked.ID && k.Note == "short" && !k.Expired }) {
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
	startFails(t, with(func(c *Config) {
		c.Host = "h1"
	}), "the name is taken", "h1 is a host already", "--host NAME")
	startFails(t, with(func(c *Config) { c.Host = "not a name" }), "no name for a host")
	startFails(t, with(func(c *Config) { c.Advertise = h1.cfg.Listen }), "is the address of host h1")
	startFails(t, with(func(c *Config) { c.Join = "https://" + nextAddress() }), "join the cluster at",
		"connection refused")
	startFails(t, with(func(c *Config) { c.Join = "https://" + nextAddress() }),
		"does a server run there, and do firewalls let this port pass?")
	startFails(t, with(func(c *Config) { c.Join = "https://" + h1.cfg.Listen + ":7471" }),
		"no API answers at that port: is it the one (7470) that `pergola token create` prints?")
	forged := strings.Split(good.Token, "-")
	forged[2] = strings.Repeat("a", len(forged[2]))
	startFails(t, with(func(c *Config) { c.Token = strings.Join(forged, "-") }),
		"this cluster did not make it, or it was revoked: `pergola token create`")
	stranger, err := pki.NewAuthority("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := pki.NewToken(stranger, pki.Agent, "", time.Hour, time.Now())
	startFails(t, with(func(c *Config) {
		c.Token = foreign.Text()
	}), "this is not the cluster that the token is from")
	startFails(t, with(func(c *Config) { c.Join, c.Token = "", "" }), "this machine is in no cluster",
		"pergola agent --join")
	if hosts, err := h1.Hosts(ctx); err != nil || len(hosts) != 1 {
		t.Errorf("hosts %v %v", hosts, err)
	}
	h2 := run(t, good) // nothing of that spoiled it

	other := with(func(c *Config) {
		c.Join, c.Host, c.DataDir, c.Listen = "https://"+h2.cfg.Listen, "h3", t.TempDir(), nextAddress()
	})
	startFails(t, other, "connection refused", "does a server run there") // an agent listens nowhere

	// A machine's ID is its own claim: so it cannot take the place of a host that is alive.
	like := func(m *member) Config {
		cfg := machineConfig(t, m.cfg.Host)
		invite(t, h1, &cfg, pki.Agent)
		pretend(t, cfg, m)
		return cfg
	}
	startFails(t, like(h2), "the name is taken: h2 is a host already, and alive at ", "stop Pergola on it")
	startFails(t, like(h1), "the name is taken: h1 is a ")

	// A name stays its host's while that is lost, until it is removed.
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	namesake := machineConfig(t, "h2")
	invite(t, h1, &namesake, pki.Agent)
	startFails(t, namesake, "the name is taken: h2 is a host already, at ", "which is lost at the moment",
		"(pergola host rm h2)")
	if err := h1.RemoveHost(ctx, "h2", false); err != nil {
		t.Fatal(err)
	}
	run(t, namesake)
}

// pretend makes a machine that starts by cfg say that it is the one of m.
func pretend(t *testing.T, cfg Config, m *member) {
	t.Helper()
	id, err := machine(m.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&identityDir{dir: cfg.DataDir}).write("machine", []byte(id)); err != nil {
		t.Fatal(err)
	}
}

func TestMembershipIsStored(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	up(t, h1.Client, pinned("net", "h1", "h2"))
	stopAll(t, h2, h1)
	h1.cfg.Listen = ListenNone // as the service starts it; what it was is on disk
	again1 := run(t, h1.cfg)
	h2.cfg.Join, h2.cfg.Token, h2.cfg.Listen, h2.cfg.Host, h2.cfg.Role = "", "", ListenNone, "",
		"" // as the service starts it
	again2 := run(t, h2.cfg)
	if line := again1.out.String(); !strings.Contains(line, "cluster of 2 hosts") {
		t.Errorf("the first server prints %q", line)
	}
	nodesAnswer(t, map[string]string{"b": "h2"}, again1)
	for _, m := range []*member{again1, again2} {
		for _, name := range []string{keyFile, certificateFile, membershipFile} {
			if info, err := os.Stat(filepath.Join(m.cfg.DataDir, "cluster", name)); err != nil ||
				info.Mode().Perm() != 0o600 {
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

// A machine that was the only one of a cluster can be alone, and a member again.
func TestTheOnlyMemberCanBeAlone(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	up(t, h1.Client, pair("net"))
	stopAll(t, h1)
	member := h1.cfg
	alone := member
	alone.Listen = ListenNone
	again := runAlone(t, alone)
	if hosts, err := again.Hosts(t.Context()); err != nil || len(hosts) > 0 {
		t.Errorf("alone, the hosts are %+v, %v", hosts, err)
	}
	settle(t, again.Client, "net", func(p api.Progress) bool {
		return p.Status.Settled && p.Status.Nodes["a"].Phase == slice.Running
	})
	stopAll(t, again)
	back := run(t, member)
	if hosts, err := back.Hosts(t.Context()); err != nil || len(hosts) != 1 || !hosts[0].Alive {
		t.Errorf("as a member again: %+v, %v", hosts, err)
	}
}

func TestThreeServersOutliveOne(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Server)
	if st, err := h2.Cluster(t.Context()); err != nil || len(st.Warnings) != 1 ||
		!strings.Contains(st.Warnings[0], "two are worse than one") {
		t.Errorf("two servers: %+v %v", st, err)
	}
	testkit.Await(t, func() bool { return strings.Contains(h2.out.String(), "two are worse than one") },
		20*time.Second, "h2 to print so")
	third := machineConfig(t, "h3")
	third.NewAgent = func(_ context.Context, cfg AgentConfig) (Agent, error) {
		return &fakeAgent{volumes: []api.Volume{{Slice: "other", Node: "a", Name: "data"}}, cfg: cfg}, nil
	}
	invite(t, h2, &third, pki.Server)
	h3 := run(t, third)
	h4 := joined(t, h3, "h4", pki.Agent)
	testkit.Eventually(t, func() error {
		st, err := h4.Cluster(t.Context())
		if err == nil && (len(st.Servers) != 3 || st.Trouble != "" || len(st.Warnings) > 0 || st.Alive != 4 ||
			st.Server) {
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
	thief := machineConfig(t, "h1")
	invite(t, h2, &thief, pki.Agent)
	pretend(t, thief, h1)
	startFails(t, thief, "the name is taken: h1 is a server of the cluster", "(pergola host rm h1)")
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
		if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable ||
			!strings.Contains(p.Detail, "no quorum (1 of 2") {
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
	// That a network is not there is not known for certain.
	_, err = h3.RemoveVolumes(t.Context(), "other")
	refused(t, err, http.StatusServiceUnavailable, "no quorum")
	if have, err := h3.Volumes(t.Context(), ""); err != nil || len(have.Volumes) != 1 {
		t.Errorf("volumes %+v, %v", have, err)
	}
}

func TestOfTwoServersOneIsRemovedWhileItRuns(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	cfg := machineConfig(t, "h2")
	invite(t, h1, &cfg, pki.Server)
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), cfg) }()
	testkit.Eventually(t, func() error {
		st, err := h1.Cluster(t.Context())
		if err == nil && (st.Alive != 2 || len(st.Servers) != 2 || st.Servers[1].Learner) {
			err = fmt.Errorf("cluster %+v", st)
		}
		return err
	}, 40*time.Second, "two servers")
	refused(t, h1.RemoveHost(t.Context(), "h1", false), http.StatusConflict,
		"host h1 cannot remove itself: run this on the other server")
	if err := h1.RemoveHost(t.Context(), "h2", false); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, store.ErrRemoved) {
		t.Errorf("h2 ended: %v", err)
	}
	if st, err := h1.Cluster(t.Context()); err != nil || st.Hosts != 1 || len(st.Servers) != 1 ||
		st.Trouble != "" || len(st.Warnings) > 0 {
		t.Errorf("what is left: %+v %v", st, err)
	}
	up(t, h1.Client, pair("net"))

	// To join again, it leaves its part of the state behind.
	if err := os.RemoveAll(filepath.Join(cfg.DataDir, "cluster")); err != nil {
		t.Fatal(err)
	}
	invite(t, h1, &cfg, pki.Server)
	startFails(t, cfg, "if it was a server of a cluster, what it kept there is not needed: "+
		"remove "+filepath.Join(cfg.DataDir, "store"))
}

func TestArchivesGoWhereTheyAreNeeded(t *testing.T) {
	testkit.Root(t) // tokens are for root
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

func mustToken(t *testing.T, m *member) string {
	t.Helper()
	token, err := m.CreateToken(t.Context(), api.TokenRequest{Role: pki.Agent})
	if err != nil {
		t.Fatal(err)
	}
	return token.Text
}

func TestMembersMove(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	stopAll(t, h2, h1)
	h1.cfg.Listen = nextAddress()
	h1 = run(t, h1.cfg)
	h2.cfg.Listen = nextAddress()
	invite(t, h1, &h2.cfg, pki.Agent) // so it learns where the server is now
	h2 = run(t, h2.cfg)
	up(t, h2.Client, pinned("net", "h1", "h2"))
	nodesAnswer(t, map[string]string{"a": "h1", "b": "h2"}, h1, h2)
}

func TestAgentWaitsForItsServers(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	stopAll(t, h2, h1)
	h2.cfg.Join, h2.cfg.Token = "", ""
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, h2.cfg) }()
	hosts := func() ([]api.Host, error) {
		c, err := client.Dial(t.Context(), h2.cfg.Socket)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.Hosts(t.Context())
	}
	testkit.Eventually(t, func() error {
		if _, err := hosts(); err == nil ||
			!strings.Contains(err.Error(), "servers of the cluster do not answer") {
			return fmt.Errorf("it says something else: %w", cmp.Or(err, errors.New("nothing")))
		}
		return nil
	}, 60*time.Second, "h2 to say what is wrong")
	run(t, h1.cfg)
	testkit.Eventually(t, func() error {
		all, err := hosts()
		if err == nil && len(all) != 2 {
			err = fmt.Errorf("it sees %v", all)
		}
		return err
	}, 30*time.Second, "h2 to answer")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
