package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/storetest"
	"github.com/pergola-net/pergola/lab/testkit"
)

// cluster is a test's servers on loopback, with real certificates.
type cluster struct {
	t         *testing.T
	authority *pki.Authority
	servers   map[string]*server
}

type server struct {
	*Store
	config Config
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, authority: storetest.NewAuthority(t), servers: map[string]*server{}}
}

func (c *cluster) identity(name string, role pki.Role) func() *pki.Identity {
	c.t.Helper()
	return storetest.Identity(c.t, c.authority, name, role)
}

// config gives a server ports of its own, which it keeps when it starts again.
func (c *cluster) config(name string) Config {
	c.t.Helper()
	return Config{
		Dir: filepath.Join(c.t.TempDir(), name), LogFile: filepath.Join(c.t.TempDir(), "etcd.log"),
		Cluster: &ClusterConfig{
			Name: name, ListenPeer: storetest.FreeAddress(c.t), ListenClient: storetest.FreeAddress(c.t),
			Identity: c.identity(name, pki.Server), ElectionTimeout: 600 * time.Millisecond,
		},
	}
}

func (c *cluster) start(name string, config Config) *server {
	c.t.Helper()
	s, err := Open(c.t.Context(), config)
	if err != nil {
		c.t.Fatalf("server %s: %v", name, err)
	}
	c.t.Cleanup(func() { s.Close() })
	c.servers[name] = &server{s, config}
	return c.servers[name]
}

func (c *cluster) stop(name string) {
	c.servers[name].Close()
}

func (c *cluster) restart(name string) *server {
	c.t.Helper()
	return c.start(name, c.servers[name].config)
}

// admit makes s let a server in.
func (c *cluster) admit(s *server, name string) Config {
	c.t.Helper()
	config := c.config(name)
	var err error
	config.Cluster.Initial, err = s.AddMember(c.t.Context(), name, "https://"+config.Cluster.ListenPeer)
	if err != nil {
		c.t.Fatal(err)
	}
	return config
}

// three makes a cluster of h1, h2 and h3.
func three(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	h1 := c.start("h1", c.config("h1"))
	// Both are added before one starts: a later one would have to wait some seconds after the start of the earlier
	// one.
	h2, h3 := c.admit(h1, "h2"), c.admit(h1, "h3")
	c.start("h2", h2)
	c.start("h3", h3)
	return c
}

// client opens the servers' store by their listeners for clients, as another server.
func (c *cluster) client(name string) *Store {
	c.t.Helper()
	config := Config{TLS: pki.ClientConfig(c.identity(name, pki.Server)), Timeout: 5 * time.Second}
	for _, s := range c.servers {
		config.Endpoints = append(config.Endpoints, "https://"+s.config.Cluster.ListenClient)
	}
	s, err := Open(c.t.Context(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.Close() })
	return s
}

func (c *cluster) leader() (leader, follower string) {
	c.t.Helper()
	for _, s := range c.servers {
		members, err := s.Members(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range members {
			if m.Leader {
				leader = m.Name
			} else {
				follower = m.Name
			}
		}
		break
	}
	if leader == "" {
		c.t.Fatal("no leader")
	}
	return leader, follower
}

// eventually waits for what comes within seconds on an idle machine, and may take much longer on a busy one.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	testkit.Eventually(t, done, time.Minute, what)
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	c := three(t)
	ctx := t.Context()
	members, err := c.servers["h2"].Members(ctx)
	if err != nil || len(members) != 3 {
		t.Fatalf("%+v, %v", members, err)
	}
	for i, m := range members {
		if m.Name != fmt.Sprintf("h%d", i+1) || m.Learner || !m.Answers || m.PeerURL == "" ||
			m.ClientURL == "" {
			t.Errorf("member %+v", m)
		}
	}
	eventually(t, "write", func() error { return c.servers["h3"].PutSlice(ctx, network("a", 2), 0) })
	client := c.client("h4")
	if _, r, err := client.Slice(ctx, "a"); err != nil || r.Nodes != 2 {
		t.Fatalf("%+v, %v", r, err)
	}

	// The leader stops: the others go on, and so does the client.
	leader, _ := c.leader()
	c.stop(leader)
	eventually(t, "write without the old leader", func() error { return client.PutSlice(ctx, network("b", 2), 0) })

	// It was lost for good: another takes its place.
	var left *server
	for name := range c.servers {
		if name != leader {
			left = c.servers[name]
		}
	}
	delete(c.servers, leader)
	if err := left.RemoveMember(ctx, leader); err != nil {
		t.Fatal(err)
	}
	if err := left.RemoveMember(ctx, leader); !errors.Is(err, ErrNoMember) {
		t.Errorf("removed twice: %v", err)
	}
	fresh := c.start(leader, c.admit(left, leader))
	if records, err := fresh.Slices(ctx); err != nil || len(records) != 2 {
		t.Errorf("the new server knows %+v, %v", records, err)
	}
	loseQuorum(t, c)
}

func loseQuorum(t *testing.T, c *cluster) {
	t.Helper()
	ctx := t.Context()
	left := c.servers["h1"]
	var both sync.WaitGroup
	for _, name := range []string{"h2", "h3"} { // at once: the leader would look for an heir
		both.Go(func() { c.stop(name) })
	}
	both.Wait()
	eventually(t, "the server notices", func() error {
		err := left.PutSlice(ctx, network("c", 1), 0)
		if !errors.Is(err, ErrNoQuorum) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	err := left.PutSlice(ctx, network("c", 1), 0)
	if err == nil || !strings.Contains(err.Error(),
		"the cluster has no quorum (1 of 3 servers answer): reading works, changes do not") {
		t.Error(err)
	}
	if _, r, err := left.Slice(ctx, "a"); err != nil || r.Nodes != 2 {
		t.Errorf("it reads %+v, %v", r, err)
	}
	if _, err := left.Hosts(Linearizable(ctx)); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("it reads what nobody agrees on: %v", err)
	}
	if members, err := left.Members(ctx); err != nil || len(members) != 3 || !members[0].Answers ||
		members[1].Answers {
		t.Errorf("members %+v, %v", members, err)
	}

	// A server that starts into this can be read too.
	c.stop("h1")
	left = c.restart("h1")
	if _, r, err := left.Slice(ctx, "a"); err != nil || r.Nodes != 2 {
		t.Errorf("after its restart it reads %+v, %v", r, err)
	}
	if err := left.PutSlice(ctx, network("c", 1), 0); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("after its restart it writes: %v", err)
	}

	c.restart("h2")
	eventually(t, "it writes again", func() error { return left.PutSlice(ctx, network("d", 1), 0) })
}

func TestServerThatReachesNoOtherSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := c.config("h2")
	dead := "https://" + storetest.FreeAddress(t)
	config.Cluster.Initial = map[string]string{"h1": dead, "h2": "https://" + config.Cluster.ListenPeer}
	for range 2 { // and does not begin a cluster of its own then
		_, err := Open(t.Context(), config)
		if err == nil || !strings.Contains(err.Error(),
			"could not retrieve cluster information from the given URLs") ||
			strings.Contains(err.Error(), "damaged") {
			t.Fatalf("opened: %v", err)
		}
	}
}

func TestSingleStoreBecomesTheFirstMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := c.config("h1")
	alone := config
	alone.Cluster = nil
	s := c.start("h1", alone)
	mustPut(t, s.Store, network("a", 2), 0)
	s.Close()

	s = c.start("h1", config)
	client := c.client("h2")
	if _, r, err := client.Slice(t.Context(), "a"); err != nil || r.Nodes != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Name != "h1" ||
		members[0].PeerURL != "https://"+config.Cluster.ListenPeer || !members[0].Leader {
		t.Errorf("members %+v, %v", members, err)
	}
	second := c.start("h3", c.admit(s, "h3"))
	c.stop("h1")
	if _, err := Open(t.Context(), alone); err == nil ||
		!strings.Contains(err.Error(), "belongs to a cluster of 2") {
		t.Errorf("started alone: %v", err)
	}
	s = c.restart("h1")
	eventually(t, "write to both", func() error { return s.PutSlice(t.Context(), network("b", 1), 0) })

	// The others remove a server that runs.
	if err := s.RemoveMember(t.Context(), "h3"); err != nil {
		t.Fatal(err)
	}
	within(t, "dead", second.Dead())
	if err := second.Err(); !errors.Is(err, ErrRemoved) {
		t.Errorf("it is dead because %v", err)
	}
	c.stop("h3")
	if _, err := Open(t.Context(), second.config); !errors.Is(err, ErrRemoved) {
		t.Errorf("started after it was removed: %v", err)
	}
	mustPut(t, s.Store, network("c", 1), 0)
}
