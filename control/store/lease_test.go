package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/storetest"
)

func TestLeaseIsLostAndRenewed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCluster(t)
	server := c.start("h1", c.config("h1"))
	wire := storetest.NewWire(t, server.config.Cluster.ListenClient)
	agent, err := Open(ctx, Config{Endpoints: []string{wire.URL()},
		TLS: pki.ClientConfig(c.identity("h2", pki.Server))})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	const ttl = 3 * time.Second
	lease, err := agent.Register(ctx, machine("h2", "b"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close(ctx)
	before := lease.Deadline()
	eventually(t, "renewal", func() error {
		if !lease.Deadline().After(before.Add(ttl / 8)) {
			return fmt.Errorf("deadline %v", lease.Deadline())
		}
		return nil
	})

	h := machine("h2", "b")
	h.Load = 7
	if err := agent.PutHost(ctx, h); err != nil {
		t.Fatal(err)
	}
	wire.Cut(true)
	within(t, "lost", lease.Lost())
	// The holder loses it first: for the others the host was alive a request ago.
	if !isClosed(lease.Lost()) || isClosed(lease.Renewed()) {
		t.Error("lost and renewed")
	}
	eventually(t, "the others see it too", func() error { return lostHost(ctx, server.Store, "h2") })
	renewed := lease.Renewed()
	wire.Cut(false)
	within(t, "renewed", renewed)
	if got, err := server.HostState(ctx, "h2"); err != nil || !got.Alive || got.Load != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if isClosed(lease.Lost()) || time.Until(lease.Deadline()) <= 0 || lease.Err() != nil {
		t.Errorf("lost after it was renewed: %v", lease.Err())
	}

	// Another machine takes the name while this one is away.
	wire.Cut(true)
	within(t, "lost again", lease.Lost())
	eventually(t, "the others see it again", func() error { return lostHost(ctx, server.Store, "h2") })
	register(t, server.Store, machine("h2", "c"))
	wire.Cut(false)
	eventually(t, "the name's loss", func() error {
		if err := lease.Err(); !errors.Is(err, ErrNameTaken) {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	if isClosed(lease.Renewed()) {
		t.Error("renewed under another machine's name")
	}
}

func TestRemovedHostStaysRemoved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, t.TempDir())
	const ttl = time.Second
	lease, err := s.Register(ctx, machine("h1", "a"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close(ctx)
	// As if etcd had been away: the lease ends, and somebody removes the host before it has another one.
	alive, err := s.db.Get(ctx, s.db.Key("alive", "h1"))
	if err != nil || len(alive.Kvs) != 1 {
		t.Fatalf("%v, %v", alive, err)
	}
	s.db.RevokeLease(clientv3.LeaseID(alive.Kvs[0].Lease))
	if err := s.DeleteHost(ctx, "h1"); err != nil {
		t.Fatal(err)
	}
	within(t, "lost", lease.Lost())
	eventually(t, "a reason", func() error {
		if err := lease.Err(); !errors.Is(err, ErrNoHost) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	if _, err := s.HostState(ctx, "h1"); !errors.Is(err, ErrNoHost) {
		t.Errorf("it is back: %v", err)
	}
}

func lostHost(ctx context.Context, s *Store, name string) error {
	if h, err := s.HostState(ctx, name); err != nil || h.Alive {
		return fmt.Errorf("alive %v, %w", h.Alive, err)
	}
	return nil
}

func TestLeadershipMoves(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	leads := make(chan string)
	stop := map[string]context.CancelFunc{}
	var parts sync.WaitGroup
	for _, host := range []string{"h1", "h2"} {
		ctx, cancel := context.WithCancel(t.Context())
		stop[host] = cancel
		parts.Go(func() {
			err := s.Campaign(ctx, "duty", host, func(ctx context.Context) error {
				select {
				case leads <- host:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", host, err)
			}
		})
	}
	first := <-leads
	if now := leaderOf(t, s, "duty"); now != first {
		t.Errorf("leader %q, want %s", now, first)
	}
	stop[first]()
	second := <-leads
	if second == first {
		t.Errorf("%s leads again", first)
	}
	stop[second]()
	parts.Wait()
	if now := leaderOf(t, s, "duty"); now != "" {
		t.Errorf("leader %s", now)
	}
}

// leaderOf gives the host that leads a duty; empty: none does.
func leaderOf(t *testing.T, s *Store, duty string) string {
	t.Helper()
	got, err := s.db.Get(t.Context(), s.db.Key("elections", duty, ""), clientv3.WithFirstCreate()...)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}
