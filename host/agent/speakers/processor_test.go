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
		of     tunnelKey
		k      labels.Key
		part   float64 // of a core
		single bool    // it shares nothing with others of its session
		there  bool
		ok     bool
		sum    float64
	}{
		{of: one, k: k(1), part: 0.5, ok: true, sum: 0.5},
		{of: two, k: k(2), part: 0.3, sum: 0.5},
		{of: two, k: k(2), part: 0.2, ok: true, sum: 0.7},
		{of: one, k: k(3), part: 0.5, ok: true, sum: 0.7}, // by another way
		// A larger one is to take its place: what is reserved becomes more for the old one, too. It is refused.
		{of: one, k: k(3), part: 0.7, there: true, ok: true, sum: 0.9},
		{of: one, k: k(4), part: 0.7, sum: 0.9},
		{of: two, k: k(5), part: 0.01, single: true, sum: 0.9}, // nothing is left meanwhile
		{of: one, k: k(6), part: 0.4, ok: true, sum: 0.9},      // a smaller one is not more
		{of: one, k: k(3), part: 0.5, there: true, ok: true, sum: 0.7},
		{of: two, k: k(5), part: 0.05, single: true, ok: true, sum: 0.75},
		{of: two, k: k(7), part: 0.05, single: true, sum: 0.75},         // it shares nothing
		{of: two, k: k(8), part: 0.3, there: true, ok: true, sum: 0.85}, // of an earlier server
		{of: two, k: k(9), part: 0.3, ok: true, sum: 0.85},
		{of: one, k: k(1), ok: true, there: true, sum: 0.85},
		{of: one, k: k(3), ok: true, there: true, sum: 0.75},
		{of: one, k: k(6), ok: true, there: true, sum: 0.35},
	} {
		before := tunnelKey{}
		if _, held := p.held[step.of][step.k]; held {
			before = step.of
		}
		want := share{reserved: cores(step.part), shared: !step.single}
		_, err := p.hold(step.k, before, step.of, want, step.there)
		if (err == nil) != step.ok || err != nil && !errors.Is(err, speaker.ErrNoTime) {
			t.Errorf("step %d: %v", i, err)
		}
		if p.sum != cores(step.sum) {
			t.Errorf("step %d: %d bytes a second are reserved, want %d", i, p.sum, cores(step.sum))
		}
	}
	_, err := p.hold(k(10), tunnelKey{}, tunnelKey{8, one.Session}, share{reserved: cores(0.5)}, false)
	const want = "no processor time: 256Mbit in frames of 64 bytes that take 1µs each are 0.50 of the core that " +
		"polls a network card, and less is free"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	// What could not be written holds what it held before, for whomever.
	undo, err := p.hold(k(2), two, one, share{reserved: cores(0.1)}, true)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if _, held := p.held[two][k(2)]; !held || p.sum != cores(0.35) {
		t.Errorf("%d bytes a second are reserved: %+v", p.sum, p.held)
	}
	for _, number := range []uint32{2, 5, 8, 9, 9} {
		p.release(two, k(number))
	}
	if p.sum != 0 || len(p.held) != 0 {
		t.Errorf("nothing is reserved: %+v", p)
	}
}

// What a frame takes is measured while it runs; what has been admitted stays.
func TestWhatAFrameTakesIsMeasuredAgain(t *testing.T) {
	p := busy(t)
	k, of := labels.Key{Space: 1, Number: 1}, tunnelKey{7, message.Session{Tunnel: 1}}
	path := &agenttest.Labels{Share: 0.5}
	see := func(frames uint64, each time.Duration, left uint64) {
		t.Helper()
		path.Work.Sent += frames
		path.Work.Time += each * time.Duration(frames)
		path.Work.Left += left
		if err := p.look(path); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(part float64, there bool) error {
		before := tunnelKey{}
		if there {
			before = of
		}
		_, err := p.hold(k, before, of, share{reserved: cores(part)}, there)
		return err
	}
	if err := hold(1, false); err == nil {
		t.Error("by what is assumed, it takes a whole core, and is admitted")
	}
	see(leastMeasured-1, 100*time.Nanosecond, 0)
	if p.cost != assumedCost {
		t.Errorf("%s by too few frames", p.cost)
	}
	see(1, 100*time.Nanosecond, 0)
	if err := hold(1, false); err != nil {
		t.Error(err)
	}
	see(leastMeasured, 10*time.Microsecond, 0)
	if err := hold(1, true); err != nil || p.cost != 10*time.Microsecond {
		t.Errorf("frames take %s by now: %v", p.cost, err)
	}
	see(leastMeasured/2, 200*time.Nanosecond, leastMeasured/2) // of the other half it is not known
	if p.cost != 600*time.Nanosecond {
		t.Errorf("%s", p.cost)
	}
	path.Work = datapath.ReservedWork{} // another share
	see(leastMeasured, 200*time.Nanosecond, 0)
	if p.cost != 200*time.Nanosecond {
		t.Errorf("%s", p.cost)
	}
	path.Share = 0
	see(0, 0, 0)
	if err := hold(1000, false); err != nil {
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
		From: fromA, HasOut: true, Out: 20_001, Interface: toD, Bandwidth: cores(0.8), Rate: cores(0.8)}
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
	if err := label(func(e *rsvp.Entry) { e.Rate = cores(0.7) }); err != nil {
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
	if err := label(func(e *rsvp.Entry) { e.Rate = cores(0.7) }); err != nil {
		t.Error(err)
	}
	other := func(e *rsvp.Entry) { e.Key.Session.Tunnel, e.In, e.From = 10, 20_002, toD }
	if err := label(other); err != nil {
		t.Errorf("what comes from this host: %v", err)
	}
	// Where an LSP ends, or goes round a failure, its packets come, too.
	end := func(e *rsvp.Entry) {
		*e = rsvp.Entry{Key: e.Key, HasIn: true, In: 20_004, From: fromA, Rate: cores(0.8)}
		e.Key.Session.Tunnel = 12
	}
	if err := label(end); !errors.Is(err, speaker.ErrNoTime) {
		t.Errorf("what ends here: %v", err)
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
