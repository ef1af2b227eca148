package bound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

func tcp(n uint16) slice.HostPort { return slice.HostPort{Protocol: slice.TCP, Port: n} }

var unlimited = rate.NewLimiter(rate.Inf, 0)

func id(node string) sliver.ID { return sliver.ID{Slice: 1, Node: node} }

func TestReservationsFollowWhatSliversBind(t *testing.T) {
	bind := slice.Ports{First: 8000, Last: 8099}
	node := func(name string, bound ...slice.HostPort) slice.Node {
		return slice.Node{Name: name, Kind: slice.Host, Host: "h1", BindPorts: bind, BoundPorts: bound}
	}
	spec := &slice.Slice{ID: 1, Name: "lab", Nodes: []slice.Node{
		node("a", tcp(8001), tcp(8002)), node("gone", tcp(8003)), node("unknown", tcp(8004)),
		node("elsewhere", tcp(8005)), node("same", tcp(8006)), node("late", tcp(8001), tcp(8008)),
	}}
	spec.Nodes[0].Ports = []slice.HostPort{tcp(8009)}
	spec.Nodes[3].Host = "h2"
	seen := &observe.Snapshot{
		Slivers: map[sliver.ID]sliver.Observed{
			id("a"): {PID: 1}, id("unknown"): {PID: 2}, id("same"): {PID: 3},
			id("late"): {PID: 4},
		},
		Bound: map[sliver.ID][]slice.HostPort{
			// 80 is not in the range; 8009 is in the topology.
			id("a"):    {tcp(80), tcp(8002), tcp(8007), tcp(8009)},
			id("same"): {tcp(8006)},
			id("late"): {tcp(8001), tcp(8008)}, // 8001 is another node's
		},
	}
	lost := plan.Lost{"late": {tcp(8001): "other/x"}}
	got := changes(plan.Place{Host: "h1"}, []plan.Input{{Spec: spec, Lost: lost}}, seen)
	want := map[uint16][]change{1: {
		{
			id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8007)},
			release: []slice.HostPort{tcp(8001)}, room: slice.MaxHostPorts - 2,
		},
		{id: id("gone"), slice: "lab", release: []slice.HostPort{tcp(8003)}, room: slice.MaxHostPorts},
		{id: id("late"), slice: "lab", release: []slice.HostPort{tcp(8001)}, room: slice.MaxHostPorts - 1},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(change{})); diff != "" {
		t.Error(diff)
	}
}

func TestAPortThatIsRefusedIsGivenBackAndAskedForLater(t *testing.T) {
	synctest.Test(t, aPortThatIsRefused)
}

func aPortThatIsRefused(t *testing.T) {
	refuse := &api.Problem{Status: http.StatusConflict, Detail: "port tcp/8001 is reserved for other/x"}
	var asked, done []string
	var err error = refuse
	wakes := 0
	p := New(Config{
		Reserve: func(_ context.Context, name, node string, c api.ReservationChange) error {
			asked = append(asked, fmt.Sprint(name, "/", node, " ", c.Reserve, c.Release, c.Bound))
			if len(c.Reserve) > 0 && c.Reserve[0] == "tcp/8001" {
				return err
			}
			return nil
		},
		Unclaim: func(owner string, p slice.HostPort) error {
			done = append(done, "unclaim "+owner+" "+p.String())
			return errors.New("it is only logged")
		},
		Warn: func(id sliver.ID, message string) { done = append(done, id.Node+": "+message) },
		Wake: func() { wakes++ }, Changes: unlimited, Log: slog.New(slog.DiscardHandler),
	})
	c := change{
		id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8001), tcp(8002)},
		release: []slice.HostPort{tcp(8003)}, room: 2,
	}
	apply := func(after time.Duration) {
		time.Sleep(after)
		p.apply(t.Context(), c, rate.NewLimiter(rate.Inf, 0))
	}
	expect := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		asked, done = nil, nil
	}
	apply(0)
	const why = "port tcp/8001 is bound and cannot be reached: port tcp/8001 is reserved for other/x"
	if diff := cmp.Diff([]string{"unclaim 1/a tcp/8001", "a: " + why}, done); diff != "" {
		t.Error(diff)
	}
	expect("asked", asked, []string{
		"lab/a [] [tcp/8003] true", "lab/a [tcp/8001] [] true", "lab/a [tcp/8002] [] true",
	})
	expect("trouble", p.Trouble(id("a")), why)
	expect("trouble of another", p.Trouble(id("b")), "")
	c = change{id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8001)}, room: 1}
	apply(pause - 1)
	expect("asked too soon", asked, []string(nil))
	apply(1)
	if len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
	expect("what is refused again is not told again", done, []string{"unclaim 1/a tcp/8001"})
	if wakes != 1 {
		t.Errorf("%d passes are asked for", wakes)
	}
	err = nil
	apply(pause)
	expect("trouble at last", p.Trouble(id("a")), "")
	if wakes != 2 {
		t.Errorf("%d passes are asked for", wakes)
	}

	// Who cannot be asked has refused nothing.
	for _, err = range []error{errors.New("no answer"), &api.Problem{Status: http.StatusInternalServerError,
		Detail: "no answer"}} {
		apply(pause)
		const why = "port tcp/8001 is bound and cannot be reached: no answer"
		if diff := cmp.Diff([]string{"a: " + why}, done); diff != "" {
			t.Error(diff)
		}
		expect("trouble without an answer", p.Trouble(id("a")), why)
		err = nil
		apply(pause)
		expect("trouble after an answer", p.Trouble(id("a")), "")
	}

	// What is bound no longer is no trouble.
	err = refuse
	apply(pause)
	p.Sync(t.Context(), plan.Place{}, nil, &observe.Snapshot{})
	p.Wait()
	expect("trouble when it is bound no longer", p.Trouble(id("a")), "")
}

// A sliver that binds as many ports as it can, and lets go of them, costs what a sliver with the ports that it may have
// costs, and keeps no other slice waiting.
func TestASliverThatBindsAndBindsCostsLittle(t *testing.T) {
	synctest.Test(t, bindsAndBinds)
}

func bindsAndBinds(t *testing.T) {
	const passes, perSecond, atOnce = 10, asksPerSecond / 2, asksInOneBurst + 1 // of the host
	var mu sync.Mutex
	asked, told := map[string]int{}, 0
	p := New(Config{
		Reserve: func(_ context.Context, name, _ string, _ api.ReservationChange) error {
			mu.Lock()
			defer mu.Unlock()
			asked[name]++
			return &api.Problem{Status: http.StatusConflict, Detail: "it is another one's"}
		},
		Unclaim: func(string, slice.HostPort) error { return nil },
		Warn: func(sliver.ID, string) {
			mu.Lock()
			defer mu.Unlock()
			told++
		},
		Wake: func() {}, Changes: rate.NewLimiter(perSecond, atOnce), Log: slog.New(slog.DiscardHandler),
	})
	named := func(id uint16, name string) plan.Input {
		return plan.Input{Spec: &slice.Slice{ID: id, Name: name, Nodes: []slice.Node{{
			Name: "a", Kind: slice.Host, Host: "h1", BindPorts: slice.Ports{First: 1, Last: 65535},
		}}}}
	}
	inputs := []plan.Input{named(1, "greedy"), named(2, "other")}
	begun := time.Now()
	for pass := range uint16(passes) {
		seen := &observe.Snapshot{Bound: map[sliver.ID][]slice.HostPort{{Slice: 2, Node: "a"}: {tcp(1)}}}
		for port := range uint16(50) { // others than before
			seen.Bound[id("a")] = append(seen.Bound[id("a")], tcp(1000*(pass+1)+port))
		}
		p.Sync(t.Context(), plan.Place{Host: "h1"}, inputs, seen)
		synctest.Wait()
		mu.Lock()
		if asked["other"] == 0 {
			t.Error("another slice waits")
		}
		mu.Unlock()
		time.Sleep(time.Second)
	}
	p.Wait()
	took := time.Since(begun).Seconds()
	if most := atOnce + int(took*perSecond); asked["greedy"] > most {
		t.Errorf("it was asked for %d ports in %.0f s, want %d at most", asked["greedy"], took, most)
	}
	if most := 2 * (1 + int(took/pause.Seconds())); told > most {
		t.Errorf("%d refusals were told, want %d at most", told, most)
	}
}

// That a node has all ports that it may have is known without a question.
func TestAFullNodeAsksForNothing(t *testing.T) {
	n := slice.Node{Name: "a", BindPorts: slice.Ports{First: 8000, Last: 8099}}
	for i := range uint16(slice.MaxHostPorts - 1) {
		n.Ports = append(n.Ports, tcp(9000+i))
	}
	c := change{id: id("a"), slice: "lab"}
	c.find(&n, nil, &observe.Snapshot{Bound: map[sliver.ID][]slice.HostPort{id("a"): {tcp(8001), tcp(8002)}}})
	var asked []string
	p := New(Config{
		Reserve: func(_ context.Context, _, _ string, c api.ReservationChange) error {
			asked = append(asked, c.Reserve...)
			return nil
		},
		Unclaim: func(_ string, p slice.HostPort) error {
			asked = append(asked, "unclaim "+p.String())
			return nil
		},
		Warn: func(sliver.ID, string) {}, Wake: func() {}, Changes: unlimited,
		Log: slog.New(slog.DiscardHandler),
	})
	p.apply(t.Context(), c, rate.NewLimiter(rate.Inf, 0))
	if diff := cmp.Diff([]string{"tcp/8001", "unclaim tcp/8002"}, asked); diff != "" {
		t.Error(diff)
	}
	const why = "port tcp/8002 is bound and cannot be reached: a would have 13 ports, and may have 12"
	if got := p.Trouble(id("a")); got != why {
		t.Errorf("trouble %q, want %q", got, why)
	}
}
