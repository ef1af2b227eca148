package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/control/pki"
)

func TestStrangersAreNotLetIn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	stranger := newCluster(t)
	for name, identity := range map[string]func() *pki.Identity{
		"another cluster's": stranger.identity("h1", pki.Server), "admin": c.identity("root", pki.Admin),
	} {
		config := pki.ClientConfig(identity)
		config.VerifyConnection = nil // it would notice first
		opened, err := Open(t.Context(), Config{Endpoints: []string{"https://" + s.config.Cluster.ListenClient}, TLS: config, Timeout: time.Second})
		if err == nil {
			opened.Close()
			t.Errorf("%s certificate is let in", name)
		}
	}
	_, err := Open(t.Context(), Config{
		Endpoints: []string{"https://" + s.config.Cluster.ListenClient}, TLS: pki.ClientConfig(stranger.identity("h2", pki.Agent)), Follow: true, Timeout: time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), "certificate is not of this cluster") {
		t.Errorf("an agent of another cluster: %v", err)
	}
	// Among peers, servers alone.
	for role, welcome := range map[pki.Role]bool{pki.Server: true, pki.Agent: false, pki.Admin: false} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.ClientConfig(c.identity("h2", role))}}
		_, err := peerMembers(t.Context(), client, "https://"+s.config.Cluster.ListenPeer)
		if (err == nil) != welcome {
			t.Errorf("%s at the door of peers: %v", role, err)
		}
		client.CloseIdleConnections()
	}
}

func TestRenewedCertificateCounts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := c.config("h1")
	var id atomic.Pointer[pki.Identity]
	id.Store(config.Cluster.Identity())
	config.Cluster.Identity = id.Load
	s := c.start("h1", config)
	id.Store(c.identity("h1", pki.Server)())
	doors := s.embedded.doors
	if err := doors.writeIdentity(); err != nil {
		t.Fatal(err)
	}
	for name, listener := range map[string]net.Listener{"peers": doors.peer, "clients": doors.client} {
		conn, err := (&tls.Dialer{Config: pki.ClientConfig(id.Load)}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if !shown.Equal(id.Load().Certificate) {
			t.Errorf("the door for %s shows the old certificate", name)
		}
		conn.Close()
	}
	for _, file := range []string{doors.peerFiles().CertFile, doors.peerFiles().TrustedCAFile} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if cert, err := tls.LoadX509KeyPair(doors.peerFiles().CertFile, doors.peerFiles().KeyFile); err != nil || !cert.Leaf.Equal(id.Load().Certificate) {
		t.Errorf("what etcd shows to its peers: %v", err)
	}
}

func TestCertificateMustFitTheAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := c.config("h1")
	config.Cluster.AdvertisePeer = "https://192.0.2.1:7472"
	if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "192.0.2.1") || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("opened: %v", err)
	}
	config = c.config("h1")
	config.Cluster.ListenPeer = "0.0.0.0:0"
	if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "no address that others could use") {
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
	if err := s.PutAuthority(ctx, cert, key); err != nil {
		t.Fatal(err)
	}
	if err := s.PutAuthority(ctx, cert, key); !errors.Is(err, ErrAuthority) {
		t.Errorf("put twice: %v", err)
	}
	if _, got, err := s.Authority(ctx); err != nil || string(got) != string(key) {
		t.Errorf("authority: %v", err)
	}
	for what, do := range map[string]func() error{
		"read the authority": func() error { _, _, err := agent.Authority(ctx); return err },
		"write a grant":      func() error { return agent.PutGrant(ctx, pki.Grant{ID: "x"}) },
		"write an admission": func() error { return agent.Admit(ctx, c.identity("h3", pki.Agent)().Certificate) },
		"read all admissions": func() error {
			_, err := agent.kv.Get(ctx, admissionKey(agent.prefix, ""), prefixKeys()...)
			return err
		},
		"add a server":    func() error { _, err := agent.AddMember(ctx, "h2", "https://127.0.0.1:1"); return err },
		"remove a server": func() error { return agent.RemoveMember(ctx, "h1") },
		"read everything": func() error {
			_, err := agent.kv.Get(ctx, "\x00", prefixKeys()...)
			return err
		},
		"take a snapshot": func() error {
			r, err := agent.kv.Snapshot(ctx)
			if err == nil {
				_, err = r.Read(make([]byte, 1))
				r.Close()
			}
			return err
		},
		"watch everything": func() error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			for r := range agent.kv.Watch(ctx, "\x00", prefixKeys()...) {
				if r.Err() != nil {
					return r.Err()
				}
			}
			return ctx.Err()
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), servedToServers) {
			t.Errorf("an agent may %s: %v", what, err)
		}
	}
	// But it watches, leases and leads.
	if _, err := agent.Watch(ctx); err != nil {
		t.Error(err)
	}
}

func TestRemovedHostsAreBarred(t *testing.T) {
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
	if err := s.Admit(ctx, c.identity("h2", pki.Agent)().Certificate); err != nil { // another machine's: issued in the same second
		t.Fatal(err)
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrReplaced) || !errors.Is(err, ErrNoHost) || !strings.Contains(err.Error(), "another machine joined the cluster as host h2, at ") {
		t.Errorf("with the old certificate it reads: %v", err)
	}
	id := c.identity("h2", pki.Agent)
	if err := s.Admit(ctx, id().Certificate); err != nil {
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
		again, err := Open(ctx, Config{Follow: true, TLS: pki.ClientConfig(identity), Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
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

// A server that was off for long hears of those that joined meanwhile from nobody but them.
func TestNewsOfAdmissionsComeByPeers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newCluster(t)
	was := c.identity("h2", pki.Server)().Certificate
	known := admission{Key: keyOf(was), Since: now.Add(-2 * time.Hour)}
	next := c.identity("h2", pki.Server)().Certificate
	if known.refuses(was) != nil || known.refuses(next) == nil || !known.mayBeNews(next) {
		t.Error("who joined again two hours after the admission that is known is kept out")
	}
	if heard := (admission{Key: keyOf(next), Since: now}); heard.refuses(was) == nil || heard.mayBeNews(was) {
		t.Error("who was replaced is let in")
	}
	if gone := (admission{Since: now}); gone.refuses(next) == nil || gone.mayBeNews(next) {
		t.Error("who was removed is let in")
	}
}

// A version before admissions kept hosts out that were removed by a key of its own.
func TestHostsThatAnOlderVersionRemovedStayBarred(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	removed, returned := c.agent("h2"), c.agent("h3")
	for host, until := range map[string]int64{"h2": math.MaxInt64, "h3": c.identity("h3", pki.Agent)().Certificate.NotBefore.Add(-time.Hour).Unix()} {
		if err := s.put(ctx, trustKey(s.prefix, "barred", host), strconv.FormatInt(until, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := removed.Slices(ctx); !errors.Is(err, ErrNoHost) || !strings.Contains(err.Error(), removedHost) {
		t.Errorf("one that was removed reads: %v", err)
	}
	if _, err := returned.Slices(ctx); err != nil {
		t.Errorf("one that joined again: %v", err)
	}
	id := c.identity("h2", pki.Agent)
	if err := s.Admit(ctx, id().Certificate); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, Config{Follow: true, TLS: pki.ClientConfig(id), Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
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

// Which hosts are members, a server may hear a moment later than who joined at another one.
func TestServerThatMissedAJoinAsksBeforeItRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	was, next := c.identity("h2", pki.Agent)().Certificate, c.identity("h2", pki.Agent)().Certificate
	if err := s.Admit(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	guard := roleGuard{prefix: s.prefix, kv: s.embedded.etcd.Server.KV(), settle: func(context.Context) error { return errors.New("cut off") }}
	ask := func(cert *x509.Certificate) error {
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: credentials.TLSInfo{State: state}})
		return guard.refuses(ctx, &pb.StatusRequest{})
	}
	if err := ask(was); err != nil {
		t.Errorf("a member: %v", err)
	}
	if err := ask(next); status.Code(err) != codes.Unavailable {
		t.Errorf("one that joined meanwhile, at a server that reaches no other: %v", err)
	}
	guard.settle = func(ctx context.Context) error { return s.Admit(ctx, next) } // the news arrive
	if err := ask(next); err != nil {
		t.Errorf("one that joined meanwhile: %v", err)
	}
	if err := ask(was); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), ErrReplaced.Error()) {
		t.Errorf("one that was replaced: %v", err)
	}
}

// A watch that began before its host was removed tells it nothing more.
func TestWatchEndsWithMembership(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	removed := c.agent("h2")
	changes := removed.kv.Watch(ctx, removed.key("hosts", ""), append(prefixKeys(), clientv3.WithCreatedNotify())...)
	if r := <-changes; !r.Created {
		t.Fatalf("the watch begins by %+v", r)
	}
	visit(t, s.Store, machine("h2", "b"))
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if err := s.put(ctx, s.key("hosts", "later"), "{}"); err != nil {
		t.Fatal(err)
	}
	for r := range changes {
		for _, e := range r.Events {
			if strings.HasSuffix(string(e.Kv.Key), "/later") {
				t.Error("a host that was removed hears what changes")
				return
			}
		}
		if r.Err() != nil && !strings.Contains(r.Err().Error(), removedHost) {
			t.Errorf("the watch ends by: %v", r.Err())
		}
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("the watch did not end: %v", err)
	}
}

func TestRemovedServersAreBarredToo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	s := c.start("h1", c.config("h1"))
	cert, key, err := c.authority.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutAuthority(ctx, cert, key); err != nil {
		t.Fatal(err)
	}
	id := c.identity("h2", pki.Server)
	removed, err := Open(ctx, Config{Follow: true, TLS: pki.ClientConfig(id), Endpoints: []string{"https://" + s.config.Cluster.ListenClient}})
	if err != nil {
		t.Fatal(err)
	}
	defer removed.Close()
	visit(t, removed, machine("h2", "b"))
	asPeer := func() error {
		conn, err := (&tls.Dialer{Config: pki.ClientConfig(id)}).DialContext(ctx, "tcp", s.config.Cluster.ListenPeer)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err = fmt.Fprint(conn, "GET /version HTTP/1.0\r\n\r\n"); err == nil { // TLS 1.3: only what is read tells
			_, err = conn.Read(make([]byte, 1))
		}
		return err
	}
	if _, _, err := removed.Authority(ctx); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := asPeer(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := s.DeleteHost(ctx, "h2"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := removed.Authority(ctx); !errors.Is(err, ErrNoHost) {
		t.Errorf("it reads the authority's key: %v", err)
	}
	if _, err := removed.AddMember(ctx, "h2", "https://127.0.0.1:1"); !errors.Is(err, ErrNoHost) {
		t.Errorf("it adds itself: %v", err)
	}
	if err := asPeer(); err == nil {
		t.Error("it comes in by the door for peers")
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
		if err := s.PutGrant(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Grant(ctx, token.ID)
	if err != nil || got.Role != pki.Agent || got.Note != "rack 1" {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := got.Check(token, now); err != nil {
		t.Errorf("used in time: %v", err)
	}
	if err := got.Check(token, now.Add(2*time.Hour)); !errors.Is(err, pki.ErrToken) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("used late: %v", err)
	}
	if list, err := s.Grants(ctx); err != nil || len(list) != 2 || list[0].ID != other.ID {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := s.DeleteGrant(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Grant(ctx, token.ID); !errors.Is(err, ErrNoGrant) {
		t.Errorf("revoked: %v", err)
	}
	if err := s.DeleteGrant(ctx, token.ID); !errors.Is(err, ErrNoGrant) {
		t.Errorf("revoked twice: %v", err)
	}
}
