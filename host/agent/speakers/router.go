package speakers

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/speaker"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/te"
)

// What neighbours can have a router hold. All routers of a host have 262,144 labels.
const (
	mostLSPs  = 20_000
	mostBytes = 16 << 20
)

// router is a router that speaks.
type router struct {
	id      sliver.ID
	all     *Speakers
	began   time.Time
	speaker rsvpSpeaker
	cancel  context.CancelFunc
	done    chan struct{} // closed when the speaker has ended
	err     error         // how; valid when done is closed

	mu      sync.Mutex // guards what follows; never held while the speaker is called
	want    *Router
	tunnels map[string]*tunnel
	guards  map[int]*guard     // by interface
	failing map[rsvp.Key]error // labels that could not be installed
}

// rsvpSpeaker is what is asked of a speaker.Speaker.
type rsvpSpeaker interface {
	Run(ctx context.Context) error
	Adopt(entries []rsvp.Entry) error
	Add(q rsvp.Request) error
	Remove(k rsvp.Key) error
	SetLink(index int, up bool) error
	Repeat() error
}

// newRouter makes a router speak.
func (s *Speakers) newRouter(id sliver.ID, want *Router, now time.Time) (_ *router, err error) {
	r := &router{id: id, all: s, began: now, done: make(chan struct{}), want: want, tunnels: map[string]*tunnel{},
		guards: map[int]*guard{}, failing: map[rsvp.Key]error{}}
	if r.speaker, err = s.speak(r, want); err != nil {
		return nil, err
	}
	if err := r.speaker.Adopt(s.adopt(r, want)); err != nil {
		s.log.Error("take over the labels of an earlier RSVP speaker", "router", id.String(), "error", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		r.err = r.speaker.Run(ctx)
		close(r.done)
		s.wake()
	}()
	return r, nil
}

// openSpeaker makes the speaker of a router, in its network namespace.
func openSpeaker(r *router, want *Router) (rsvpSpeaker, error) {
	ns, err := netns.OpenSame(want.PID, want.NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }() // it was read alone
	now := time.Now()
	config := rsvp.Config{ID: want.ID, Random: rand.Uint64, Refresh: refresh, Egress: rsvp.OwnLabel, Hello: hello,
		Instance: max(uint32(now.UnixMilli()), 1), Restart: restart, Reduce: true,
		Sequence: uint64(now.UnixNano()), FirstLabel: firstLabel, LastLabel: lastLabel,
		MaxLSPs: mostLSPs, MaxBytes: mostBytes}
	for index, is := range want.Interfaces {
		config.Interfaces = append(config.Interfaces, rsvp.Interface{Index: index, Prefix: is.Prefix,
			Bandwidth: bytesPerSecond(is.Bandwidth), Down: is.Down, MTU: is.MTU})
	}
	speaks, err := speaker.Open(speaker.Config{Namespace: ns, Router: config, Labels: r.label, Event: r.event,
		Bandwidth: r.bandwidth, Failed: r.unsent})
	if err != nil {
		return nil, err // no typed nil
	}
	return speaks, nil
}

// stop ends the speaker.
func (r *router) stop() error {
	r.cancel()
	<-r.done
	return r.err
}

func (r *router) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// fits reports whether the speaker can go on as what is wanted now.
func (r *router) fits(want *Router) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(a, b Interface) bool {
		return a.Prefix == b.Prefix && a.Bandwidth == b.Bandwidth && a.MTU == b.MTU
	}
	return r.want.NetNS == want.NetNS && r.want.ID == want.ID && r.want.Space == want.Space &&
		maps.EqualFunc(r.want.Interfaces, want.Interfaces, same)
}

// set takes over what is wanted now, and tells the speaker which links are down.
func (r *router) set(want *Router) {
	r.mu.Lock()
	was, failing := r.want, len(r.failing) > 0
	r.want = want
	r.mu.Unlock()
	for index, is := range want.Interfaces {
		if was.Interfaces[index].Down == is.Down {
			continue
		}
		if err := r.speaker.SetLink(index, !is.Down); err != nil {
			return // Run has ended, too
		}
	}
	if was.FloodsLinks != want.FloodsLinks {
		r.all.setFloods(r.id, want.FloodsLinks)
	}
	same := func(a, b *slice.LSP) bool { return a.TTL == b.TTL && a.Excess == b.Excess }
	if failing || !reflect.DeepEqual(was.Interfaces, want.Interfaces) ||
		was.Network != want.Network && !maps.EqualFunc(was.Tunnels, want.Tunnels, same) {
		// What is written for a label may be another. It fails where Run has ended, too.
		_ = r.speaker.Repeat()
	}
}

// wanted gives what the router is to be.
func (r *router) wanted() *Router {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want
}

// label carries out a change of labels. One that cannot be installed is failing until it is, or until it is removed.
func (r *router) label(c rsvp.LabelChange) error {
	if asked, ok := r.askedFor(c.Entry.Key); ok {
		c.Entry.Bandwidth = asked // and not that of all versions, which share what they have reserved
	}
	err := r.all.install(r, r.wanted(), c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || c.Remove {
		delete(r.failing, c.Entry.Key)
		return err
	}
	if r.failing[c.Entry.Key] == nil {
		r.all.log.Error("install a label", "router", r.id.String(), "error", err)
	}
	r.failing[c.Entry.Key] = err
	return err
}

// askedFor gives the bandwidth of a version of an LSP that begins here, in bytes a second.
func (r *router) askedFor(k rsvp.Key) (bandwidth uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.want.Tunnels[uint32(k.Session.Tunnel)]
	if l == nil || r.tunnels[l.Name] == nil {
		return 0, false
	}
	v := r.tunnels[l.Name].version(k)
	if v == nil {
		return 0, false
	}
	return v.request.Bandwidth, true
}

func (r *router) bandwidth(b rsvp.Bandwidth) {
	want := r.wanted()
	if is, ok := want.Interfaces[b.Interface]; ok {
		r.all.setUnreserved(r.id, want.Network.Name, is.Name, b)
		if want.FloodsLinks {
			r.all.setAdvertised(r.id, is.Name, b)
		}
	}
}

// unsent hears of a message that could not be sent; it is sent again.
func (r *router) unsent(err error) {
	r.all.log.Debug("RSVP", "router", r.id.String(), "error", err)
}

// event hears what happens to LSPs.
func (r *router) event(e rsvp.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isBypass(e.Key) {
		r.hearGuard(e)
		return
	}
	l := r.want.Tunnels[uint32(e.Key.Session.Tunnel)]
	if l == nil || r.tunnels[l.Name] == nil {
		return
	}
	t := r.tunnels[l.Name]
	v := t.version(e.Key)
	was := v != nil && v.up
	if !t.handle(e, r.want.Network, time.Now()) {
		return
	}
	r.all.again()
	text := t.summary(e, was, r.want.Network)
	if err := r.failing[e.Key]; err != nil && e.Kind == rsvp.Up {
		text = "is not up: " + err.Error()
	}
	if text != "" {
		r.all.tell(events.Event{Slice: r.want.Network.Name, Node: r.id.Node, Kind: events.LSPChanged,
			Message: "LSP " + l.Name + " " + text})
	}
}

// ask asks for the LSPs that begin here as they are wanted now. It tells when something is to be tried again; zero:
// nothing is.
func (r *router) ask(now time.Time, known databases) time.Time {
	var due due
	want := r.wanted()
	r.mu.Lock()
	if len(r.failing) > 0 { // set writes them again
		due.at(now.Add(retry))
	}
	r.mu.Unlock()
	r.remove(r.gone(want))
	for _, l := range want.LSPs {
		r.mu.Lock()
		t := r.tunnels[l.Name]
		if t == nil {
			t = &tunnel{resume: r.all.trace(want, l)}
			r.tunnels[l.Name] = t
		}
		r.mu.Unlock()
		due.at(r.settle(t, l, now, known))
	}
	due.at(r.guardLinks(want, now, known))
	return due.Time
}

// gone forgets the LSPs that are wanted no more, and gives what was asked for.
func (r *router) gone(want *Router) (keys []rsvp.Key) {
	wanted := make(map[string]bool, len(want.LSPs))
	for _, l := range want.LSPs {
		wanted[l.Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.tunnels {
		if !wanted[name] {
			keys = append(keys, t.keys()...)
			delete(r.tunnels, name)
		}
	}
	return keys
}

// remove tears LSPs down.
func (r *router) remove(keys []rsvp.Key) {
	for _, k := range keys {
		if err := r.speaker.Remove(k); err != nil && !errors.Is(err, rsvp.ErrNoLSP) {
			r.all.log.Error("tear an LSP down", "router", r.id.String(), "error", err)
		}
	}
}

// settle asks for an LSP, if it is not the one that was asked for, or if that has failed. It tells when it is to be
// tried again, as ask does.
func (r *router) settle(t *tunnel, l *slice.LSP, now time.Time, known databases) (due time.Time) {
	want := r.wanted()
	r.mu.Lock()
	next, remove, due := t.next(want, l, now, func() *te.Database { return known.of(want) })
	if next != nil {
		t.versions = append(t.versions, next)
	}
	r.mu.Unlock()
	if next == nil {
		r.remove(remove)
		return due
	}
	// First added: what is removed may be what packets go by.
	if err := r.speaker.Add(next.request); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.forget(next.request.Key)
		if len(next.path.Hops) > 0 {
			t.avoid.add(next.path.Hops[0].Local, now)
		}
		t.fail(refusal(err, want), now)
		return t.notYet
	}
	r.remove(remove)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range remove {
		t.forget(k)
	}
	return due
}
