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

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
)

// cluster is this machine's membership of a cluster. It implements rest.Cluster.
type cluster struct {
	dir      *identityDir // the membership and the identity on disk
	machine  string
	store    *store.Store     // set before anything is asked; nil at an agent
	sessions *agents.Sessions // of agents with this server; set with the store
	session  *session.Client  // of an agent
	log      *slog.Logger
	fetches  blobFetches
	renewal  func(*x509.Certificate) time.Time
	refusals *refusals

	mu        sync.Mutex                 // guards all below
	member    membership                 // as it is on disk
	authority *pki.Authority             // with its key: of servers, once they needed it
	peers     map[string]*http.Transport // by host's name
	anyServer *http.Transport
}

func newCluster(d *identityDir, machine string, log *slog.Logger, bus *events.Bus) *cluster {
	return &cluster{
		dir: d, machine: machine, log: log, renewal: pki.Renewal, refusals: newRefusals(log, bus),
		member: d.member,
		peers:  map[string]*http.Transport{},
	}
}

// identity is this machine's present certificate and key.
func (c *cluster) identity() *pki.Identity { return c.dir.identity.Load() }

// current is the present membership.
func (c *cluster) current() membership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member
}

// Self implements rest.Cluster.
func (c *cluster) Self() string { return c.current().Name }

// IsServer implements rest.Cluster.
func (c *cluster) IsServer() bool { return c.current().Role == pki.Server }

// KeepsStore implements rest.Cluster.
func (c *cluster) KeepsStore() bool { return !c.current().Foreign }

// Authority implements rest.Cluster.
func (c *cluster) Authority() *pki.Authority {
	return &pki.Authority{Certificate: c.identity().Authority}
}

// Servers implements rest.Cluster.
func (c *cluster) Servers() []string {
	m := c.current()
	if m.Role != pki.Server {
		if m.Join == "" || slices.Contains(m.Servers, m.Join) {
			return m.Servers
		}
		return append(slices.Clone(m.Servers), m.Join)
	}
	others := slices.DeleteFunc(slices.Clone(m.Servers), func(s string) bool { return s == m.Advertise })
	return append([]string{m.Advertise}, others...)
}

// ownAddress is where others reach this machine's API.
func (c *cluster) ownAddress() netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.current().Advertise) // it was checked before it was written
	return a
}

// storeConfig makes this machine's store that of the cluster.
func (c *cluster) storeConfig(cfg *store.Config) error {
	m := c.current()
	switch {
	case len(cfg.Endpoints) > 0:
		return nil // given by flags
	case m.Foreign:
		cfg.Endpoints = m.Etcd
		return nil
	}
	at, err := netip.ParseAddrPort(m.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", m.Listen, err)
	}
	cfg.Cluster = &store.ClusterConfig{
		Name: m.Name, Identity: c.identity, Initial: m.Initial, Refused: c.refusals.add,
		ListenClient: portAfter(at, etcdClientPort), ListenPeer: portAfter(at, etcdPeerPort),
		AdvertiseClient: "https://" + portAfter(c.ownAddress(), etcdClientPort),
		AdvertisePeer:   "https://" + portAfter(c.ownAddress(), etcdPeerPort),
	}
	return nil
}

// publishCA stores the certificate authority of a cluster that this machine made.
func (c *cluster) publishCA(ctx context.Context) error {
	m := c.current()
	if !m.Founder {
		return nil
	}
	key, err := c.dir.read(authorityKeyFile)
	if key == nil || err != nil {
		return err
	}
	err = c.store.Trust().PutAuthority(ctx, pki.EncodeCertificate(c.identity().Authority), key)
	// stored by an earlier start that was killed here, or by another cluster
	if errors.Is(err, store.ErrAuthority) {
		if _, err = c.signingAuthority(ctx); err != nil {
			_ = os.RemoveAll(c.dir.path("")) // no machine has joined by it
			return fmt.Errorf("%w: a cluster was made in it before: join that one (pergola server --join)",
				err)
		}
	}
	if err != nil {
		return err
	}
	return c.dir.remove(authorityKeyFile)
}

// signingAuthority is the authority with its key.
func (c *cluster) signingAuthority(ctx context.Context) (*pki.Authority, error) {
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
	if pki.Pin(a.Certificate) != pki.Pin(c.identity().Authority) {
		return nil, errors.New("the store is of another cluster than this machine's certificate; " +
			"if a new authority was being made, do that again (pergola server --new-authority)")
	}
	c.authority = a
	return a, nil
}

// Timeouts of connections to other members. A connection is accepted at once; a request may take its time.
const (
	peerDialTimeout = 3 * time.Second
	peerIdle        = time.Minute
)

// Peer implements rest.Cluster.
func (c *cluster) Peer(h store.HostState) http.RoundTripper {
	switch {
	case c.session != nil:
		return toNobody{h.Name}
	case h.Via != "":
		return viaServer{c, h}
	}
	return c.direct(h.Name)
}

// toNobody is the way from an agent to another host while no server answers.
type toNobody struct{ host string }

// RoundTrip implements http.RoundTripper.
func (t toNobody) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("only servers reach host %s, and none answers", t.host)
}

// direct speaks to a server.
func (c *cluster) direct(name string) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.peers[name]
	if t == nil {
		t = newTransport()
		t.TLSClientConfig = pki.PeerConfig(c.identity, name)
		c.peers[name] = t
	}
	return t
}

// Connected implements rest.Cluster.
func (c *cluster) Connected(ctx context.Context) bool {
	if c.session == nil {
		return true
	}
	_, err := c.session.Session(ctx)
	return err == nil
}

// AnyServer implements rest.Cluster.
func (c *cluster) AnyServer() http.RoundTripper {
	if c.session != nil {
		return c.session
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anyServer == nil {
		c.anyServer = newTransport()
		c.anyServer.TLSClientConfig = pki.ClientConfig(c.identity)
	}
	return firstOf{servers: c.Servers, by: c.anyServer}
}

// close ends connections to other members. The context of the fetches has ended before.
func (c *cluster) close() {
	c.fetches.tasks.Wait()
	c.closeIdle()
}

// closeIdle closes connections to other members that are not in use, and an agent's session, which begins anew.
func (c *cluster) closeIdle() {
	if c.session != nil {
		c.session.Drop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.peers {
		t.CloseIdleConnections()
	}
	if c.anyServer != nil {
		c.anyServer.CloseIdleConnections()
	}
}

// keep keeps the list of servers up to date, and renews the certificate in time, until ctx ends.
func (c *cluster) keep(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if err := c.updateServers(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("update the list of the cluster's servers; try again in a minute", "error", err)
		}
		if err := c.renewInTime(ctx, time.Now()); err != nil && ctx.Err() == nil {
			c.log.Warn("renew this machine's certificate; try again in a minute",
				"error", err, "valid until", c.identity().Certificate.NotAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const keepEvery = time.Minute

// updateServers writes down where servers answer now: the one by which this machine joined may be gone at its next
// start.
func (c *cluster) updateServers(ctx context.Context) error {
	if !c.KeepsStore() || c.store == nil {
		return nil // members of an external etcd are no hosts; agents are told by their server
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
	var servers []string
	for _, m := range members {
		at := slices.IndexFunc(hosts, func(h store.HostState) bool { return h.Name == m.Name })
		if at >= 0 {
			servers = append(servers, hosts[at].API)
		}
	}
	shared := len(hosts) > 1
	same := slices.Equal(servers, next.Servers) && shared == next.Shared
	if same || len(servers) == 0 {
		return nil
	}
	next.Servers, next.Shared = servers, shared
	return c.save(next)
}

// markShared writes down, before another machine joins, that this one is not all of the cluster any more.
func (c *cluster) markShared() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member.Shared {
		return nil
	}
	c.member.Shared = true
	return c.dir.save(c.member)
}

func (c *cluster) save(m membership) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member = m
	return c.dir.save(m)
}
