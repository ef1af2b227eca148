package wiring_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

var (
	slow    = slice.Shape{Rate: 1e6}
	fast    = slice.Shape{Rate: 2e6}
	policed = slice.Shape{Police: slice.Policer{Rate: 8e6, Burst: 30000}}
)

// What layouts are made of, and how they are compared.
type (
	records = map[string]wiring.Record
	trees   = map[string]wiring.Tree
)

var equal = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})}

func peer(port string) wiring.Record  { return wiring.Record{Mode: wiring.ToPeer, Peer: port} }
func queue(port string) wiring.Record { return wiring.Record{Mode: wiring.ToQueue, Peer: port} }

func end(port string, s slice.Shape) wiring.End { return wiring.End{Port: port, MTU: 1500, Shape: s} }

// Where each qdisc sits, and where each record leads, by how the link is wired.
func TestLayout(t *testing.T) {
	tree := func(s slice.Shape) wiring.Tree { return wiring.TreeOf(s, 1500) }
	for name, c := range map[string]struct {
		link wiring.Link
		want wiring.Layout
	}{
		"two ports": {
			wiring.Link{A: end("a", slice.Shape{}), B: end("b", slice.Shape{})},
			wiring.Layout{Records: records{"a": peer("b"), "b": peer("a")}},
		},
		"two ports, one shaped": {
			wiring.Link{A: end("a", slow), B: end("b", slice.Shape{})},
			wiring.Layout{
				Records: records{"a": queue("b"), "b": peer("a")},
				Trees:   trees{"b": tree(slow)},
			},
		},
		"two ports, shaped and reinjected": {
			wiring.Link{A: end("b", fast), B: end("a", slow), Reinject: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a": queue("aq"), "aq": peer("a"), "b": queue("bq"), "bq": peer("b"),
				},
				Trees: trees{"aq": tree(slow), "bq": tree(fast)},
			},
		},
		"a switch": {
			wiring.Link{A: end("a", slice.Shape{}), Switch: "sw"},
			wiring.Layout{
				Records: records{"a": {Mode: wiring.ToSwitch}}, Switches: map[string]string{"a": "sw"},
			},
		},
		"a switch that shapes what it sends": {
			wiring.Link{A: end("a", slice.Shape{}), B: end("", slow), Switch: "sw"},
			wiring.Layout{
				Records:  records{"a": {Mode: wiring.ToSwitch}},
				Switches: map[string]string{"a": "sw"}, Trees: trees{"a": tree(slow)},
			},
		},
		"a switch, and both directions shaped": {
			wiring.Link{A: end("a", fast), B: end("", slow), Switch: "sw"},
			wiring.Layout{
				Pairs:    map[string]string{"aq": "am"},
				Records:  records{"a": queue("aq"), "aq": peer("a")},
				Switches: map[string]string{"am": "sw"},
				Trees:    trees{"aq": tree(fast), "am": tree(slow)},
			},
		},
		"a switch, reinjected": {
			wiring.Link{A: end("a", slice.Shape{}), Switch: "sw", Reinject: true},
			wiring.Layout{
				Pairs:    map[string]string{"aq": "am"},
				Records:  records{"a": queue("aq"), "aq": peer("a")},
				Switches: map[string]string{"am": "sw"},
			},
		},
		"two ports, both policed, one also shaped": {
			wiring.Link{
				A: end("a", policed),
				B: end("b", slice.Shape{Rate: 1e6, Police: slice.Policer{Rate: 8e9}}),
			},
			wiring.Layout{
				Records: records{"a": peer("b"), "b": queue("a")},
				Trees:   trees{"a": tree(slow)},
				Policers: map[string]wiring.Policer{
					"a": {Rate: 1e6, Burst: 30000, Single: true},
					"b": {Rate: 1e9, Burst: 1e8}, // 100 ms
				},
			},
		},
		"policed and reinjected": {
			wiring.Link{A: end("a", policed), B: end("b", slow), Reinject: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a": queue("aq"), "aq": peer("a"), "b": queue("bq"), "bq": peer("b"),
				},
				Trees:    trees{"bq": tree(slow)},
				Policers: map[string]wiring.Policer{"a": {Rate: 1e6, Burst: 30000, Single: true}},
			},
		},
		"a switch, and what the node sends is policed": {
			wiring.Link{A: end("a", policed), Switch: "sw"},
			wiring.Layout{
				Records: records{"a": {Mode: wiring.ToSwitch}}, Switches: map[string]string{"a": "sw"},
				Policers: map[string]wiring.Policer{"a": {Rate: 1e6, Burst: 30000, Single: true}},
			},
		},
		"a switch whose frames are policed": {
			wiring.Link{
				A: end("a", slice.Shape{}), B: end("", slice.Shape{Police: slice.Policer{Rate: 8000}}),
				Switch: "sw",
			},
			wiring.Layout{
				Pairs:    map[string]string{"aq": "am"},
				Records:  records{"a": queue("aq"), "aq": peer("a")},
				Switches: map[string]string{"am": "sw"},
				Policers: map[string]wiring.Policer{
					"aq": {Rate: 1000, Burst: 15140, Single: true}, // ten frames
				},
			},
		},
		"two ports, one of them a packet program's": {
			wiring.Link{A: end("a", slice.Shape{}), B: end("b", slice.Shape{}), Program: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a":  {Mode: wiring.ToPeer, Peer: "b", Plain: "aq"},
					"b":  {Mode: wiring.ToPeer, Peer: "a", Plain: "bq"},
					"aq": peer("a"), "bq": peer("b"),
				},
				Plain: map[string]bool{"aq": true, "bq": true},
			},
		},
		"a packet program behind a queue": {
			wiring.Link{A: end("a", slow), B: end("b", slice.Shape{}), Reinject: true, Program: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a": queue("aq"), "aq": peer("a"),
					"b": queue("bq"), "bq": peer("b"),
				},
				Trees: trees{"aq": tree(slow)}, Plain: map[string]bool{"aq": true, "bq": true},
			},
		},
		"a packet program at a switch": {
			wiring.Link{A: end("a", slice.Shape{}), Switch: "sw", Reinject: true, Program: true},
			wiring.Layout{
				Pairs:    map[string]string{"aq": "am"},
				Records:  records{"a": queue("aq"), "aq": peer("a")},
				Switches: map[string]string{"am": "sw"}, Plain: map[string]bool{"am": true},
			},
		},
		"a packet program that chooses queues": {
			wiring.Link{A: end("a", queued), B: end("b", slice.Shape{}), Program: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a":  {Mode: wiring.ToQueue, Peer: "b", Plain: "aq", Queues: 3},
					"b":  {Mode: wiring.ToPeer, Peer: "a", Plain: "bq"},
					"aq": peer("a"), "bq": queue("b"),
				},
				Trees: trees{"b": tree(queued)}, Plain: map[string]bool{"aq": true, "bq": true},
			},
		},
		"a packet program that chooses queues, reinjected": {
			wiring.Link{A: end("a", queued), B: end("b", slice.Shape{}), Program: true, Reinject: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "bq"},
				Records: records{
					"a": {Mode: wiring.ToQueue, Peer: "aq", Queues: 3}, "aq": peer("a"),
					"b": queue("bq"), "bq": peer("b"),
				},
				Trees: trees{"aq": tree(queued)}, Plain: map[string]bool{"aq": true, "bq": true},
			},
		},
		"a packet program that chooses queues to a switch": {
			wiring.Link{A: end("a", queued), Switch: "sw", Program: true, Reinject: true},
			wiring.Layout{
				Pairs: map[string]string{"aq": "am"},
				Records: records{
					"a": {Mode: wiring.ToQueue, Peer: "aq", Queues: 3}, "aq": peer("a"),
				},
				Switches: map[string]string{"am": "sw"},
				Trees:    trees{"aq": tree(queued)}, Plain: map[string]bool{"am": true},
			},
		},
		"a cable": {
			wiring.Link{A: end("a", slow), B: end("b", fast), Cable: true},
			wiring.Layout{Trees: trees{"a": tree(slow), "b": tree(fast)}},
		},
		"rules": {
			wiring.Link{A: end("a", classed), B: end("b", slice.Shape{})},
			wiring.Layout{
				Records: records{"a": queue("b"), "b": peer("a")},
				Trees:   trees{"b": tree(classed)},
				Rules: map[string][]wiring.Rule{"a": {
					{Class: 0x10, Match: slice.Match{DSCP: &ef}}, {Class: 0x10, Match: slice.Match{Protocol: 17}},
					{Class: 0x11, Match: slice.Match{Protocol: 6}},
				}},
			},
		},
	} {
		if diff := cmp.Diff(c.want, c.link.Layout(), equal); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

var (
	ef      = 46
	classed = slice.Shape{Rate: 100e6, Classes: []slice.Class{
		{
			Name:     "voice",
			Match:    []slice.Match{{DSCP: &ef}, {Protocol: 17}},
			Share:    1,
			Reserve:  10e6,
			Priority: 1,
			Queue:    50,
		},
		{Name: "bulk", Match: []slice.Match{{Protocol: 6}}, Share: 2, Limit: 50e6, Priority: 8},
		{Name: "other", Share: 6, Priority: 8},
	}}
)

func TestTreeOfClasses(t *testing.T) {
	const late = 31250 // ticks in two milliseconds
	slowest := wiring.TreeOf(slice.Shape{Rate: unit.MinRate}, 1500).Classes[0].Burst
	want := wiring.Tree{Default: 0x12, Classes: []wiring.Class{
		{Minor: 1, Rate: 12.5e6, Ceil: 12.5e6, Burst: late, CeilBurst: late, Quantum: 1514},
		{
			Minor:     0x10,
			Parent:    1,
			Rate:      1.25e6,
			Ceil:      12.5e6,
			Burst:     37850,
			CeilBurst: late,
			Quantum:   1514,
			Queue:     50,
		},
		{
			Minor:     0x11,
			Parent:    1,
			Rate:      1,
			Ceil:      6.25e6,
			Burst:     slowest,
			CeilBurst: late,
			Quantum:   3028,
			Priority:  7,
			Queue:     1000,
		},
		{
			Minor:     0x12,
			Parent:    1,
			Rate:      1,
			Ceil:      12.5e6,
			Burst:     slowest,
			CeilBurst: late,
			Quantum:   9084,
			Priority:  7,
			Queue:     1000,
		},
	}}
	if diff := cmp.Diff(want, wiring.TreeOf(classed, 1500)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What is reserved has a class of its own, beside those that there are, and all of the rate that these leave.
func TestTreesWithReservations(t *testing.T) {
	layout := func(s slice.Shape, reserves bool) wiring.Layout {
		return wiring.Link{A: wiring.End{Port: "a", MTU: 1500, Shape: s, Reserves: reserves},
			B: wiring.End{Port: "b", MTU: 1500}}.Layout()
	}
	const late = 31250 // ticks in two milliseconds
	single := slice.Shape{Rate: 100e6, Queue: 50}
	slowest := wiring.TreeOf(slice.Shape{Rate: unit.MinRate}, 1500).Classes[0].Burst
	want := wiring.Tree{Default: 0x10, Classes: []wiring.Class{
		{Minor: 1, Rate: 12.5e6, Ceil: 12.5e6, Burst: late, CeilBurst: late, Quantum: 1514},
		{Minor: 2, Parent: 1, Rate: 12.5e6, Ceil: 12.5e6, Burst: late, CeilBurst: late, Quantum: 1514,
			Queue: 1000},
		{Minor: 0x10, Parent: 1, Rate: 1, Ceil: 12.5e6, Burst: slowest, CeilBurst: late, Quantum: 1514,
			Priority: 7, Queue: 50},
	}}
	if diff := cmp.Diff(want, layout(single, true).Trees["b"]); diff != "" {
		t.Errorf("one class: -want +got\n%s", diff)
	}
	with, without := layout(classed, true).Trees["b"], layout(classed, false).Trees["b"]
	if diff := cmp.Diff(without.Classes, slices.Delete(slices.Clone(with.Classes), 1, 2)); diff != "" {
		t.Errorf("other classes change: -without +with\n%s", diff)
	}
	left := without.Classes[0].Rate
	for _, c := range without.Classes[1:] {
		left -= c.Rate
	}
	c := with.Classes[1]
	if c.Minor != wiring.ReservedClass || c.Rate != left || c.Ceil != 12.5e6 || c.Priority != 0 {
		t.Errorf("beside classes: %+v, want a rate of %d", c, left)
	}
	if !with.Alike(without) {
		t.Error("frames that wait in other classes are lost when it comes")
	}
	for name, s := range map[string]slice.Shape{
		"no rate": {Queue: 50}, "queues of a program": queued, "nothing": {},
	} {
		if diff := cmp.Diff(layout(s, false), layout(s, true)); diff != "" {
			t.Errorf("%s: -without +with\n%s", name, diff)
		}
	}
	link := wiring.Link{A: wiring.End{Port: "a", MTU: 1500, Shape: single, Reserves: true},
		B: wiring.End{Port: "b", MTU: 1500}}
	if diff := cmp.Diff(link, link.Observed(link.Layout())); diff != "" {
		t.Errorf("read back: -want +got\n%s", diff)
	}
}

var queued = slice.Shape{Rate: 100e6, Queues: []slice.Queue{
	{Share: 1}, {Share: 3, Length: unit.Length{Bytes: 64 << 10}, Reserve: 10e6},
	{Share: 2, Length: unit.Length{Frames: 200}, Rate: 50e6, Priority: 1},
}}

func TestTreeOfQueues(t *testing.T) {
	const late = 31250 // ticks in two milliseconds
	slowest := wiring.TreeOf(slice.Shape{Rate: unit.MinRate}, 1500).Classes[0].Burst
	want := wiring.Tree{Default: 0x10, Classes: []wiring.Class{
		{Minor: 1, Rate: 12.5e6, Ceil: 12.5e6, Burst: late, CeilBurst: late, Quantum: 1514},
		{
			Minor:     0x10,
			Parent:    1,
			Rate:      1,
			Ceil:      12.5e6,
			Burst:     slowest,
			CeilBurst: late,
			Quantum:   1514,
			Priority:  7,
			Queue:     1000,
		},
		{
			Minor:     0x11,
			Parent:    1,
			Rate:      1.25e6,
			Ceil:      12.5e6,
			Burst:     37850,
			CeilBurst: late,
			Quantum:   4542,
			Priority:  7,
			Bytes:     65536,
		},
		{
			Minor:     0x12,
			Parent:    1,
			Rate:      1,
			Ceil:      6.25e6,
			Burst:     slowest,
			CeilBurst: late,
			Quantum:   3028,
			Priority:  0,
			Queue:     200,
		},
	}}
	if diff := cmp.Diff(want, wiring.TreeOf(queued, 1500)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Frames stay where they wait as long as their queue is of the same kind, whatever becomes of others.
func TestFramesStayInQueuesThatAreChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *slice.Shape)
		want   bool
	}{
		"nothing":          {func(*slice.Shape) {}, true},
		"rate":             {func(s *slice.Shape) { s.Rate = 5e6 }, true},
		"share":            {func(s *slice.Shape) { s.Queues[2].Share = 90 }, true},
		"priority":         {func(s *slice.Shape) { s.Queues[2].Priority = 3 }, true},
		"length":           {func(s *slice.Shape) { s.Queues[1].Length.Bytes = 4096 }, true},
		"one more":         {func(s *slice.Shape) { s.Queues = append(s.Queues, slice.Queue{Share: 5}) }, true},
		"one less":         {func(s *slice.Shape) { s.Queues = s.Queues[:2] }, true},
		"bytes for frames": {func(s *slice.Shape) { s.Queues[2].Length = unit.Length{Bytes: 9000} }, false},
		"none":             {func(s *slice.Shape) { s.Queues = nil }, false},
		"delayed, too":     {func(s *slice.Shape) { s.Delay = time.Second }, false},
	} {
		s := queued
		s.Queues = slices.Clone(queued.Queues)
		c.change(&s)
		was, is := wiring.TreeOf(queued, 1500), wiring.TreeOf(s, 1500)
		if was.Alike(is) != c.want || is.Alike(was) != c.want {
			t.Errorf("%s: alike %v and %v, want %v", name, was.Alike(is), is.Alike(was), c.want)
		}
	}
}

// A plain rate is a scheduler with one class.
func TestTreeOfARate(t *testing.T) {
	want := wiring.Tree{
		Netem: wiring.Netem{
			Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 42949673, Limit: 1000,
		},
		Default: 1, Classes: []wiring.Class{
			{
				Minor:     1,
				Rate:      250e3,
				Ceil:      250e3,
				Burst:     189250,
				CeilBurst: 189250,
				Quantum:   1514,
				Queue:     20,
			},
		},
	}
	shape := slice.Shape{Rate: 2e6, Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 1, Queue: 20}
	if diff := cmp.Diff(want, wiring.TreeOf(shape, 1500)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !wiring.TreeOf(slice.Shape{}, 1500).IsZero() {
		t.Error("no shape has a tree")
	}
}

// What is read back from a layout is the link that it was made from, but for names.
func TestLinkIsReadBackFromItsLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLink(t)
		back := l.Plain().Observed(l.Layout())
		again := back.Layout()
		if diff := cmp.Diff(l.Layout(), again, equal); diff != "" {
			t.Fatalf("-layout +of what was read back\n%s", diff)
		}
		if back.Reinject != l.Reinject && (l.Reinject || l.Switch == "") {
			t.Fatalf("reinjected: %v, read back as %v", l.Reinject, back.Reinject)
		}
		if back.Program != l.Program {
			t.Fatalf("made plain: %v, read back as %v", l.Program, back.Program)
		}
	})
}

// Equal layouts have equal digests, others do not; nothing else is compared by reconcile.
func TestDigestTellsLayoutsApart(t *testing.T) {
	seen := map[string]wiring.Layout{}
	rapid.Check(t, func(t *rapid.T) {
		y := drawLink(t).Layout()
		digest := y.Digest()
		if other, is := seen[digest]; is && !cmp.Equal(other, y, equal) {
			t.Fatalf("%v and %v have one digest", other, y)
		}
		seen[digest] = y
	})
}

// All that a layout names is among the devices of its link, and every peer has a record, or is a port.
func TestLayoutIsClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLink(t)
		y, devices := l.Layout(), l.Devices()
		for _, names := range [][]string{
			slices.Collect(maps.Keys(y.Trees)), slices.Collect(maps.Keys(y.Records)),
			slices.Collect(maps.Keys(y.Rules)), slices.Collect(maps.Keys(y.Switches)),
			slices.Collect(maps.Keys(y.Policers)), slices.Collect(maps.Keys(y.Plain)),
			slices.Collect(maps.Keys(y.Pairs)), slices.Collect(maps.Values(y.Pairs)),
		} {
			for _, name := range names {
				if !slices.Contains(devices, name) {
					t.Fatalf("%s is none of %v", name, devices)
				}
			}
		}
		for name, r := range y.Records {
			if peer := y.Records[r.Peer]; r.Peer != "" && peer.Peer != name && peer.Plain != name {
				t.Fatalf("%s leads to %s, which leads to %s", name, r.Peer, peer.Peer)
			}
			if r.Plain != "" && !y.Plain[r.Plain] {
				t.Fatalf("%s is to make frames plain, and does not", r.Plain)
			}
			if _, shaped := y.Trees[r.Peer]; r.Mode == wiring.ToPeer && shaped {
				t.Fatalf("%s passes the qdisc of %s", name, r.Peer)
			}
		}
	})
}

// The trees are where Queues says, each made from the shape of its direction.
func TestQueuesNamesTheDevicesWithTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLink(t)
		fromA, fromB := l.Queues()
		mtu := max(l.A.MTU, l.B.MTU)
		want := trees{}
		for device, shape := range map[string]slice.Shape{fromA: l.A.Shape, fromB: l.B.Shape} {
			if shape.NeedsQdisc() {
				want[device] = wiring.TreeOf(shape, mtu)
			}
		}
		if diff := cmp.Diff(want, l.Layout().Trees); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

func drawLink(t *rapid.T) wiring.Link {
	l := wiring.Link{
		A: end("s7p1", drawShape(t)), B: end("s7p10", drawShape(t)), Reinject: rapid.Bool().Draw(t, "reinject"),
		Program: rapid.Bool().Draw(t, "program"),
	}
	switch rapid.SampledFrom([]string{"join", "plug", "cable"}).Draw(t, "kind") {
	case "plug":
		l.B.Port, l.Switch = "", "s7b1"
		l.B.Shape = l.B.Shape.Unclassified()
	case "cable":
		l.Cable, l.Reinject, l.Program = true, false, false
		l.A.Shape, l.B.Shape = l.A.Shape.Unclassified(), l.B.Shape.Unclassified()
		l.A.Shape.Police, l.B.Shape.Police = slice.Policer{}, slice.Policer{}
	}
	return l
}

func drawShape(t *rapid.T) slice.Shape {
	rate := unit.Rate(rapid.IntRange(1, 1e9).Draw(t, "rate")) * 8
	s := rapid.SampledFrom([]slice.Shape{
		{}, {Rate: rate}, {Queue: 7}, {Delay: 3 * time.Millisecond}, {Rate: rate, Delay: time.Second, Jitter: time.Millisecond, Loss: 0.1},
		classed, queued,
	}).Draw(t, "shape")
	policers := []slice.Policer{{}, {Rate: 1000 + rate}, {Rate: 1000 + rate, Burst: 3000}}
	s.Police = rapid.SampledFrom(policers).Draw(t, "police")
	return s
}
