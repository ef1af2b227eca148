package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// index knows which hosts have a part of which slices, and so who is to hear of a change. One watch of the store serves
// all agents of this server.
type index struct {
	store *store.Store
	known func() []string // servers, alive or not; may be nil
	log   *slog.Logger

	mu          sync.Mutex // guards all below
	slices      map[string]*placed
	hosts       map[string]hosts.Host // as others see them (reach)
	servers     string                // where those are that are alive: host:port, with spaces between
	subscribers map[*subscriber]bool
}

// placed is what is known of a slice.
type placed struct {
	hosts    []string // that may hold something of it; of one that cannot be read, those of before
	version  string   // what its hosts are to hold
	detailed bool     // awaiting and signalled are known
	// awaiting are the hosts with nodes that were moved there, and signalled says that label-switched paths depend
	// on what hosts say of their links. Others need no word of reports and of link states, which are many.
	awaiting  []string
	signalled bool
}

func newIndex(s *store.Store, known func() []string, log *slog.Logger) *index {
	return &index{store: s, known: known, log: log, slices: map[string]*placed{}, hosts: map[string]hosts.Host{},
		subscribers: map[*subscriber]bool{}}
}

// retryStore is after how long a store is asked again that gave no answer.
const retryStore = time.Second

// follow keeps the index up to date, until ctx ends.
func (x *index) follow(ctx context.Context) {
	for ctx.Err() == nil {
		changes, err := x.store.Watch(ctx)
		if err == nil {
			x.followWatch(ctx, changes)
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryStore):
	}
}

// followWatch applies changes until there will be none. What could not be read is read again: nothing is to be missed,
// and one thing that nobody can read holds up nothing else.
func (x *index) followWatch(ctx context.Context, changes <-chan store.Change) {
	failed := map[store.Change]bool{}
	tick := time.NewTicker(retryStore)
	defer tick.Stop()
	for first := true; ; first = false {
		next := []store.Change{}
		if first {
			next = append(next, store.Change{What: store.Resync})
		} else {
			select {
			case c, open := <-changes:
				if !open {
					return
				}
				next = append(next, c)
			case <-tick.C:
				next = slices.Collect(maps.Keys(failed))
			}
		}
		for _, c := range next {
			if err := x.apply(ctx, c); err != nil {
				x.log.Debug("read what changed, for the agents of this server; try again",
					"what", c.What, "slice", c.Slice, "error", err)
				failed[c] = true
				continue
			}
			delete(failed, c)
		}
	}
}

// apply brings the index up to a change, and tells those of it whom it concerns.
func (x *index) apply(ctx context.Context, c store.Change) error {
	switch c.What {
	case store.Resync:
		return x.reload(ctx)
	case store.HostsChanged:
		news, err := x.readHosts(ctx)
		if news {
			x.tell(change{What: c.What}, nil)
		}
		return err
	case store.Gone, store.SpecChanged: // one that is gone may be there again
		r, err := x.store.Record(ctx, c.Slice)
		switch {
		case errors.Is(err, store.ErrNotFound):
			x.tell(change{What: store.Gone, Slice: c.Slice}, x.drop(c.Slice))
		case err != nil && !r.Corrupt:
			return err
		default:
			x.tell(change{What: store.SpecChanged, Slice: c.Slice}, x.place(r))
		}
		return nil
	case store.OverridesChanged:
		x.tell(change{What: c.What, Slice: c.Slice}, x.of(c.Slice).hosts)
	case store.StatusChanged:
		p, err := x.details(ctx, c.Slice)
		if err != nil {
			return err
		}
		x.tell(change{What: c.What, Slice: c.Slice}, p.awaiting)
	case store.LinkStateChanged:
		p, err := x.details(ctx, c.Slice)
		if err != nil {
			return err
		}
		if p.signalled {
			x.tell(change{What: c.What, Slice: c.Slice}, p.hosts)
		}
	}
	return nil
}

// place notes where a slice is, and gives all who are concerned: those that had a part of it, too. If nothing changed
// but that hosts have let go of it, these are.
func (x *index) place(r store.Record) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.slices[r.Name]
	if was == nil {
		was = new(placed)
	}
	if r.Corrupt {
		return was.hosts
	}
	now := &placed{hosts: r.Hosts, version: fmt.Sprint(r.ID, r.Generation, r.Token, r.Deleting)}
	if now.version == was.version {
		now.awaiting, now.signalled, now.detailed = was.awaiting, was.signalled, was.detailed
		x.slices[r.Name] = now
		return slices.DeleteFunc(slices.Clone(was.hosts), func(h string) bool {
			return slices.Contains(r.Hosts, h)
		})
	}
	x.slices[r.Name] = now
	both := slices.Concat(was.hosts, r.Hosts)
	slices.Sort(both)
	return slices.Compact(both)
}

// drop forgets a slice, and gives the hosts that may have held something of it.
func (x *index) drop(name string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.slices[name]
	delete(x.slices, name)
	if was == nil {
		return []string{}
	}
	return was.hosts
}

// of gives what is known of a slice; the zero value where that is nothing.
func (x *index) of(name string) placed {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.slices[name]; p != nil {
		return *p
	}
	return placed{}
}

// details is of, with what the present version says of hosts that await others.
func (x *index) details(ctx context.Context, name string) (placed, error) {
	p := x.of(name)
	if len(p.hosts) == 0 || p.detailed {
		return p, nil
	}
	s, _, err := x.store.Slice(ctx, name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	p.detailed, p.signalled, p.awaiting = true, s.IsSignalled(), awaiting(s)
	x.mu.Lock()
	defer x.mu.Unlock()
	if have := x.slices[name]; have != nil && have.version == p.version {
		have.detailed, have.signalled, have.awaiting = true, p.signalled, p.awaiting
	}
	return p, nil
}

// awaiting lists the hosts with nodes that were moved there from others.
func awaiting(s *slice.Slice) (all []string) {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; len(n.Left) > 0 && n.Host != "" {
			all = append(all, n.Host)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// has reports whether there is a slice of that name.
func (x *index) has(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.slices[name] != nil
}

// had reports whether a host had a part of a slice when its record could be read last.
func (x *index) had(name, host string) bool { return slices.Contains(x.of(name).hosts, host) }

// reload reads everything, and has all agents do so.
func (x *index) reload(ctx context.Context) error {
	if _, err := x.readHosts(ctx); err != nil {
		return err
	}
	all, err := x.store.Slices(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range all {
		known[r.Name] = true
		x.place(r)
	}
	x.mu.Lock()
	for name := range x.slices {
		if !known[name] {
			delete(x.slices, name)
		}
	}
	x.mu.Unlock()
	x.tell(change{What: store.Resync}, nil)
	return nil
}

// readHosts reports whether something changed that other hosts have to know: a host renews its description all the
// time.
func (x *index) readHosts(ctx context.Context) (news bool, err error) {
	all, err := x.store.Hosts(ctx)
	if err != nil {
		return false, err
	}
	next := make(map[string]hosts.Host, len(all))
	for _, h := range all {
		next[h.Name] = reach(h.Host)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	news = !reflect.DeepEqual(next, x.hosts)
	x.hosts = next
	if servers := x.serversOf(all); servers != x.servers {
		x.servers = servers
		for sub := range x.subscribers {
			sub.put(change{Servers: servers})
		}
	}
	return news, nil
}

// serversOf says where the servers are: those that are known, and hosts that are alive without a session.
func (x *index) serversOf(all []store.HostState) string {
	var servers []string
	if x.known != nil {
		servers = slices.Clone(x.known())
	}
	for _, h := range all {
		if h.Alive && h.Via == "" {
			servers = append(servers, h.API)
		}
	}
	slices.Sort(servers)
	return strings.Join(slices.Compact(servers), " ")
}

func (x *index) serversNow() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.servers
}

// tell passes a change on to the agents of some hosts that have a session here; nil: of all.
func (x *index) tell(c change, to []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for sub := range x.subscribers {
		if to == nil && c.Slice == "" || slices.Contains(to, sub.host) {
			sub.put(c)
		}
	}
}

func (x *index) subscribe(host string) *subscriber {
	s := &subscriber{index: x, host: host, ready: make(chan struct{}, 1), waiting: map[change]bool{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subscribers[s] = true
	return s
}

// subscriber is an agent that hears of changes. Equal ones that it has not taken yet are one.
type subscriber struct {
	index *index
	host  string
	ready chan struct{}

	mu      sync.Mutex // guards all below; taken after that of the index
	queue   []change
	waiting map[change]bool
}

func (s *subscriber) put(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[c] {
		return
	}
	s.waiting[c] = true
	s.queue = append(s.queue, c)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.queue
	s.queue = nil
	clear(s.waiting)
	return all
}

func (s *subscriber) close() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	delete(s.index.subscribers, s)
}
