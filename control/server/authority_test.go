package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestNewAuthority(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	up(t, h1.Client, pinned("net", "h1", "h2"))
	old := h2.cfg
	invite(t, h1, &old, pki.Agent)
	was, err := openIdentity(filepath.Join(h1.cfg.DataDir, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	lonely := machineConfig(t, "h9")
	lonely.NewAuthority = true
	startFails(t, lonely, "this machine is in no cluster")
	stopAll(t, h2, h1)
	wrong := h2.cfg
	wrong.NewAuthority, wrong.Join, wrong.Token, wrong.Role = true, "", "", pki.Server
	startFails(t, wrong, "this machine is one of the agents: --new-authority is for a server")

	foreign := h1.cfg
	foreign.NewAuthority, foreign.Etcd = true, []string{"http://127.0.0.1:1"}
	startFails(t, foreign, "the state of this cluster is in another etcd (--etcd)")

	again := h1.cfg
	again.NewAuthority = true
	h1 = run(t, again)
	if text := h1.out.String(); !strings.Contains(text,
		"has a new authority. No other machine trusts it: on each, stop Pergola, remove "+was.dir) {
		t.Errorf("it prints %q", text)
	}
	now, err := openIdentity(was.dir)
	if err != nil || pki.Pin(now.identity.Load().Authority) == pki.Pin(was.identity.Load().Authority) ||
		pki.Pin(now.identity.Load().Certificate) == pki.Pin(was.identity.Load().Certificate) {
		t.Errorf("the keys are the old ones: %v", err)
	}
	if tokens, err := h1.Tokens(t.Context()); err != nil || len(tokens) != 0 {
		t.Errorf("tokens of the old authority: %+v %v", tokens, err)
	}

	// Certificates that are signed with the old authority's key are refused.
	by := newTransport()
	by.TLSClientConfig = pki.ClientConfig(func() *pki.Identity { return was.identity.Load() })
	by.TLSClientConfig.VerifyConnection = nil
	defer by.CloseIdleConnections()
	if status, err := getAs(t, by, h1, "/v1/slices"); err == nil {
		t.Errorf("the old server's certificate: status %d", status)
	} else if !strings.Contains(err.Error(), "tls:") {
		t.Errorf("the old server's certificate is refused by: %v", err)
	}
	startFails(t, func() Config { old.DataDir = t.TempDir(); return old }(),
		"this is not the cluster that the token is from")

	// The others join again as the hosts that they were.
	if err := os.RemoveAll(filepath.Join(h2.cfg.DataDir, "cluster")); err != nil {
		t.Fatal(err)
	}
	invite(t, h1, &h2.cfg, pki.Agent)
	h2 = run(t, h2.cfg)
	if all, err := h2.Slices(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("slices %v %v", all, err)
	}
	if hosts, err := h2.Hosts(t.Context()); err != nil || len(hosts) != 2 || hosts[1].Nodes != 1 {
		t.Errorf("hosts %+v %v", hosts, err)
	}
	if err := h1.stop(); err != nil {
		t.Fatal(err)
	}
	h1.cfg.NewAuthority = false // as the service starts it
	run(t, h1.cfg)
}

func TestOfSeveralServersNoneMakesANewAuthority(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Server)
	stopAll(t, h2, h1)
	h1.cfg.NewAuthority = true
	startFails(t, h1.cfg, "it belongs to a cluster of 2 servers",
		"there must be one server alone: remove the others before (pergola host rm)")
}

// Where the state is, a machine remembers: nothing is made beside it, and the identity stays.
func TestAuthorityOfAForeignStoreStays(t *testing.T) {
	t.Parallel()
	cfg := machineConfig(t, "h1")
	cfg.NewAuthority = true
	s := &server{Config: cfg}
	founding := &server{Config: cfg}
	founding.Etcd = []string{"http://127.0.0.1:1"}
	d, err := founding.createCluster(filepath.Join(cfg.DataDir, "cluster"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	was := d.identity.Load().Certificate
	if err := s.renewAuthority(t.Context(), d); err == nil ||
		!strings.Contains(err.Error(), "the state of this cluster is in another etcd (--etcd)") {
		t.Errorf("made: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "store")); !os.IsNotExist(err) {
		t.Errorf("a store beside it: %v", err)
	}
	if now, err := openIdentity(d.dir); err != nil || !now.identity.Load().Certificate.Equal(was) {
		t.Errorf("another identity: %v", err)
	}
}

// A server that was added and never started has no name by which it could be removed.
func TestServerThatNeverStartedDoesNotPreventANewAuthority(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	failed := machineConfig(t, "h2")
	invite(t, h1, &failed, pki.Server)
	token, err := pki.ParseToken(failed.Token)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := askToJoin(t.Context(), h1.cfg.Listen+":7470", token, api.JoinRequest{
		Token: token.Text(), Request: request, Role: pki.Server, Name: "h2", Machine: "b",
		API: failed.Listen + ":7470",
	}); err != nil {
		t.Fatal(err)
	}
	if st, err := h1.Cluster(t.Context()); err != nil || len(st.Servers) != 2 || len(st.Warnings) > 0 {
		t.Errorf("cluster %+v %v", st, err)
	}
	if err := h1.stop(); err != nil {
		t.Fatal(err)
	}
	h1.cfg.NewAuthority = true
	h1 = run(t, h1.cfg)
	up(t, h1.Client, pair("net"))
}

func TestAuthorityThatEndsIsReported(t *testing.T) {
	t.Parallel()
	now := time.Now()
	authority, err := pki.NewAuthority("test", now.AddDate(-10, 0, 100))
	if err != nil {
		t.Fatal(err)
	}
	k, bus := &identityDir{}, events.NewBus(8)
	k.identity.Store(&pki.Identity{Authority: authority.Certificate})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go newCluster(k, "m", quiet(), bus).watchAuthority(ctx, bus)
	reported, err := bus.Next(ctx, 0)
	if err != nil || reported[0].Kind != events.AuthorityEnds ||
		!strings.Contains(reported[0].Message,
			" days; after that no member trusts another: make a new one before (pergola "+
				"server --new-authority)") {
		t.Errorf("reported %+v %v", reported, err)
	}
	for left, words := range map[time.Duration]string{
		rest.AuthoritySoon + time.Hour: "", rest.AuthoritySoon - time.Hour: "in 179 days",
		time.Hour:  "in 0 days",
		-time.Hour: "ended at ",
	} {
		if got := rest.AuthorityEnds(now.Add(left), now); (got == "") != (words == "") ||
			!strings.Contains(got, words) {
			t.Errorf("%v before its end: %q", left, got)
		}
	}
}
