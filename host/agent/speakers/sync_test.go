package speakers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// deaf is a speaker that notes what it is asked, and hears of no other.
type deaf struct {
	router  *router
	ends    chan error
	adopted []rsvp.Entry
	added   []rsvp.Request
	removed []rsvp.Key
	links   map[int]bool
	repeats int
	refuses error // of what is added
	asked   func(rsvp.Request)
}

func (d *deaf) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.ends:
		return err
	}
}
func (d *deaf) Adopt(all []rsvp.Entry) error { d.adopted = all; return nil }
func (d *deaf) Add(q rsvp.Request) error {
	d.added = append(d.added, q)
	if d.asked != nil {
		d.asked(q)
	}
	return d.refuses
}
func (d *deaf) Remove(k rsvp.Key) error          { d.removed = append(d.removed, k); return nil }
func (d *deaf) SetLink(index int, up bool) error { d.links[index] = up; return nil }
func (d *deaf) Repeat() error                    { d.repeats++; return nil }
func (d *deaf) at(name string) (index int)       { index, _ = d.router.wanted().at(name); return index }
func node(name string) sliver.ID                 { return sliver.ID{Slice: 7, Node: name} }
func on(k labels.Key) agenttest.Entry            { return agenttest.Entry(k) }
func square7(t *testing.T) *slice.Slice          { t.Helper(); return resolved(t, square, nil) }
func ofAll(s *slice.Slice) map[sliver.ID]*Router {
	return Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s))
}

// deafs are Speakers whose speakers are deaf, on a data path of labels alone.
type deafs struct {
	*Speakers
	path *agenttest.Labels
	all  map[string]*deaf // by router: the last one
	made int
	at   time.Time
}

func newDeafs(t *testing.T, is map[agenttest.Entry]datapath.NHLFE) *deafs {
	t.Helper()
	d := &deafs{path: agenttest.NewLabels(is), all: map[string]*deaf{}, at: time.Now()}
	d.Speakers = New(slog.New(slog.DiscardHandler), func() {}, func(events.Event) {})
	d.now = func() time.Time { return d.at }
	d.speak = func(r *router, _ *Router) (rsvpSpeaker, error) {
		d.made++
		d.all[r.id.Node] = &deaf{router: r, ends: make(chan error, 1), links: map[int]bool{}}
		return d.all[r.id.Node], nil
	}
	t.Cleanup(d.Close)
	return d
}

func TestRoutersSpeakAsIsWanted(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	d.Sync(d.path, ofAll(s))
	a := d.all["a"]
	if d.made != 4 || len(a.added) != 2 || len(d.all["b"].added) != 0 {
		t.Fatalf("%d speak, and a asks for %v", d.made, a.added)
	}
	d.Sync(d.path, ofAll(s))
	if d.made != 4 || len(a.added) != 2 || a.repeats > 0 {
		t.Errorf("the same again: %d speakers were made, and a asked for %d LSPs", d.made, len(a.added))
	}
	cut := slice.Overrides{Down: map[string]bool{s.Node("a").Interface("eth1").Link: true}}
	d.Sync(d.path, Of(plan.Place{}, []plan.Input{{Spec: s, Overrides: cut}}, seen(s)))
	if up, told := a.links[a.at("eth1")]; !told || up || a.repeats != 1 {
		t.Errorf("a link that is cut: told %t, up %t; labels are written %d times", told, up, a.repeats)
	}
	less := *s
	less.LSPs = s.LSPs[:1]
	d.Sync(d.path, ofAll(&less))
	if len(a.removed) != 1 || d.made != 4 {
		t.Errorf("without an LSP: %v is removed", a.removed)
	}
	want := ofAll(s)
	want[node("b")].NetNS++
	delete(want, node("c"))
	d.Sync(d.path, want)
	if d.made != 5 || len(d.running) != 3 || !d.all["c"].router.ended() {
		t.Errorf("%d speakers were made, %d run", d.made, len(d.running))
	}
	d.Sync(nil, want)
	if len(d.running) != 0 {
		t.Errorf("%d speak without a data path", len(d.running))
	}
}

func TestASpeakerThatEndsAgainAndAgainIsStartedEverMoreSlowly(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	want := map[sliver.ID]*Router{node("a"): ofAll(s)[node("a")]}
	end := func() {
		r := d.all["a"]
		r.ends <- errors.New("a fault\nand where it was")
		<-r.router.done
	}
	var pauses []time.Duration
	d.Sync(d.path, want)
	for range 7 {
		end()
		ended, made := d.at, d.made
		for d.Sync(d.path, want); d.made == made; d.Sync(d.path, want) {
			is := d.State(NewPlaces(s), s.LSP("free"))
			if is.Up || is.Problem != "a does not speak RSVP: a fault" {
				t.Fatalf("meanwhile: %+v", is)
			}
			d.at = d.at.Add(time.Second)
		}
		pauses = append(pauses, d.at.Sub(ended)/time.Second)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 20, 20} {
		if pauses[i] != want {
			t.Errorf("the pauses are %d seconds, want 1, 2, 4, 8, 16, 20, 20", pauses)
			break
		}
	}
	d.at = d.at.Add(steady)
	end()
	d.Sync(d.path, want)
	if wait := d.ends[node("a")].notYet.Sub(d.at); wait != pause {
		t.Errorf("after a minute the pause is %s, want %s", wait, pause)
	}
	// A router that was started again has another network namespace.
	made := d.made
	want[node("a")].NetNS++
	if d.Sync(d.path, want); d.made != made+1 {
		t.Error("a router that has started again does not speak at once")
	}
}

// What an earlier speaker has installed is its successor's, as far as it fits.
func TestEntriesAreAdoptedOrRemoved(t *testing.T) {
	s := square7(t)
	all := ofAll(s)
	a, b := all[node("a")], all[node("b")]
	l := s.LSP("free")
	_, toB := a.at("eth1")
	_, toA := b.at("eth1")
	out := datapath.NHLFE{Port: toB.Port, MAC: toB.Neighbours[s.Node("b").Interface("eth1").Addresses[0].Addr()],
		Push: []datapath.Label{{Label: 20_000}}}
	first := labels.Key{Space: a.Space, Number: ftnOf(l.ID), FTN: true}
	last := labels.Key{Space: b.Space, Number: 20_000}
	wrong := labels.Key{Space: b.Space, Number: 20_001}
	none := labels.Key{Space: a.Space, Number: ftnOf(99), FTN: true}
	other := labels.Key{Space: 9 << 16, Number: 20_000}
	unknown := labels.Key{Space: 8 << 16, Number: 20_000}
	static := labels.Key{Space: b.Space, Number: 20}
	d := newDeafs(t, map[agenttest.Entry]datapath.NHLFE{
		on(first): out, on(last): {Pop: true, In: toA.Port}, on(wrong): {Pop: true, In: 9999}, on(none): out,
		on(other): {Pop: true}, on(unknown): {Pop: true}, on(static): {Pop: true},
	})
	d.path.Keep[on(wrong)] = true
	d.Sync(d.path, all)
	if n := len(d.all["a"].adopted); n != 1 || d.all["a"].adopted[0].Out != 20_000 {
		t.Errorf("a adopts %+v", d.all["a"].adopted)
	}
	if n := len(d.all["b"].adopted); n != 1 || d.all["b"].adopted[0].In != 20_000 {
		t.Errorf("b adopts %+v", d.all["b"].adopted)
	}
	there := func(when string, keys ...labels.Key) {
		t.Helper()
		for _, k := range keys {
			if _, there := d.path.Is[on(k)]; !there {
				t.Errorf("%s: %s is gone", when, k)
			}
		}
		if len(d.path.Is) != len(keys) {
			t.Errorf("%s: there are %d entries, want %d", when, len(d.path.Is), len(keys))
		}
	}
	there("adopted", first, last, wrong, other, unknown, static)
	delete(d.path.Keep, on(wrong))
	d.Prune(all, map[uint16]bool{8: true})
	there("pruned", first, last, wrong, unknown, static) // wrong may be one that the speaker gives by then
	d.Prune(nil, map[uint16]bool{8: true})
	there("without routers", unknown, static)
}

// The ingress says that an LSP is not up whose label cannot be written.
func TestALabelThatCannotBeWrittenIsTold(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	all := ofAll(s)
	d.Sync(d.path, all)
	a, r := all[node("a")], d.all["a"].router
	l := s.LSP("free")
	index, _ := a.at("eth1")
	e := rsvp.Entry{Key: r.tunnels[l.Name].newest().request.Key, HasOut: true, Out: 20_000, Interface: index,
		Next: s.Node("b").Interface("eth1").Addresses[0].Addr()}
	first := labels.Key{Space: a.Space, Number: ftnOf(l.ID), FTN: true}
	d.path.Refuse[on(first)] = true
	if err := r.label(rsvp.LabelChange{Entry: e}); err == nil {
		t.Error("that it cannot be written is not told to the speaker")
	}
	r.event(rsvp.Event{Kind: rsvp.Up, Key: e.Key})
	if is := d.State(NewPlaces(s), l); is.Up || !strings.Contains(is.Problem, "no space left") {
		t.Errorf("%+v", is)
	}
	d.Sync(d.path, all)
	if d.all["a"].repeats != 1 {
		t.Error("it is not tried again")
	}
	delete(d.path.Refuse, on(first))
	if err := r.label(rsvp.LabelChange{Entry: e}); err != nil || !d.State(NewPlaces(s), l).Up {
		t.Errorf("when there is room again: %v, %+v", err, d.State(NewPlaces(s), l))
	}
	if err := r.label(rsvp.LabelChange{Entry: e, Remove: true}); err != nil || len(d.path.Is) > 0 {
		t.Errorf("removed: %v, %d entries", err, len(d.path.Is))
	}
}

// What a router itself refuses is told by names of interfaces, and in bits.
func TestARefusalOfTheIngressIsInWordsOfTheTopology(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	want := map[sliver.ID]*Router{node("a"): ofAll(s)[node("a")]}
	index, _ := want[node("a")].at("eth1")
	q := rsvp.Request{Bandwidth: 2_500_000, Attribute: message.SessionAttribute{Setup: 5}}
	admission := message.ErrorSpec{Code: message.AdmissionFailure, Value: message.BandwidthUnavailable}
	noRoute := message.ErrorSpec{Code: message.RoutingProblem, Value: message.NoRoute}
	speak := d.speak
	for text, e := range map[string]error{
		"a:eth1 has 12Mbit unreserved at priority 5, of 20Mbit that it asks for": fmt.Errorf("add: %w",
			&rsvp.Refused{Request: q, Cause: admission, Interface: index, Unreserved: 1_500_000}),
		"its affinities do not allow the link at a:eth1": &rsvp.Refused{Cause: noRoute, Interface: index,
			Disallowed: true},
		"a says: " + message.ErrorText(noRoute.Code, noRoute.Value): &rsvp.Refused{Cause: noRoute},
		"another fault": errors.New("another fault"),
	} {
		d.speak = func(r *router, want *Router) (rsvpSpeaker, error) {
			speaker, err := speak(r, want)
			d.all["a"].refuses = e
			return speaker, err
		}
		d.Sync(d.path, nil)
		d.Sync(d.path, want)
		if is := d.State(NewPlaces(s), s.LSP("free")); is.Problem != text {
			t.Errorf("the problem is %q, want %q", is.Problem, text)
		}
	}
}

// An LSP that has failed is asked for again without a pass, of which there may be none for seconds.
func TestLSPsAreReroutedWithoutAPass(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	d.Sync(d.path, ofAll(s))
	a := d.all["a"]
	asked := make(chan rsvp.Request, 10)
	a.asked = func(q rsvp.Request) { asked <- q }
	go d.Reroute(t.Context())
	first := a.added[0]
	for _, kind := range []string{rsvp.Up, rsvp.Failed, rsvp.Down} {
		why := message.ErrorSpec{Code: message.RoutingProblem, Value: message.NoRoute}
		why.Node = first.Key.Session.End
		a.router.event(rsvp.Event{Key: first.Key, Kind: kind, Error: why})
	}
	if again := <-asked; again.Key.Session != first.Key.Session || again.Key == first.Key {
		t.Errorf("asked for %v, and again for %v", first.Key, again.Key)
	}
}
