package kv

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/record"
)

// listeners are the ports of a member of a cluster. etcd can listen by itself, but only with certificates from files
// and without regard to roles: an agent's certificate would do for a peer.
type listeners struct {
	dir          string
	identity     func() *pki.Identity
	prefix       record.Prefix // of the keys
	refused      func(host, from string, why error)
	peer, client net.Listener
	grpc         *grpc.Server
	http         *http.Server
	kv           *readable // by which callers are checked; nil before serve
	stopRenewing context.CancelFunc
	tasks        sync.WaitGroup
}

// Both ends of a client's connection notice a wire that was cut.
const (
	clientPing = 10 * time.Second
	clientPong = 5 * time.Second
)

var errNoIdentity = errors.New("a cluster needs a certificate")

// openListeners takes the ports. Connections wait until serve is called.
func openListeners(ctx context.Context, dir string, prefix record.Prefix, c *ClusterConfig) (*listeners, error) {
	if c.Identity == nil || c.Identity() == nil {
		return nil, errNoIdentity
	}
	l := &listeners{dir: dir, prefix: prefix, identity: c.Identity, refused: c.Refused}
	if err := l.writeIdentity(); err != nil {
		return nil, err
	}
	// rafthttp's heartbeats keep a connection's deadlines in the future: a peer that vanished is noticed.
	var err error
	l.peer, err = transport.NewTimeoutListener(c.ListenPeer, "http", nil,
		rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout)
	if err != nil {
		return nil, fmt.Errorf("listen for the other servers: %w", err)
	}
	l.client, err = new(net.ListenConfig).Listen(ctx, "tcp", c.ListenClient)
	if err != nil {
		l.peer.Close()
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	return l, nil
}

// serve accepts peers and clients, which must be servers.
func (l *listeners) serve(etcd *etcdserver.EtcdServer) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stopRenewing = cancel
	l.http = &http.Server{
		Handler:           etcdhttp.NewPeerHandler(etcd.Logger(), etcd),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	l.kv = &readable{KV: etcd.KV()}
	g := guard{prefix: l.prefix, kv: l.kv, refused: l.refused}
	l.grpc = v3rpc.Server(etcd, l.tls("h2", g), nil,
		grpc.WaitForHandlers(true), // none reads what etcd closes next
		// A client that pings more often than this is disconnected.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing / 2}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: clientPing, Timeout: clientPong}))
	peers := tls.NewListener(l.peer, l.tls("http/1.1", g))
	l.tasks.Go(func() { l.renewIdentity(ctx) })
	l.tasks.Go(func() { _ = l.http.Serve(peers) })
	l.tasks.Go(func() { _ = l.grpc.Serve(l.client) })
}

// closeClients ends the requests of clients. Peers that are connected stay; no others are let in.
func (l *listeners) closeClients() {
	if l.grpc != nil {
		l.grpc.Stop()
		l.kv.close()
	}
	l.client.Close()
}

func (l *listeners) close() {
	l.closeClients()
	if l.http != nil {
		l.http.Close()
		l.stopRenewing()
	}
	l.peer.Close()
	l.tasks.Wait()
}

// tls is for a listener that accepts servers whose certificates are not revoked.
func (l *listeners) tls(protocol string, g guard) *tls.Config {
	base := pki.ServerConfig(l.identity)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := base.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			config.NextProtos = []string{protocol}
			config.ClientAuth = tls.RequireAndVerifyClientCert
			config.VerifyConnection = func(state tls.ConnectionState) error {
				if m, _ := pki.PeerOf(&state); m.Role != pki.Server {
					return errors.New(string(m.Role) + " may not connect here")
				}
				return g.revokedPeer(&state, hello.Conn.RemoteAddr())
			}
			return config, nil
		},
	}
}

// peerFiles names the files of the certificate that etcd shows to its peers. etcd reads them at each connection.
// Certificate and key are one file, so that a renewal replaces both at once.
func (l *listeners) peerFiles() transport.TLSInfo {
	member := filepath.Join(l.dir, "member.pem")
	return transport.TLSInfo{
		CertFile: member, KeyFile: member, TrustedCAFile: filepath.Join(l.dir, "authority.pem"),
		ClientCertAuth: true,
	}
}

// writeIdentity writes those files, unless they hold the identity already.
func (l *listeners) writeIdentity() error {
	id := l.identity()
	key, err := pki.EncodeKey(id.Key)
	if err != nil {
		return err
	}
	authority := pki.EncodeCertificate(id.Authority)
	files := l.peerFiles()
	if err := replace(files.TrustedCAFile, authority); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	member := bytes.Join([][]byte{pki.EncodeCertificate(id.Certificate), authority, key}, nil)
	if err := replace(files.CertFile, member); err != nil {
		return fmt.Errorf("write the member's certificate: %w", err)
	}
	return nil
}

// replace writes a private file atomically, unless it has this content.
func replace(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

// renewEvery is how soon a renewed certificate is shown to peers.
const renewEvery = time.Minute

func (l *listeners) renewIdentity(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = l.writeIdentity() // the old one holds for weeks
		}
	}
}
