package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/hosts"
)

// Lease says that a host is alive, for as long as it is renewed.
//
// etcd counts the lease's time from when it takes a renewal; the holder counts it from before it sent that renewal. So the holder
// knows the lease to be over before anybody else does, and whatever the clocks of the machines say: only durations are compared. What
// must not run twice is ended on Lost; others wait for the lease's end and a margin before they start it.
type Lease struct {
	store *Store
	ttl   time.Duration
	stop  context.CancelFunc
	parts sync.WaitGroup

	mu      sync.Mutex
	host    hosts.Host
	id      clientv3.LeaseID
	until   time.Duration // by uptime; guarded by mu, as all here
	held    bool
	lost    chan struct{} // closed while the lease is not held
	renewed chan struct{} // closed while it is
	err     error
}

// Register makes the host known and alive. ErrNameTaken says that another machine is alive under its name. The lease is renewed until it
// is closed; when it ended because etcd was away, it is had again as soon as etcd is back. A host that was removed meanwhile (DeleteHost) is
// not: Err says ErrNoHost.
func (s *Store) Register(ctx context.Context, h hosts.Host, ttl time.Duration) (*Lease, error) {
	l := &Lease{store: s, ttl: ttl, host: h, lost: make(chan struct{}), renewed: make(chan struct{})}
	if err := l.register(ctx); err != nil {
		return nil, fmt.Errorf("register host %s: %w", h.Name, err)
	}
	ctx, l.stop = context.WithCancel(s.life)
	l.parts.Go(func() { l.keep(ctx) })
	l.parts.Go(func() { l.fence(ctx) })
	return l, nil
}

// Lost is closed when the deadline passed without a renewal. It belongs to the present term of the lease: after Renewed, ask for it again.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Renewed is closed when the lease is held; after Lost, that is when the host is registered again.
func (l *Lease) Renewed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

// Deadline is when the lease is lost unless it is renewed before.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.until - uptime())
}

// Err says why the last attempt to renew the lease, or to have it again, failed; nil after one that did not. With ErrNameTaken another
// machine took the host's name meanwhile.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the lease now: for the others the host is lost from now on.
func (l *Lease) Close(ctx context.Context) error {
	l.stop()
	l.parts.Wait()
	l.mu.Lock()
	id := l.id
	l.mu.Unlock()
	l.lose()
	err := l.store.request(ctx, "write", func(ctx context.Context) error {
		_, err := l.store.kv.Revoke(ctx, id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("end the lease of host %s: %w", l.host.Name, err)
	}
	return nil
}

// uptime counts the time that the machine was suspended too: etcd's clock runs meanwhile.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// keep renews the lease, or gets it again, until ctx ends.
func (l *Lease) keep(ctx context.Context) {
	every := l.ttl / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Each attempt ends before the next: it may go to another server.
		attempt, cancel := context.WithTimeout(ctx, every)
		var err error
		if l.holds() {
			err = l.renew(attempt)
		} else {
			err = l.register(attempt)
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
	}
}

// look is how long the fence may sleep: timers do not run while the machine is suspended.
const look = time.Second

// fence loses the lease at its deadline, whatever keep waits for.
func (l *Lease) fence(ctx context.Context) {
	for {
		l.mu.Lock()
		left := l.until - uptime()
		if left <= 0 {
			l.loseLocked()
			left = look
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, look)):
		}
	}
}

func (l *Lease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *Lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked()
}

func (l *Lease) loseLocked() {
	if l.held {
		l.held = false
		l.renewed = make(chan struct{})
		close(l.lost)
	}
}

func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	id := l.id
	l.mu.Unlock()
	sent := uptime()
	err := l.store.keepAlive(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.lose()
		return fmt.Errorf("renew the lease of host %s: %w", l.host.Name, err)
	}
	if err != nil {
		return fmt.Errorf("renew the lease of host %s: %w", l.host.Name, err)
	}
	l.store.memory.note(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held { // else the fence was quicker, and what it ended must be heard of before anything begins again
		l.until = sent + l.ttl
	}
	return nil
}

// keepAlive renews a lease once. The client's own KeepAliveOnce tries again without a pause while nobody answers.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := s.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return rpctypes.Error(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return rpctypes.Error(err)
	}
	r, err := stream.Recv()
	if err == nil && r.TTL <= 0 {
		return rpctypes.ErrLeaseNotFound
	}
	return rpctypes.Error(err)
}

// register takes the host's name under a new lease.
func (l *Lease) register(ctx context.Context) error {
	sent := uptime()
	var lease clientv3.LeaseID
	err := l.store.request(ctx, "write", func(ctx context.Context) error {
		granted, err := l.store.kv.Grant(ctx, int64((l.ttl+time.Second-1)/time.Second))
		if err == nil {
			lease = granted.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := l.claim(ctx, lease); err != nil {
		l.store.revoke(lease)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.until, l.held, l.err = lease, sent+l.ttl, true, nil
	l.lost = make(chan struct{})
	close(l.renewed)
	return nil
}

// claim binds the host's name to the lease, unless it is another machine's.
func (l *Lease) claim(ctx context.Context, lease clientv3.LeaseID) error {
	s, h := l.store, l.host
	for {
		got, err := s.snapshot(ctx, clientv3.OpGet(s.key("alive", h.Name)), clientv3.OpGet(s.key("hosts", h.Name)))
		if err != nil {
			return err
		}
		var revision int64
		if len(got[0]) > 0 {
			revision = got[0][0].ModRevision
			var other alive
			if err := json.Unmarshal(got[0][0].Value, &other); err == nil && other.Machine != h.Machine {
				return fmt.Errorf("%w: another machine (%s) is alive as host %s: start one of them under another name", ErrNameTaken, other.Address, h.Name)
			}
		}
		if l.again() && len(got[1]) == 0 {
			return fmt.Errorf("%w: host %s was removed from the cluster: let it join again", ErrNoHost, h.Name)
		}
		described, err := json.Marshal(h)
		if err != nil {
			return err
		}
		if have := new(hosts.Host); len(got[1]) > 0 && l.again() && json.Unmarshal(got[1][0].Value, have) == nil && have.Machine == h.Machine {
			described = got[1][0].Value // newer than what the host registered with
		}
		living, err := json.Marshal(alive{Machine: h.Machine, Address: h.Address.String(), Since: time.Now()})
		if err != nil {
			return err
		}
		ok, err := s.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.key("alive", h.Name)), "=", revision)},
			clientv3.OpPut(s.key("alive", h.Name), string(living), clientv3.WithLease(lease)),
			clientv3.OpPut(s.key("hosts", h.Name), string(described)))
		if ok || err != nil {
			return err
		}
	}
}

// again says that the lease was held before.
func (l *Lease) again() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id != 0
}
