package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestOnlyServersReachTheStore(t *testing.T) {
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
	if err := s.Trust().PutAuthority(ctx, cert, key); !errors.Is(err, ErrAuthority) {
		t.Errorf("put twice: %v", err)
	}
	if _, got, err := s.Trust().Authority(ctx); err != nil || string(got) != string(key) {
		t.Errorf("authority: %v", err)
	}
	for role, may := range map[pki.Role]bool{pki.Server: true, pki.Agent: false, pki.Admin: false} {
		other, err := Open(ctx, Config{TLS: pki.ClientConfig(c.identity("h2", role)), Timeout: time.Second,
			Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
		if err == nil {
			_, err = other.Slices(ctx)
			other.Close()
		}
		if (err == nil) != may {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func TestCertificatesOfRemovedHostsAreRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	c := newCluster(t)
	removed := c.identity("h2", pki.Agent)().Certificate
	check := func(cert *x509.Certificate) error { return s.Trust().Check(ctx, cert) }
	if err := s.Trust().Admit(ctx, removed); err != nil {
		t.Fatal(err)
	}
	visit(t, s, machine("h2", "b"))
	if err := check(removed); err != nil {
		t.Error(err)
	}
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if err := check(removed); !errors.Is(err, ErrNoHost) || errors.Is(err, ErrReplaced) {
		t.Errorf("it is a member: %v", err)
	}
	if err := check(c.identity("h3", pki.Agent)().Certificate); err != nil {
		t.Errorf("another host: %v", err)
	}
	// another machine's: issued in the same second
	id := c.identity("h2", pki.Agent)
	if err := s.Trust().Admit(ctx, id().Certificate); err != nil {
		t.Fatal(err)
	}
	if err := check(removed); !errors.Is(err, ErrReplaced) || !errors.Is(err, ErrNoHost) ||
		!strings.Contains(err.Error(), "another machine joined the cluster as host h2, at ") {
		t.Errorf("the old certificate: %v", err)
	}
	renewed, err := c.authority.Issue(pki.Member{Name: "h2", Role: pki.Agent}, id().Key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string]*x509.Certificate{"new": id().Certificate, "renewed": renewed} {
		if err := check(cert); err != nil {
			t.Errorf("a %s certificate: %v", name, err)
		}
	}
}

// A version before admissions kept hosts out that were removed by a key of its own.
func TestHostsThatAnOlderVersionRemovedStayRevoked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	c := newCluster(t)
	removed, returned := c.identity("h2", pki.Agent)().Certificate, c.identity("h3", pki.Agent)().Certificate
	for host, until := range map[string]int64{"h2": math.MaxInt64,
		"h3": returned.NotBefore.Add(-time.Hour).Unix()} {
		if err := s.db.Put(ctx, s.db.Prefix().TrustKey("barred", host),
			strconv.FormatInt(until, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Trust().Check(ctx, removed); !errors.Is(err, ErrNoHost) ||
		!strings.Contains(err.Error(), record.ReasonRemoved) {
		t.Errorf("one that was removed: %v", err)
	}
	if err := s.Trust().Check(ctx, returned); err != nil {
		t.Errorf("one that joined again: %v", err)
	}
	again := c.identity("h2", pki.Agent)().Certificate
	if err := s.Trust().Admit(ctx, again); err != nil {
		t.Fatal(err)
	}
	if err := s.Trust().Check(ctx, again); err != nil {
		t.Errorf("one that joins again now: %v", err)
	}
	if err := s.Trust().Check(ctx, removed); !errors.Is(err, ErrReplaced) {
		t.Errorf("its old certificate: %v", err)
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
	asClient := func() error {
		removed, err := Open(ctx, Config{TLS: pki.ClientConfig(id), Timeout: time.Second,
			Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
		if err != nil {
			return err
		}
		defer removed.Close()
		_, _, err = removed.Trust().Authority(ctx)
		return err
	}
	visit(t, s.Store, machine("h2", "b"))
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
	if err := asClient(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := asPeer(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if err := asClient(); err == nil {
		t.Error("it reads the authority's key")
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
