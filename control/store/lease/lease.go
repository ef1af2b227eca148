// Package lease tells which hosts are alive, and elects one of them for a duty. Both rest on leases of etcd: an entry
// that goes unless its owner renews it.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/hosts"
)

// Keeper keeps the leases of hosts: etcd, or a server that does so in an agent's place.
type Keeper interface {
	// Claim makes a host known and alive under a new lease of at least ttl. again says that the agent has held one
	// before: then ErrNoHost means that the host was removed meanwhile. ErrNameTaken means that another machine is
	// alive under its name.
	Claim(ctx context.Context, h hosts.Host, ttl time.Duration, again bool) (id int64, err error)
	// Renew begins the time of a lease anew. ErrEnded means that the host has to be claimed again.
	Renew(ctx context.Context, host string, id int64) error
	// End ends a lease now; one that has ended is no error.
	End(ctx context.Context, host string, id int64) error
}

// ErrEnded means that there is no such lease any more.
var ErrEnded = errors.New("the lease has ended")

// Lease says that a host is alive, for as long as it is renewed.
//
// The keeper counts the lease's time from when it receives a renewal; the holder counts it from before it sent that
// renewal. So the holder knows before anybody else that the lease is over, whatever the clocks of the machines say:
// only durations are compared. What must not run twice is ended on Lost; others wait for the lease's end and a margin
// before they start it.
type Lease struct {
	keeper Keeper
	ttl    time.Duration
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	host   hosts.Host

	mu      sync.Mutex // guards all below
	id      int64
	until   time.Duration // by uptime
	held    bool
	lost    chan struct{} // closed while the lease is not held
	renewed chan struct{} // closed while it is
	err     error
}

// Register makes the host known and alive. ErrNameTaken means that another machine is alive under its name. The lease
// is renewed until it is closed, or until life ends. When it ended because the keeper was away, the host is registered
// again as soon as the keeper is back, unless it was removed meanwhile: then Err gives ErrNoHost.
func Register(ctx, life context.Context, keeper Keeper, h hosts.Host, ttl time.Duration) (*Lease, error) {
	l := &Lease{keeper: keeper, ttl: ttl, host: h, lost: make(chan struct{}), renewed: make(chan struct{})}
	if err := l.register(ctx); err != nil {
		return nil, fmt.Errorf("register host %s: %w", h.Name, err)
	}
	ctx, l.stop = context.WithCancel(life)
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
	if err := l.keeper.End(ctx, l.host.Name, id); err != nil {
		return fmt.Errorf("end the lease of host %s: %w", l.host.Name, err)
	}
	return nil
}

// uptime includes the time that the machine was suspended: the keeper's clock runs meanwhile.
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
	err := l.keeper.Renew(ctx, l.host.Name, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrEnded) {
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
	l.mu.Lock()
	again := l.id != 0
	l.mu.Unlock()
	sent := uptime()
	id, err := l.keeper.Claim(ctx, l.host, l.ttl, again)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.until, l.held, l.err = id, sent+l.ttl, true, nil
	l.lost = make(chan struct{})
	close(l.renewed)
	return nil
}
