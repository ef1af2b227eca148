package kv

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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
		"an agent's":        storetest.Identity(t, authority, "h2", pki.Agent),
		"admin":             storetest.Identity(t, authority, "root", pki.Admin),
	} {
		client := pki.ClientConfig(identity)
		client.VerifyConnection = nil // it would notice first
		if err := read(Config{Endpoints: endpoints, TLS: client, Timeout: time.Second}); err == nil {
			t.Errorf("%s certificate is accepted", name)
		}
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

// A server may receive an admission a moment later than the server that was admitted connects.
func TestAServerThatMayHaveBeenAdmittedIsNotRefused(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	d := open(t, config(t, authority, "h1"))
	was := storetest.Identity(t, authority, "h2", pki.Server)().Certificate
	next := storetest.Identity(t, authority, "h2", pki.Server)().Certificate
	admit := func(cert *x509.Certificate, at time.Time) {
		is := record.Admit(cert, at).Encode()
		if err := d.Put(t.Context(), d.Prefix().AdmissionKey("h2"), is); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	g := guard{
		prefix: d.prefix, kv: &readable{KV: d.embedded.etcd.Server.KV()},
		refused: func(string, string, error) { refused++ },
	}
	ask := func(cert *x509.Certificate) error {
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
		return g.revokedPeer(&state, &net.TCPAddr{})
	}
	admit(was, time.Now().Add(-2*time.Hour))
	for name, cert := range map[string]*x509.Certificate{"a member": was, "one that joined meanwhile": next} {
		if err := ask(cert); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	admit(next, time.Now())
	if err := ask(was); !errors.Is(err, record.ErrReplaced) || refused != 1 {
		t.Errorf("one that was replaced: %v, %d times", err, refused)
	}
	g.kv.close()
	if err := ask(next); !errors.Is(err, errClosed) || refused != 1 {
		t.Errorf("of a server that stops: %v, %d times", err, refused)
	}
}
