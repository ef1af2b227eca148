package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/agent/drive"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/model/hosts"
)

// membership reads the inputs of an agent, from its start on. In a cluster it makes this host one of those that are
// alive, and keeps the fence.
type membership struct {
	cfg     Config
	inputs  *inputs.Inputs
	driver  *drive.Driver
	contact *store.Contact
	changed func() // what is wanted has changed

	register func(context.Context) (member.Lease, error)
	fence    *member.Fence
	survey   *member.Survey
	underlay *member.Underlay
	alone    *member.Alone // where there is no cluster
	host     *member.Host
}

func newMembership(
	cfg Config, m *machine.Machine, in *inputs.Inputs, d *drive.Driver, contact *store.Contact, w *member.Watchdog,
	wake, changed func(),
) *membership {
	s := &membership{cfg: cfg, inputs: in, driver: d, contact: contact, changed: changed}
	s.register = s.registerHost
	s.fence = member.NewFence(cfg.Log, cfg.Cluster != nil, w.Post, member.FenceActions{
		End: d.EndFenced, Reload: s.reload, Changed: changed,
	})
	s.survey = member.NewSurvey(m.Platform.PathMTU)
	s.underlay = member.NewUnderlay(cfg.Cluster, m.Platform.Interfaces, cfg.Log)
	s.alone = member.NewAlone(m.Platform.Interfaces, cfg.Log)
	s.host = member.NewHost(member.Config{
		Name: cfg.Host, Cluster: cfg.Cluster, Log: cfg.Log, Events: cfg.Events,
		Terms: in.Terms, Features: func() []string { return features(m.Platform) },
		Reservable: m.Platform.Reservable(),
		Interfaces: m.Platform.Interfaces, Watch: m.Platform.WatchInterfaces, Tunnels: m.Tunnels, Changed: wake,
	}, s.survey, s.underlay)
	return s
}

func features(p machine.Platform) (all []string) {
	if p.HaveNetem() == nil {
		all = append(all, hosts.FeatureNetem)
	}
	if p.HaveHTB() == nil {
		all = append(all, hosts.FeatureHTB)
	}
	return all
}

// follow reads what is wanted here, and goes on to do so until ctx ends.
func (s *membership) follow(ctx context.Context) error {
	changes, held, err := s.begin(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	s.inputs.MarkKnown()
	var group sync.WaitGroup
	defer group.Wait()
	if held != nil {
		s.fence.Begin(held)
		group.Go(func() { s.fence.Guard(ctx, held) })
		group.Go(func() { s.host.Announce(ctx, s.putHost) })
		group.Go(func() { s.survey.Run(ctx, s.addresses) })
	}
	s.inputs.Follow(ctx, changes, s.changed)
	return nil
}

// begin reads what is wanted; in a cluster, it registers this host first. There, it goes on asking a store that does
// not answer. Meanwhile what was wanted last is, but for what may have been started elsewhere: that is ended first of
// all.
func (s *membership) begin(ctx context.Context) (changes <-chan store.Change, l member.Lease, err error) {
	for {
		changes, l, err = s.tryBegin(ctx, l)
		final := s.cfg.Cluster == nil || errors.Is(err, store.ErrNameTaken) || errors.Is(err, store.ErrNoHost)
		if err == nil || final || ctx.Err() != nil {
			return changes, l, err
		}
		s.contact.Note(err)
		s.driver.EndFenced(ctx)
		s.loadCached(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(inputs.RetryStore):
		}
	}
}

func (s *membership) tryBegin(ctx context.Context, l member.Lease) (<-chan store.Change, member.Lease, error) {
	if s.cfg.Cluster != nil && l == nil {
		held, err := s.register(ctx)
		if err != nil {
			return nil, nil, err
		}
		l = held
	}
	changes, err := s.cfg.Store.Watch(ctx)
	if err != nil {
		return nil, l, fmt.Errorf("watch the store: %w", err)
	}
	if s.cfg.Cluster != nil {
		ctx = store.Linearizable(ctx) // not what a server that was cut off has cached
	}
	return changes, l, s.inputs.LoadAll(ctx)
}

// loadCached takes what the store last told an earlier agent for what is wanted, unless that is known, or nothing is
// cached.
func (s *membership) loadCached(ctx context.Context) {
	select {
	case <-s.inputs.Known():
		return
	default:
	}
	if err := s.inputs.LoadAll(store.AllowStale(ctx)); err != nil {
		s.cfg.Log.Debug("read the offline cache", "error", err)
		return
	}
	s.cfg.Log.Info("until the store answers, this host is to have what it was to have last")
	s.inputs.MarkKnown()
}

// registerHost makes this host one of the cluster's.
func (s *membership) registerHost(ctx context.Context) (member.Lease, error) {
	s.adoptPaths(ctx)
	return s.cfg.Store.Register(ctx, s.host.Describe(ctx), member.LeaseTTL)
}

// adoptPaths takes the path MTUs that an earlier agent reported for those of this host.
func (s *membership) adoptPaths(ctx context.Context) {
	all, err := s.cfg.Store.Hosts(ctx)
	if err != nil {
		return // a store that does not answer this does not take the registration, either
	}
	for _, h := range all {
		if h.Name == s.cfg.Host {
			s.survey.Adopt(h.Paths)
		}
	}
}

// putHost writes the description of this host to the store.
func (s *membership) putHost(ctx context.Context, h hosts.Host) error {
	err := s.cfg.Store.PutHost(ctx, h)
	s.contact.Note(err)
	return err
}

// reload reads anew everything that is wanted, for the fence.
func (s *membership) reload(ctx context.Context) error {
	err := s.inputs.LoadAll(store.Linearizable(ctx)) // a server that was cut off may answer with what it had
	s.contact.Note(err)
	return err
}

// addresses gives this host's end of tunnels, and those of the other hosts.
func (s *membership) addresses() (local netip.Addr, others map[string]netip.Addr) {
	at := s.inputs.Place()
	return at.Address, at.Peers
}
