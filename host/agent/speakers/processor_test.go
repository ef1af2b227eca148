package speakers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/speaker"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// busy is a processor on which reserved frames go first and take 1 us each.
func busy(t *testing.T) *processor {
	t.Helper()
	p := newProcessor()
	if err := p.look(&agenttest.Labels{Share: 0.5}); err != nil {
		t.Fatal(err)
	}
	return &p
}

// cores is the bandwidth whose frames take so much of a core.
func cores(part float64) uint64 { return uint64(part * 1e6 * minPoliced) }

func TestLSPsAreAdmittedByTheProcessor(t *testing.T) {
	p := busy(t)
	one, two := tunnelKey{7, message.Session{Tunnel: 1}}, tunnelKey{7, message.Session{Tunnel: 2}}
	k := func(n uint32) labels.Key { return labels.Key{Space: 1, Number: n} }
	for i, step := range []struct {
		of        tunnelKey
		k         labels.Key
		bandwidth uint64
		ok        bool
	}{
		{one, k(1), cores(0.5), true},
		{two, k(2), cores(0.3), false},
		{two, k(2), cores(0.2), true},
		{one, k(3), cores(0.5), true}, // by another way: LSPs of a session share it
		{one, k(3), cores(0.6), true}, // the reservation of one that is to take its place: nothing more is held
		{one, k(4), cores(0.6), false},
		{one, k(3), cores(0.4), true},
		{one, k(1), cores(0.4), true},
		{two, k(2), cores(0.3), true},
		{two, k(5), cores(0.36), false},
	} {
		err := p.hold(step.k, step.of, step.of, step.bandwidth)
		if (err == nil) != step.ok || err != nil && !errors.Is(err, speaker.ErrNoTime) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	err := p.hold(k(6), tunnelKey{}, tunnelKey{8, one.Session}, cores(0.1))
	const want = "no processor time: 409.6Mbit reserved, in frames of 64 bytes that take 1µs each, is 0.80 of " +
		"the core that polls a network card, where 0.75 can be reserved"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	for _, k := range []labels.Key{k(1), k(3)} {
		if err := p.hold(k, one, tunnelKey{}, 0); err != nil {
			t.Error(err)
		}
	}
	p.release(two, k(2))
	p.release(two, k(2))
	if p.sum != 0 || len(p.held) != 0 {
		t.Errorf("nothing is reserved: %+v", p)
	}
}

// What a frame takes is measured while it runs; what has been admitted stays.
func TestWhatAFrameTakesIsMeasuredAgain(t *testing.T) {
	p := busy(t)
	k, of := labels.Key{Space: 1, Number: 1}, tunnelKey{7, message.Session{Tunnel: 1}}
	path := &agenttest.Labels{Share: 0.5}
	see := func(frames uint64, each time.Duration) {
		t.Helper()
		path.Work.Frames += frames
		path.Work.Time += each * time.Duration(frames)
		if err := p.look(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.hold(k, of, of, cores(1)); err == nil {
		t.Error("by what is assumed, it takes a whole core, and is admitted")
	}
	see(leastMeasured-1, 100*time.Nanosecond)
	if p.cost != assumedCost {
		t.Errorf("%s by too few frames", p.cost)
	}
	see(1, 100*time.Nanosecond)
	if err := p.hold(k, of, of, cores(1)); err != nil {
		t.Error(err)
	}
	see(leastMeasured, 10*time.Microsecond)
	if err := p.hold(k, of, of, cores(1)); err != nil || p.cost != 10*time.Microsecond {
		t.Errorf("frames take %s by now: %v", p.cost, err)
	}
	path.Work = datapath.First{} // another share
	see(leastMeasured, 200*time.Nanosecond)
	if p.cost != 200*time.Nanosecond {
		t.Errorf("%s", p.cost)
	}
	path.Share = 0
	see(0, 0)
	if err := p.hold(k, of, of, cores(1000)); err != nil {
		t.Errorf("where all frames are alike: %v", err)
	}
}

// Only what comes from other hosts comes by a card, and is refused where the processor has no time for it.
func TestLabelsAreRefusedWhereTheProcessorHasNoTime(t *testing.T) {
	s, d := square7(t), newDeafs(t, map[agenttest.Entry]datapath.NHLFE{})
	d.path.Share = 0.5
	for i := range s.Nodes {
		s.Nodes[i].Host = "near"
	}
	s.Node("a").Host = "far"
	d.Sync(d.path, Of(plan.Place{Host: "near"}, []plan.Input{{Spec: s}}, seen(s, "a")))
	b := d.all["b"].router
	fromA, _ := b.want.at("eth1")
	toD, is := b.want.at("eth2")
	if !b.want.Interfaces[fromA].Afar || is.Afar {
		t.Fatalf("the interfaces of b: %+v", b.want.Interfaces)
	}
	e := rsvp.Entry{Key: rsvp.Key{Session: message.Session{Tunnel: 9}}, HasIn: true, In: 20_000,
		From: fromA, HasOut: true, Out: 20_001, Interface: toD, Bandwidth: cores(0.8)}
	for next := range is.Neighbours {
		e.Next = next
	}
	label := func(change func(*rsvp.Entry)) error {
		e := e
		change(&e)
		return b.label(rsvp.LabelChange{Entry: e})
	}
	err := label(func(*rsvp.Entry) {})
	if !errors.Is(err, speaker.ErrNoTime) || len(d.path.Is) > 0 {
		t.Errorf("%v, and %d labels are written", err, len(d.path.Is))
	}
	if err := label(func(e *rsvp.Entry) { e.Bandwidth = cores(0.7) }); err != nil {
		t.Error(err)
	}
	// What the next speaker of the router takes over, and does not want, holds nothing any more.
	d.mu.Lock()
	held := d.sum
	d.mu.Unlock()
	d.adopt(b, b.want)
	d.mu.Lock()
	d.removeLocked(labels.Key{Space: b.want.Space, Number: uint32(e.In)})
	if held != cores(0.7) || d.sum != 0 {
		t.Errorf("held are %d bytes a second, and %d when the label is gone", held, d.sum)
	}
	d.mu.Unlock()
	if err := label(func(e *rsvp.Entry) { e.Bandwidth = cores(0.7) }); err != nil {
		t.Error(err)
	}
	other := func(e *rsvp.Entry) { e.Key.Session.Tunnel, e.In, e.From = 10, 20_002, toD }
	if err := label(other); err != nil {
		t.Errorf("what comes from this host: %v", err)
	}
	e.Key.Session.Tunnel, e.In, e.From = 11, 20_003, 0
	if err := label(func(*rsvp.Entry) {}); !errors.Is(err, speaker.ErrNoTime) {
		t.Errorf("what may come by any interface: %v", err)
	}
}

// What others say of an error is for people, and does nothing to their terminals.
func TestWhatRoutersSayIsPrintable(t *testing.T) {
	s := resolved(t, square, nil)
	e := rsvp.Event{Error: message.ErrorSpec{Node: s.Node("b").Loopbacks[0].Addr(), Code: message.AdmissionFailure},
		Said: "no\x1b[2Jtime"}
	if text := describe(e, s); !strings.HasPrefix(text, "b says: ") || !strings.HasSuffix(text, "(no?[2Jtime)") {
		t.Error(text)
	}
}
