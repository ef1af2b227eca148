package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// retryStore is how long the agent waits before it asks a store again that gave no answer.
const retryStore = time.Second

// learn finds out what is wanted here, and goes on to do so until ctx ends. In a cluster it makes this host one of
// those that live, and keeps the fence.
func (a *Agent) learn(ctx context.Context) error {
	changes, held, err := a.begin(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	a.learned()
	var group sync.WaitGroup
	defer group.Wait()
	if held != nil {
		a.fence.Begin(held)
		group.Go(func() { a.fence.Guard(ctx, held) })
		group.Go(func() { a.host.Announce(ctx, a.putHost) })
		group.Go(func() { a.survey.Run(ctx, a.peerAddresses) })
	}
	a.listen(ctx, changes)
	return nil
}

// begin reads what is wanted; in a cluster, it registers this host first. There, it goes on asking a store that does
// not answer. Meanwhile what was wanted last is, but for what may have been started elsewhere: that is ended first of
// all.
func (a *Agent) begin(ctx context.Context) (changes <-chan store.Change, l member.Lease, err error) {
	for {
		changes, l, err = a.tryBegin(ctx, l)
		final := a.cfg.Cluster == nil || errors.Is(err, store.ErrNameTaken) || errors.Is(err, store.ErrNoHost)
		if err == nil || final || ctx.Err() != nil {
			return changes, l, err
		}
		a.contact.note(err)
		a.endFenced(ctx)
		a.loadCached(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(retryStore):
		}
	}
}

// loadCached takes what the store said last to an earlier agent for what is wanted, unless that is known, or nobody
// remembers.
func (a *Agent) loadCached(ctx context.Context) {
	select {
	case <-a.known:
		return
	default:
	}
	if err := a.loadAll(store.AllowStale(ctx)); err != nil {
		a.cfg.Log.Debug("recall what was wanted last", "error", err)
		return
	}
	a.cfg.Log.Info("until the store answers, this host is to have what it was to have last")
	a.learned()
}

// learned lets passes begin: before, nothing would be wanted.
func (a *Agent) learned() { a.learnOnce.Do(func() { close(a.known) }) }

func (a *Agent) tryBegin(ctx context.Context, l member.Lease) (<-chan store.Change, member.Lease, error) {
	if a.cfg.Cluster != nil && l == nil {
		mine, err := a.register(ctx)
		if err != nil {
			return nil, nil, err
		}
		l = mine
	}
	changes, err := a.cfg.Store.Watch(ctx)
	if err != nil {
		return nil, l, fmt.Errorf("watch the store: %w", err)
	}
	if a.cfg.Cluster != nil {
		ctx = store.Linearizable(ctx) // not what a server that was cut off remembers
	}
	return changes, l, a.loadAll(ctx)
}

// registerHost makes this host one of the cluster's.
func (a *Agent) registerHost(ctx context.Context) (member.Lease, error) {
	a.adoptPaths(ctx)
	return a.cfg.Store.Register(ctx, a.host.Describe(ctx), member.LeaseTTL)
}

// adoptPaths takes the path MTUs that an earlier agent reported for those of this host.
func (a *Agent) adoptPaths(ctx context.Context) {
	all, err := a.cfg.Store.Hosts(ctx)
	if err != nil {
		return // a store that does not answer this does not take the registration, either
	}
	for _, h := range all {
		if h.Name == a.cfg.Host {
			a.survey.Adopt(h.Paths)
		}
	}
}

// putHost writes the description of this host to the store.
func (a *Agent) putHost(ctx context.Context, h hosts.Host) error {
	err := a.cfg.Store.PutHost(ctx, h)
	a.contact.note(err)
	return err
}

// reload reads anew everything that is wanted, for the fence.
func (a *Agent) reload(ctx context.Context) error {
	err := a.loadAll(store.Linearizable(ctx)) // a server that was cut off may answer with what it had
	a.contact.note(err)
	return err
}

// listen turns news from the store into nudges. What could not be read is read again when the store answers.
func (a *Agent) listen(ctx context.Context, changes <-chan store.Change) {
	var again <-chan time.Time // something was not read
	for {
		c := store.Change{What: store.Resync}
		select {
		case <-ctx.Done():
			return
		case <-again:
			again = nil
		case next, open := <-changes:
			if !open {
				return
			}
			c = next
		}
		if c.What == store.StatusChanged && !a.awaits(c.Slice) {
			continue
		}
		news, err := a.load(ctx, c)
		a.contact.note(err)
		if err != nil && again == nil {
			again = time.After(retryStore)
		}
		if news {
			a.interrupt()
			a.Nudge()
		}
	}
}

// watchExits turns ends of first processes into nudges.
func (a *Agent) watchExits(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.runtime.Exits():
			a.noteExit(id)
			a.Nudge()
		}
	}
}

// loadHosts reads where the other hosts' ends of tunnels are, and reports whether that is news.
func (a *Agent) loadHosts(ctx context.Context) (news bool, err error) {
	if a.cfg.Cluster == nil {
		return false, nil
	}
	all, err := a.cfg.Store.Hosts(ctx)
	if err != nil {
		return false, err
	}
	peers := make(map[string]netip.Addr, len(all))
	for _, h := range all {
		if h.Name != a.cfg.Host {
			peers[h.Name] = h.Address.Unmap()
		}
	}
	described := make([]hosts.Host, len(all))
	for i := range all {
		described[i] = all[i].Host
	}
	mtus := plan.PathMTUs(a.cfg.Host, described)
	a.mu.Lock()
	defer a.mu.Unlock()
	news = !maps.Equal(a.peers, peers) || !maps.Equal(a.pathMTUs, mtus)
	a.peers, a.pathMTUs = peers, mtus
	return news, nil
}

// place says what this host is to those who work out what it must hold.
func (a *Agent) placeLocked() plan.Place {
	p := plan.Place{Host: a.cfg.Host}
	if c := a.cfg.Cluster; c != nil {
		p.Joined, p.Address, p.Peers, p.PathMTUs, p.Fenced = c.Joined, c.Address.Unmap(), a.peers, a.pathMTUs, a.fence.Closed()
		p.Terms = a.terms()
	}
	return p
}

func (a *Agent) place() plan.Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.placeLocked()
}

// awaitedBy gives the nodes that were moved here from hosts that may still run them, each with such a host.
func (a *Agent) awaitedBy(ctx context.Context, s *slice.Slice) (map[string]string, error) {
	if a.cfg.Cluster == nil {
		return nil, nil
	}
	at := a.place()
	var generations map[string]int64
	awaited := make(map[string]string)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if len(n.Left) == 0 || !at.Owns(n) {
			continue
		}
		if generations == nil {
			var err error
			if generations, err = a.cfg.Store.Generations(ctx, s.Name); err != nil {
				return nil, err
			}
		}
		host := n.Awaits(func(host string) (int64, bool) {
			_, exists := at.Peers[host] // this host is not among them
			return generations[host], exists
		})
		if host != "" {
			awaited[n.Name] = host
		}
	}
	return awaited, nil
}

// awaits reports whether a node of a slice awaits another host.
func (a *Agent) awaits(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.wishes[name]
	return w != nil && len(w.Awaited) > 0
}

// contact tells once when the store gives no answers any more, and once when it gives some again.
type contact struct {
	log *slog.Logger

	mu    sync.Mutex // guards since
	since time.Time  // zero: it answers
}

// note takes the outcome of a question to the store.
func (c *contact) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // nobody waited for the answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch answered := err == nil || isAnswer(err); {
	case !answered && c.since.IsZero():
		c.since = time.Now()
		c.log.Warn("the store does not answer; what runs here goes on, and is reported later", "error", err)
	case answered && !c.since.IsZero():
		c.log.Info("the store answers again", "after", time.Since(c.since).Round(time.Second))
		c.since = time.Time{}
	}
}

// isAnswer tells an error that is the store's answer from one that stands for none.
func isAnswer(err error) bool {
	for _, answer := range []error{store.ErrNotFound, store.ErrDeleting, store.ErrConflict, store.ErrCorrupt, store.ErrNoHost, store.ErrWanted} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}
