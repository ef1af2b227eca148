package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/pergola-net/pergola/control/pki"
)

// doors are where a member of a cluster listens. etcd can listen by itself, but only by files and without regard to roles: an agent's
// certificate would do for a peer.
type doors struct {
	dir          string
	identity     func() *pki.Identity
	prefix       string // of what agents may touch
	refused      func(host, from string, why error)
	peer, client net.Listener
	grpc         *grpc.Server
	http         *http.Server
	stopKeeping  context.CancelFunc
	parts        sync.WaitGroup
}

// Both sides of a client's connection notice a wire that was cut.
const (
	clientPing = 10 * time.Second
	clientPong = 5 * time.Second
)

// openDoors takes the ports. Who calls before serve waits.
func openDoors(ctx context.Context, dir, prefix string, c *ClusterConfig) (*doors, error) {
	if c.Identity == nil || c.Identity() == nil {
		return nil, errNoIdentity
	}
	d := &doors{dir: dir, prefix: prefix, identity: c.Identity, refused: c.Refused}
	if err := d.writeIdentity(); err != nil {
		return nil, err
	}
	// rafthttp's heartbeats keep a connection's deadlines in the future: a peer that vanished is noticed.
	var err error
	d.peer, err = transport.NewTimeoutListener(c.ListenPeer, "http", nil, rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout)
	if err != nil {
		return nil, fmt.Errorf("listen for the other servers: %w", err)
	}
	d.client, err = new(net.ListenConfig).Listen(ctx, "tcp", c.ListenClient)
	if err != nil {
		d.peer.Close()
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	return d, nil
}

// serve lets peers in, who must be servers, and clients, who must be servers or agents.
func (d *doors) serve(etcd *etcdserver.EtcdServer) {
	ctx, cancel := context.WithCancel(context.Background())
	d.stopKeeping = cancel
	d.http = &http.Server{
		Handler:           etcdhttp.NewPeerHandler(etcd.Logger(), etcd),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	guard := roleGuard{prefix: d.prefix, kv: etcd.KV(), settle: etcd.LinearizableReadNotify, refused: d.refused}
	d.grpc = v3rpc.Server(etcd, d.tls("h2", nil, pki.Server, pki.Agent), guard.unary, grpc.ChainStreamInterceptor(guard.stream),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing / 2}), // what clients may, or be sent away
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: clientPing, Timeout: clientPong}))
	d.parts.Go(func() { d.keepIdentity(ctx) })
	d.parts.Go(func() { _ = d.http.Serve(tls.NewListener(d.peer, d.tls("http/1.1", guard.outcastPeer, pki.Server))) })
	d.parts.Go(func() { _ = d.grpc.Serve(d.client) })
}

// closeClients ends what clients have under way.
func (d *doors) closeClients() {
	if d.grpc != nil {
		d.grpc.Stop()
	}
	d.client.Close()
}

func (d *doors) close() {
	d.closeClients()
	if d.http != nil {
		d.http.Close()
		d.stopKeeping()
	}
	d.peer.Close()
	d.parts.Wait()
}

// tls is for a door that only members with one of the roles pass, and no outcast: where that is nil, what is behind the door looks
// at each request.
func (d *doors) tls(protocol string, outcast func(*tls.ConnectionState, net.Addr) error, roles ...pki.Role) *tls.Config {
	base := pki.ServerConfig(d.identity)
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
				if outcast != nil {
					if err := outcast(&state, hello.Conn.RemoteAddr()); err != nil {
						return err
					}
				}
				m, _ := pki.PeerOf(&state)
				for _, role := range roles {
					if m.Role == role {
						return nil
					}
				}
				return errors.New(string(m.Role) + " may not connect here")
			}
			return config, nil
		},
	}
}
