package bound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

func tcp(n uint16) slice.HostPort { return slice.HostPort{Protocol: slice.TCP, Port: n} }

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
	want := []change{
		{id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8007)}, release: []slice.HostPort{tcp(8001)}},
		{id: id("gone"), slice: "lab", release: []slice.HostPort{tcp(8003)}},
		{id: id("late"), slice: "lab", release: []slice.HostPort{tcp(8001)}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(change{})); diff != "" {
		t.Error(diff)
	}
}

func TestAPortThatIsRefusedIsGivenBackAndAskedForLater(t *testing.T) {
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
		Wake: func() { wakes++ }, Log: slog.New(slog.DiscardHandler),
	})
	c := change{id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8001), tcp(8002)},
		release: []slice.HostPort{tcp(8003)}}
	begun := time.Now()
	expect := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		asked, done = nil, nil
	}
	p.apply(t.Context(), c, begun)
	const why = "port tcp/8001 is bound and cannot be reached: port tcp/8001 is reserved for other/x"
	if diff := cmp.Diff([]string{"unclaim 1/a tcp/8001", "a: " + why}, done); diff != "" {
		t.Error(diff)
	}
	expect("asked", asked, []string{
		"lab/a [] [tcp/8003] true", "lab/a [tcp/8001] [] true", "lab/a [tcp/8002] [] true",
	})
	expect("trouble", p.Trouble(id("a")), why)
	expect("trouble of another", p.Trouble(id("b")), "")
	c = change{id: id("a"), slice: "lab", reserve: []slice.HostPort{tcp(8001)}}
	p.apply(t.Context(), c, begun.Add(pause-1))
	expect("asked too soon", asked, []string(nil))
	p.apply(t.Context(), c, begun.Add(pause))
	if len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
	expect("what is refused again is not told again", done, []string{"unclaim 1/a tcp/8001"})
	if wakes != 1 {
		t.Errorf("%d passes are asked for", wakes)
	}
	err = nil
	p.apply(t.Context(), c, begun.Add(2*pause))
	expect("trouble at last", p.Trouble(id("a")), "")
	if wakes != 2 {
		t.Errorf("%d passes are asked for", wakes)
	}

	// Who cannot be asked has refused nothing.
	for _, err = range []error{errors.New("no answer"), &api.Problem{Status: http.StatusInternalServerError,
		Detail: "no answer"}} {
		p.apply(t.Context(), c, begun.Add(3*pause))
		const why = "port tcp/8001 is bound and cannot be reached: no answer"
		if diff := cmp.Diff([]string{"a: " + why}, done); diff != "" {
			t.Error(diff)
		}
		expect("trouble without an answer", p.Trouble(id("a")), why)
		err = nil
		p.apply(t.Context(), c, begun.Add(4*pause))
		expect("trouble after an answer", p.Trouble(id("a")), "")
	}

	// What is bound no longer is no trouble.
	err = refuse
	p.apply(t.Context(), c, begun.Add(3*pause))
	p.Sync(t.Context(), plan.Place{}, nil, &observe.Snapshot{})
	p.Wait()
	expect("trouble when it is bound no longer", p.Trouble(id("a")), "")
}
