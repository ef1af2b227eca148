// Package lease tells which hosts are alive, and elects one of them for a duty. Both rest on leases of etcd: an entry
// that goes unless its owner renews it.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/store/kv"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
)

// Lease says that a host is alive, for as long as it is renewed.
//
// etcd counts the lease's time from when it receives a renewal; the holder counts it from before it sent that renewal.
// So the holder knows before anybody else that the lease is over, whatever the clocks of the machines say: only
// durations are compared. What must not run twice is ended on Lost; others wait for the lease's end and a margin before
// they start it.
type Lease struct {
	db    *kv.DB
	ttl   time.Duration
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex // guards all below
	host    hosts.Host
	id      clientv3.LeaseID
	until   time.Duration // by uptime
	held    bool
	lost    chan struct{} // closed while the lease is not held
	renewed chan struct{} // closed while it is
	err     error
}

// Register makes the host known and alive. ErrNameTaken means that another machine is alive under its name. The lease
// is renewed until it is closed. When it ended because etcd was away, the host is registered again as soon as etcd is
// back, unless it was removed meanwhile: then Err gives ErrNoHost.
func Register(ctx context.Context, db *kv.DB, h hosts.Host, ttl time.Duration) (*Lease, error) {
	l := &Lease{db: db, ttl: ttl, host: h, lost: make(chan struct{}), renewed: make(chan struct{})}
	if err := l.register(ctx); err != nil {
		return nil, fmt.Errorf("register host %s: %w", h.Name, err)
	}
	ctx, l.stop = context.WithCancel(db.Context())
	l.tasks.Go(func() { l.keep(ctx) })
	l.tasks.Go(func() { l.fence(ctx) })
	return l, nil
}

// Lost is closed when the deadline passed without a renewal. It belongs to the present term of the lease: after
// Renewed, ask for it again.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Renewed is closed while the lease is held; after Lost, when the host is registered again.
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

// Err is the error of the last attempt to renew the lease or to register again; nil after a success. ErrNameTaken means
// that another machine took the host's name meanwhile.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the lease now: for the others the host is lost from now on.
func (l *Lease) Close(ctx context.Context) error {
	l.stop()
	l.tasks.Wait()
	l.mu.Lock()
	id := l.id
	l.loseLocked()
	l.mu.Unlock()
	err := l.db.Request(ctx, "write", func(ctx context.Context) error {
		_, err := l.db.Etcd().Revoke(ctx, id)
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

// uptime includes the time that the machine was suspended: etcd's clock runs meanwhile.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// keep renews the lease, or registers the host again, until ctx ends.
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
		if l.isHeld() {
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

// fenceInterval bounds how long the fence waits: timers do not run while the machine is suspended.
const fenceInterval = time.Second

// fence loses the lease at its deadline, also while keep waits for an answer.
func (l *Lease) fence(ctx context.Context) {
	for {
		l.mu.Lock()
		left := l.until - uptime()
		if left <= 0 {
			l.loseLocked()
			left = fenceInterval
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, fenceInterval)):
		}
	}
}

func (l *Lease) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
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
	err := l.db.KeepAlive(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.loseLocked()
	}
	if err != nil {
		return fmt.Errorf("renew the lease of host %s: %w", l.host.Name, err)
	}
	if l.held { // else the fence was first: its listeners must see Lost before the lease is held again
		l.until = sent + l.ttl
	}
	return nil
}

// register takes the host's name under a new lease.
func (l *Lease) register(ctx context.Context) error {
	sent := uptime()
	id, err := l.db.GrantLease(ctx, l.ttl)
	if err != nil {
		return err
	}
	if err := l.claim(ctx, id); err != nil {
		l.db.RevokeLease(id)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.until, l.held, l.err = id, sent+l.ttl, true, nil
	l.lost = make(chan struct{})
	close(l.renewed)
	return nil
}

// claim binds the host's name to the lease, unless it is another machine's.
func (l *Lease) claim(ctx context.Context, id clientv3.LeaseID) error {
	h := l.host
	aliveKey, hostKey := l.db.Key("alive", h.Name), l.db.Key("hosts", h.Name)
	for {
		got, err := l.db.Snapshot(ctx, clientv3.OpGet(aliveKey), clientv3.OpGet(hostKey))
		if err != nil {
			return err
		}
		var revision int64
		if len(got[0]) > 0 {
			revision = got[0][0].ModRevision
			var other record.Presence
			if err := json.Unmarshal(got[0][0].Value, &other); err == nil && other.Machine != h.Machine {
				return fmt.Errorf("%w: another machine (%s) is alive as host %s: start one of "+
					"them under another name", record.ErrNameTaken, other.Address, h.Name)
			}
		}
		var stored []byte
		if len(got[1]) > 0 {
			stored = got[1][0].Value
		}
		described, err := l.description(stored)
		if err != nil {
			return err
		}
		presence, err := json.Marshal(record.Presence{Machine: h.Machine, Address: h.Address.String(),
			Since: time.Now()})
		if err != nil {
			return err
		}
		ok, err := l.db.Commit(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(aliveKey), "=", revision)},
			clientv3.OpPut(aliveKey, string(presence), clientv3.WithLease(id)),
			clientv3.OpPut(hostKey, string(described)))
		if ok || err != nil {
			return err
		}
	}
}

// description is what to store of the host: of one that registers again, what is stored, which is newer than what it
// registered with. ErrNoHost means that it registers again and was removed meanwhile.
func (l *Lease) description(stored []byte) ([]byte, error) {
	l.mu.Lock()
	registered := l.id != 0
	l.mu.Unlock()
	if registered && stored == nil {
		return nil, fmt.Errorf("%w: host %s was removed from the cluster: let it join again", record.ErrNoHost,
			l.host.Name)
	}
	var have hosts.Host
	if registered && json.Unmarshal(stored, &have) == nil && have.Machine == l.host.Machine {
		return stored, nil
	}
	return json.Marshal(l.host)
}
