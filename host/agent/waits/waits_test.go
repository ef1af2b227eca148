package waits

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestFirstProcessesWait looks at node a, which waits for h2, and is started 5 s after it was made.
func TestFirstProcessesWait(t *testing.T) {
	a, b := sliver.ID{Slice: 1, Node: "h1"}, sliver.ID{Slice: 1, Node: "h2"}
	boot := reconcile.Key{Kind: plan.KindBoot, Slice: 1, Name: "h2"}
	created := sliver.Observed{ID: a, State: sliver.Created, CreatedAt: start}
	is := func(state sliver.State, code int) sliver.Observed {
		return sliver.Observed{ID: b, State: state, ExitCode: code}
	}
	for name, c := range map[string]struct {
		b       sliver.Observed
		until   slice.Until
		booted  bool
		booting bool
		after   time.Duration
		absent  bool // a
		why     string
		look    time.Time
	}{
		"runs":              {b: is(sliver.Running, 0), until: slice.UntilRunning, after: 5 * time.Second},
		"is frozen":         {b: is(sliver.Paused, 0), until: slice.UntilRunning, after: 5 * time.Second},
		"is made":           {b: is(sliver.Created, 0), until: slice.UntilRunning, after: time.Hour, why: "waits for h2 to run"},
		"is not there":      {until: slice.UntilRunning, after: time.Hour, why: "waits for h2 to run"},
		"lines not begun":   {b: is(sliver.Running, 0), until: slice.UntilReady, after: time.Hour, why: "waits for h2 to have run its exec lines"},
		"lines run":         {b: is(sliver.Running, 0), until: slice.UntilReady, booted: true, booting: true, after: time.Hour, why: "waits for h2 to have run its exec lines"},
		"ready":             {b: is(sliver.Running, 0), until: slice.UntilReady, booted: true, after: time.Hour},
		"runs on":           {b: is(sliver.Running, 0), until: slice.UntilExited, after: time.Hour, why: "waits for h2 to end"},
		"has ended":         {b: is(sliver.Exited, 0), until: slice.UntilExited, after: time.Hour},
		"has ended, so ran": {b: is(sliver.Exited, 0), until: slice.UntilRunning, after: time.Hour},
		"has failed":        {b: is(sliver.Exited, 3), until: slice.UntilExited, after: time.Hour, why: "waits for h2 to end, which has ended with status 3"},
		"too early":         {b: is(sliver.Running, 0), until: slice.UntilRunning, after: time.Second, why: "is started 5s after it was made", look: start.Add(5 * time.Second)},
		"not made yet":      {b: is(sliver.Running, 0), until: slice.UntilRunning, after: time.Hour, absent: true, why: "is started 5s after it was made", look: start.Add(time.Hour + 5*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &observe.Snapshot{
				Slivers: map[sliver.ID]sliver.Observed{}, Whole: map[reconcile.Key]bool{boot: c.booted},
			}
			if !c.absent {
				seen.Slivers[a] = created
			}
			if c.b.State != "" {
				seen.Slivers[b] = c.b
			}
			want := wanted(t, c.until)
			w := Of(want, seen, map[sliver.ID]bool{b: c.booting}, start.Add(c.after))
			if got := w[a]; got.Why != c.why || !got.Until.Equal(c.look) {
				t.Errorf("a %+v, want %q, %v", got, c.why, c.look)
			}
			k := reconcile.Key{Kind: plan.KindProcess, Slice: 1, Name: "h1"}
			if w.Holds(k) != (c.why != "") || w.Holds(boot) {
				t.Error("not the first process of a is held, or it is without a reason")
			}
			seen.Whole[k] = true
			if w := Of(want, seen, nil, start); len(w) > 0 {
				t.Errorf("a runs, and %v", w)
			}
		})
	}
}

func wanted(t *testing.T, until slice.Until) *plan.Wanted {
	t.Helper()
	s := plantest.Slice(1, []string{"h1", "h2"})
	s.Node("h1").WaitFor, s.Node("h1").StartDelay = []slice.WaitFor{{Node: "h2", Until: until}}, 5*time.Second
	want, broken := plan.New(plan.Place{}, []plan.Input{{Spec: s}})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	return want
}
