package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// cluster is this machine's place in one. It implements api.Cluster.
type cluster struct {
	kept     *kept
	machine  string
	store    *store.Store // set before anything is asked
	log      *slog.Logger
	fetches  blobFetches
	renewal  func(*x509.Certificate) time.Time
	outcasts *outcasts

	mu        sync.Mutex                 // guards all below
	member    membership                 // as it is on disk
	authority *pki.Authority             // with its key: of servers, once they needed it
	peers     map[string]*http.Transport // by host's name
	anyServer *http.Transport
}

func newCluster(k *kept, machine string, log *slog.Logger, bus *events.Bus) *cluster {
	return &cluster{
		kept: k, machine: machine, log: log, renewal: pki.Renewal, outcasts: newOutcasts(log, bus), member: k.member, peers: map[string]*http.Transport{},
	}
}

// now is what this machine proves itself with.
func (c *cluster) now() *pki.Identity { return c.kept.identity.Load() }

// current is the membership.
func (c *cluster) current() membership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member
}

// Self implements api.Cluster.
func (c *cluster) Self() string { return c.current().Name }

// IsServer implements api.Cluster.
func (c *cluster) IsServer() bool { return c.current().Role == pki.Server }

// KeepsStore implements api.Cluster.
func (c *cluster) KeepsStore() bool { return !c.current().Foreign }

// Authority implements api.Cluster.
func (c *cluster) Authority() *pki.Authority { return &pki.Authority{Certificate: c.now().Authority} }

// Servers implements api.Cluster.
func (c *cluster) Servers() []string {
	m := c.current()
	if m.Role != pki.Server {
		return m.Servers
	}
	others := slices.DeleteFunc(slices.Clone(m.Servers), func(s string) bool { return s == m.Advertise })
	return append([]string{m.Advertise}, others...)
}

// own gives the address that others reach this machine's API at.
func (c *cluster) own() netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.current().Advertise) // it was one when it was written
	return a
}

// storeConfig makes this machine's store a part of the cluster's.
func (c *cluster) storeConfig(cfg *store.Config) error {
	m := c.current()
	switch {
	case len(cfg.Endpoints) > 0:
		return nil // by flags
	case m.Foreign:
		cfg.Endpoints = m.Etcd
		return nil
	case m.Role == pki.Agent:
		cfg.Endpoints, cfg.TLS, cfg.Follow = m.Etcd, pki.ClientConfig(c.now), true
		return nil
	}
	at, err := netip.ParseAddrPort(m.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", m.Listen, err)
	}
	cfg.Cluster = &store.ClusterConfig{
		Name: m.Name, Identity: c.now, Initial: m.Initial, Refused: c.outcasts.refused,
		ListenClient: after(at, etcdClientPort), ListenPeer: after(at, etcdPeerPort),
		AdvertiseClient: "https://" + after(c.own(), etcdClientPort), AdvertisePeer: "https://" + after(c.own(), etcdPeerPort),
	}
	return nil
}

// enthrone puts the authority of a cluster that this machine made into the store.
func (c *cluster) enthrone(ctx context.Context) error {
	m := c.current()
	if !m.Founder {
		return nil
	}
	key, err := c.kept.read(authorityKeyFile)
	if key == nil || err != nil {
		return err
	}
	err = c.store.Trust().PutAuthority(ctx, pki.EncodeCertificate(c.now().Authority), key)
	if errors.Is(err, store.ErrAuthority) { // put there by an earlier start that died at this place, or by somebody else
		if _, err = c.signer(ctx); err != nil {
			_ = os.RemoveAll(c.kept.dir) // nobody has joined by it
			return fmt.Errorf("%w: a cluster was made in it before: join that one (pergola server --join)", err)
		}
	}
	if err != nil {
		return err
	}
	return c.kept.remove(authorityKeyFile)
}

// signer is the authority with its key.
func (c *cluster) signer(ctx context.Context) (*pki.Authority, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority != nil {
		return c.authority, nil
	}
	cert, key, err := c.store.Trust().Authority(ctx)
	if err != nil {
		return nil, err
	}
	a, err := pki.LoadAuthority(cert, key)
	if err != nil {
		return nil, err
	}
	if pki.Pin(a.Certificate) != pki.Pin(c.now().Authority) {
		return nil, errors.New("the store is of another cluster than this machine's certificate; if a new authority was being made, do that again (pergola server --new-authority)")
	}
	c.authority = a
	return a, nil
}

// Timeouts towards other members. What they do may take its time; that they are there, they say at once.
const (
	peerDialTimeout = 3 * time.Second
	peerIdle        = time.Minute
)

// Peer implements api.Cluster.
func (c *cluster) Peer(h hosts.Host) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.peers[h.Name]
	if t == nil {
		t = newTransport()
		t.TLSClientConfig = pki.PeerConfig(c.now, h.Name)
		c.peers[h.Name] = t
	}
	return t
}

// AnyServer implements api.Cluster.
func (c *cluster) AnyServer() http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anyServer == nil {
		c.anyServer = newTransport()
		c.anyServer.TLSClientConfig = pki.ClientConfig(c.now)
	}
	return firstOf{servers: c.Servers, by: c.anyServer}
}

// close ends what is under way with other members. What fetches has been told to end.
func (c *cluster) close() {
	c.fetches.parts.Wait()
	c.hangUp()
}

// hangUp ends connections to other members that nobody uses.
func (c *cluster) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.peers {
		t.CloseIdleConnections()
	}
	if c.anyServer != nil {
		c.anyServer.CloseIdleConnections()
	}
}

// keep follows which servers there are, and has the certificate renewed in time, until ctx ends.
func (c *cluster) keep(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if err := c.lookAround(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("look for the servers of the cluster", "error", err)
		}
		if err := c.renewInTime(ctx, time.Now()); err != nil && ctx.Err() == nil {
			c.log.Warn("renew this machine's certificate", "error", err, "valid until", c.now().Certificate.NotAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const keepEvery = time.Minute

// lookAround notes where servers answer now, for the day on which this machine starts and the one by which it joined is gone.
func (c *cluster) lookAround(ctx context.Context) error {
	if !c.KeepsStore() {
		return nil // etcd's members are no hosts
	}
	members, err := c.store.Members(ctx)
	if err != nil {
		return err
	}
	hosts, err := c.store.Hosts(ctx)
	if err != nil {
		return err
	}
	next := c.current()
	var servers, etcd []string
	for _, m := range members {
		at := slices.IndexFunc(hosts, func(h store.HostState) bool { return h.Name == m.Name })
		if at >= 0 {
			servers = append(servers, hosts[at].API)
			etcd = append(etcd, m.ClientURL)
		}
	}
	shared := len(hosts) > 1
	if len(servers) == 0 || slices.Equal(servers, next.Servers) && slices.Equal(etcd, next.Etcd) && shared == next.Shared {
		return nil
	}
	next.Servers, next.Etcd, next.Shared = servers, etcd, shared
	return c.remember(next)
}

// share notes, before another machine is let in, that this one is not all of the cluster any more.
func (c *cluster) share() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member.Shared {
		return nil
	}
	c.member.Shared = true
	return c.kept.remember(c.member)
}

func (c *cluster) remember(m membership) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member = m
	return c.kept.remember(m)
}
