package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/control/store/storetest"
)

// config is a server's on loopback.
func config(t *testing.T, authority *pki.Authority, name string) Config {
	t.Helper()
	return Config{
		Dir: filepath.Join(t.TempDir(), name), LogFile: filepath.Join(t.TempDir(), "etcd.log"),
		Cluster: &ClusterConfig{
			Name: name, ListenPeer: storetest.FreeAddress(t), ListenClient: storetest.FreeAddress(t),
			Identity:        storetest.Identity(t, authority, name, pki.Server),
			ElectionTimeout: 600 * time.Millisecond,
		},
	}
}

func open(t *testing.T, cfg Config) *DB {
	t.Helper()
	d, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestCertificatesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	authority, other := storetest.NewAuthority(t), storetest.NewAuthority(t)
	cfg := config(t, authority, "h1")
	open(t, cfg)
	endpoints := []string{"https://" + cfg.Cluster.ListenClient}
	read := func(cfg Config) error {
		d := open(t, cfg)
		_, err := d.Get(t.Context(), d.Key("slices", ""))
		return err
	}
	for name, identity := range map[string]func() *pki.Identity{
		"another cluster's": storetest.Identity(t, other, "h1", pki.Server),
		"admin":             storetest.Identity(t, authority, "root", pki.Admin),
	} {
		client := pki.ClientConfig(identity)
		client.VerifyConnection = nil // it would notice first
		if err := read(Config{Endpoints: endpoints, TLS: client, Timeout: time.Second}); err == nil {
			t.Errorf("%s certificate is accepted", name)
		}
	}
	agent := pki.ClientConfig(storetest.Identity(t, other, "h2", pki.Agent))
	err := read(Config{Endpoints: endpoints, TLS: agent, Follow: true, Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "certificate is not of this cluster") {
		t.Errorf("an agent of another cluster: %v", err)
	}
	// The peer listener accepts only servers.
	for role, accepted := range map[pki.Role]bool{pki.Server: true, pki.Agent: false, pki.Admin: false} {
		config := pki.ClientConfig(storetest.Identity(t, authority, "h2", role))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		_, err := peerMembers(t.Context(), client, "https://"+cfg.Cluster.ListenPeer)
		if (err == nil) != accepted {
			t.Errorf("%s at the peer listener: %v", role, err)
		}
		client.CloseIdleConnections()
	}
}

func TestRenewedCertificateCounts(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	cfg := config(t, authority, "h1")
	var id atomic.Pointer[pki.Identity]
	id.Store(cfg.Cluster.Identity())
	cfg.Cluster.Identity = id.Load
	d := open(t, cfg)
	id.Store(storetest.Identity(t, authority, "h1", pki.Server)())
	l := d.embedded.listeners
	if err := l.writeIdentity(); err != nil {
		t.Fatal(err)
	}
	for name, listener := range map[string]net.Listener{"peers": l.peer, "clients": l.client} {
		dialer := &tls.Dialer{Config: pki.ClientConfig(id.Load)}
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if !shown.Equal(id.Load().Certificate) {
			t.Errorf("the listener for %s shows the old certificate", name)
		}
		conn.Close()
	}
	for _, file := range []string{l.peerFiles().CertFile, l.peerFiles().TrustedCAFile} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	cert, err := tls.LoadX509KeyPair(l.peerFiles().CertFile, l.peerFiles().KeyFile)
	if err != nil || !cert.Leaf.Equal(id.Load().Certificate) {
		t.Errorf("what etcd shows to its peers: %v", err)
	}
}

// A server may receive an admission a moment later than the host that joined at another server.
func TestAServerCatchesUpBeforeItRefuses(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	d := open(t, config(t, authority, "h1"))
	was := storetest.Identity(t, authority, "h2", pki.Agent)().Certificate
	next := storetest.Identity(t, authority, "h2", pki.Agent)().Certificate
	admit := func(ctx context.Context, cert *x509.Certificate) error {
		return d.Put(ctx, d.Prefix().AdmissionKey("h2"), record.Admit(cert, time.Now()).Encode())
	}
	if err := admit(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	g := guard{
		prefix: d.prefix, kv: &readable{KV: d.embedded.etcd.Server.KV()},
		catchUp: func(context.Context) error { return errors.New("cut off") },
	}
	ask := func(cert *x509.Certificate) error {
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		from := &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: credentials.TLSInfo{State: state}}
		ctx := peer.NewContext(t.Context(), from)
		return g.check(ctx, &pb.StatusRequest{})
	}
	if err := ask(was); err != nil {
		t.Errorf("a member: %v", err)
	}
	if err := ask(next); status.Code(err) != codes.Unavailable {
		t.Errorf("one that joined meanwhile, at a server that reaches no other: %v", err)
	}
	g.catchUp = func(ctx context.Context) error { return admit(ctx, next) }
	if err := ask(next); err != nil {
		t.Errorf("one that joined meanwhile: %v", err)
	}
	if err := ask(was); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), record.ErrReplaced.Error()) {
		t.Errorf("one that was replaced: %v", err)
	}
	g.kv.close()
	if err := ask(next); status.Code(err) != codes.Unavailable {
		t.Errorf("of a server that stops: %v", err)
	}
}
