package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/record"
)

func TestCertificateMustFitTheAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := c.config("h1")
	config.Cluster.AdvertisePeer = "https://192.0.2.1:7472"
	if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "192.0.2.1") ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("opened: %v", err)
	}
	config = c.config("h1")
	config.Cluster.ListenPeer = "0.0.0.0:0"
	if _, err := Open(t.Context(), config); err == nil ||
		!strings.Contains(err.Error(), "no address that others could use") {
		t.Errorf("opened: %v", err)
	}
}

func TestAgentsMayNotTouchTheClustersTrust(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	agent := c.agent("h2")
	cert, key, err := c.authority.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Trust().PutAuthority(ctx, cert, key); err != nil {
		t.Fatal(err)
	}
	if err := s.Trust().PutAuthority(ctx, cert, key); !errors.Is(err, ErrAuthority) {
		t.Errorf("put twice: %v", err)
	}
	if _, got, err := s.Trust().Authority(ctx); err != nil || string(got) != string(key) {
		t.Errorf("authority: %v", err)
	}
	for what, do := range map[string]func() error{
		"read the authority": func() error { _, _, err := agent.Trust().Authority(ctx); return err },
		"write a grant":      func() error { return agent.Trust().PutGrant(ctx, pki.Grant{ID: "x"}) },
		"write an admission": func() error {
			return agent.Trust().Admit(ctx, c.identity("h3", pki.Agent)().Certificate)
		},
		"read all admissions": func() error {
			_, err := agent.db.Etcd().Get(ctx, agent.db.Prefix().AdmissionKey(""), prefixKeys()...)
			return err
		},
		"add a server": func() error {
			_, err := agent.AddMember(ctx, "h2", "https://127.0.0.1:1")
			return err
		},
		"remove a server": func() error { return agent.RemoveMember(ctx, "h1") },
		"read everything": func() error {
			_, err := agent.db.Etcd().Get(ctx, "\x00", prefixKeys()...)
			return err
		},
		"take a snapshot": func() error {
			r, err := agent.db.Etcd().Snapshot(ctx)
			if err == nil {
				_, err = r.Read(make([]byte, 1))
				r.Close()
			}
			return err
		},
		"watch everything": func() error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			for r := range agent.db.Etcd().Watch(ctx, "\x00", prefixKeys()...) {
				if r.Err() != nil {
					return r.Err()
				}
			}
			return ctx.Err()
		},
	} {
		if err := do(); err == nil ||
			!strings.Contains(err.Error(), "only servers of the cluster may do this") {
			t.Errorf("an agent may %s: %v", what, err)
		}
	}
	// But it watches, leases and leads.
	if _, err := agent.Watch(ctx); err != nil {
		t.Error(err)
	}
}

func TestCertificatesOfRemovedHostsAreRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	removed, other := c.agent("h2"), c.agent("h3")
	visit(t, removed, machine("h2", "b"))
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrNoHost) {
		t.Errorf("it reads: %v", err)
	}
	if _, err := removed.Register(ctx, machine("h2", "b"), 10*time.Second); !errors.Is(err, ErrNoHost) {
		t.Errorf("it registers: %v", err)
	}
	if _, err := other.Slices(ctx); err != nil {
		t.Errorf("another host: %v", err)
	}
	// another machine's: issued in the same second
	if err := s.Trust().Admit(ctx, c.identity("h2", pki.Agent)().Certificate); err != nil {
		t.Fatal(err)
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrReplaced) || !errors.Is(err, ErrNoHost) ||
		!strings.Contains(err.Error(), "another machine joined the cluster as host h2, at ") {
		t.Errorf("with the old certificate it reads: %v", err)
	}
	id := c.identity("h2", pki.Agent)
	if err := s.Trust().Admit(ctx, id().Certificate); err != nil {
		t.Fatal(err)
	}
	renewed, err := c.authority.Issue(pki.Member{Name: "h2", Role: pki.Agent}, id().Key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string]*x509.Certificate{"new": id().Certificate, "renewed": renewed} {
		identity := func() *pki.Identity {
			return &pki.Identity{Certificate: cert, Key: id().Key, Authority: id().Authority}
		}
		again, err := Open(ctx,
			Config{Follow: true, TLS: pki.ClientConfig(identity),
				Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
		if err != nil {
			t.Errorf("a %s certificate: %v", name, err)
			continue
		}
		if _, err := again.Slices(ctx); err != nil {
			t.Errorf("a %s certificate: %v", name, err)
		}
		again.Close()
	}
}

// A version before admissions kept hosts out that were removed by a key of its own.
func TestHostsThatAnOlderVersionRemovedStayRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	removed, returned := c.agent("h2"), c.agent("h3")
	for host, until := range map[string]int64{"h2": math.MaxInt64,
		"h3": c.identity("h3", pki.Agent)().Certificate.NotBefore.Add(-time.Hour).Unix()} {
		if err := s.db.Put(ctx, s.db.Prefix().TrustKey("barred", host),
			strconv.FormatInt(until, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrNoHost) ||
		!strings.Contains(err.Error(), record.ReasonRemoved) {
		t.Errorf("one that was removed reads: %v", err)
	}
	if _, err := returned.Slices(ctx); err != nil {
		t.Errorf("one that joined again: %v", err)
	}
	id := c.identity("h2", pki.Agent)
	if err := s.Trust().Admit(ctx, id().Certificate); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx,
		Config{Follow: true, TLS: pki.ClientConfig(id),
			Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Slices(ctx); err != nil {
		t.Errorf("one that joins again now: %v", err)
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrReplaced) {
		t.Errorf("by its old certificate it reads: %v", err)
	}
}

// A watch that began before its host was removed ends.
func TestWatchEndsWithMembership(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	removed := c.agent("h2")
	changes := removed.db.Etcd().Watch(ctx, removed.db.Key("hosts", ""),
		append(prefixKeys(), clientv3.WithCreatedNotify())...)
	if r := <-changes; !r.Created {
		t.Fatalf("the watch begins by %+v", r)
	}
	visit(t, s.Store, machine("h2", "b"))
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Put(ctx, s.db.Key("hosts", "later"), "{}"); err != nil {
		t.Fatal(err)
	}
	for r := range changes {
		for _, e := range r.Events {
			if strings.HasSuffix(string(e.Kv.Key), "/later") {
				t.Error("a host that was removed hears what changes")
				return
			}
		}
		if r.Err() != nil && !strings.Contains(r.Err().Error(), record.ReasonRemoved) {
			t.Errorf("the watch ends by: %v", r.Err())
		}
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("the watch did not end: %v", err)
	}
}

func TestCertificatesOfRemovedServersAreRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	cert, key, err := c.authority.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Trust().PutAuthority(ctx, cert, key); err != nil {
		t.Fatal(err)
	}
	id := c.identity("h2", pki.Server)
	removed, err := Open(ctx,
		Config{Follow: true, TLS: pki.ClientConfig(id),
			Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
	if err != nil {
		t.Fatal(err)
	}
	defer removed.Close()
	visit(t, removed, machine("h2", "b"))
	asPeer := func() error {
		conn, err := (&tls.Dialer{Config: pki.ClientConfig(id)}).DialContext(ctx, "tcp",
			s.config.Cluster.ListenPeer)
		if err != nil {
			return err
		}
		defer conn.Close()
		// TLS 1.3: a refusal shows when reading
		if _, err = fmt.Fprint(conn, "GET /version HTTP/1.0\r\n\r\n"); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		return err
	}
	if _, _, err := removed.Trust().Authority(ctx); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := asPeer(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := removed.Trust().Authority(ctx); !errors.Is(err, ErrNoHost) {
		t.Errorf("it reads the authority's key: %v", err)
	}
	if _, err := removed.AddMember(ctx, "h2", "https://127.0.0.1:1"); !errors.Is(err, ErrNoHost) {
		t.Errorf("it adds itself: %v", err)
	}
	if err := asPeer(); err == nil {
		t.Error("it connects as a peer")
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := open(t, t.TempDir())
	now := time.Now()
	token, grant := pki.NewToken(c.authority, pki.Agent, "rack 1", time.Hour, now)
	_, other := pki.NewToken(c.authority, pki.Server, "", time.Minute, now.Add(time.Second))
	for _, g := range []pki.Grant{grant, other} {
		if err := s.Trust().PutGrant(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Trust().Grant(ctx, token.ID)
	if err != nil || got.Role != pki.Agent || got.Note != "rack 1" {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := got.Check(token, now); err != nil {
		t.Errorf("used in time: %v", err)
	}
	if err := got.Check(token, now.Add(2*time.Hour)); !errors.Is(err, pki.ErrToken) ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("used late: %v", err)
	}
	if list, err := s.Trust().Grants(ctx); err != nil || len(list) != 2 || list[0].ID != other.ID {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := s.Trust().DeleteGrant(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Trust().Grant(ctx, token.ID); !errors.Is(err, ErrNoGrant) {
		t.Errorf("revoked: %v", err)
	}
	if err := s.Trust().DeleteGrant(ctx, token.ID); !errors.Is(err, ErrNoGrant) {
		t.Errorf("revoked twice: %v", err)
	}
}
