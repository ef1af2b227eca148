package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The kinds of the world that the tests play with; the same shape as a real host's.
const (
	ground  Kind = iota // the substrate
	area                // a slice's directory
	sliver              // needs an area
	port                // needs a sliver and the ground, falls with either
	wire                // needs two ports, falls with both
	process             // needs a sliver, comes after its wires, amendable
)

// world is a host in memory: it checks the invariants whenever it is acted upon.
type world struct {
	mu     sync.Mutex
	wrong  string // the first invariant that was broken
	things map[Key]Observed
	wants  map[Key]Resource
	fails  func(Action) failing
	stops  context.CancelFunc // the agent is killed
}

type failing uint8

const (
	succeeds failing = iota
	failsBefore
	failsHalfway
	failsAfter // done, but reported as failed
	killedHere
)

var errInjected = errors.New("injected")

// violated notes a broken invariant. It is told to the test by pass: the workers' goroutines must not end it.
func (w *world) violated(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

func (w *world) do(_ context.Context, a Action) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	how := w.fails(a)
	switch how {
	case failsBefore:
		return errInjected
	case killedHere:
		w.stops()
		return errInjected
	case succeeds, failsHalfway, failsAfter:
	}
	switch a.Op {
	case OpDelete:
		for k, o := range w.things {
			if slices.Contains(o.Needs, a.Key) && o.Falls == FallsNever {
				w.violated("%v: %v still stands on it", a, k)
			}
		}
		if how == failsHalfway {
			o := w.things[a.Key]
			o.Broken = true
			w.things[a.Key] = o
			return errInjected
		}
		w.vanish(a.Key)
	case OpCreate, OpUpdate:
		r := w.wants[a.Key]
		if o, there := w.things[a.Key]; there != (a.Op == OpUpdate) || there && o.Digest == r.Digest {
			w.violated("%v: there=%v %+v, wanted %+v", a, there, o, r)
		}
		for _, need := range r.Needs {
			if o, there := w.things[need]; !there || o.Broken {
				w.violated("%v: needs %v, which is not there", a, need)
			}
		}
		w.things[a.Key] = Observed{
			Key: a.Key, Digest: r.Digest, Needs: r.Needs, Falls: r.Falls, Broken: how == failsHalfway,
		}
	}
	if how != succeeds {
		return errInjected
	}
	return nil
}

// vanish removes a thing and what falls with it, as a kernel does.
func (w *world) vanish(k Key) {
	delete(w.things, k)
	for again := true; again; {
		again = false
		for k, o := range w.things {
			gone := 0
			for _, need := range o.Needs {
				if _, there := w.things[need]; !there {
					gone++
				}
			}
			if o.Falls == FallsWithAny && gone > 0 ||
				o.Falls == FallsWithAll && gone > 0 && gone == len(o.Needs) {
				delete(w.things, k)
				again = true
			}
		}
	}
}

func (w *world) observe() []Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.things))
}

// drawWanted makes a random consistent set of resources.
func drawWanted(t *rapid.T) []Resource {
	digest := rapid.SampledFrom([]string{"a", "b"})
	var all []Resource
	add := func(r Resource) Key {
		r.Digest = digest.Draw(t, "digest")
		all = append(all, r)
		return r.Key
	}
	if !rapid.Bool().Draw(t, "anything") {
		return nil
	}
	base := add(Resource{Key: Key{Kind: ground}})
	for id := range uint16(rapid.IntRange(0, 2).Draw(t, "slices")) {
		home := add(Resource{Key: Key{area, id + 1, ""}})
		var ports []Key
		owner := map[Key]Key{}
		for n := range rapid.IntRange(0, 4).Draw(t, "slivers") {
			s := add(Resource{Key: Key{sliver, id + 1, fmt.Sprint(n)}, Needs: []Key{home}})
			for i := range rapid.IntRange(0, 3).Draw(t, "ports") {
				p := add(Resource{
					Key: Key{port, id + 1, fmt.Sprint(n, i)}, Needs: []Key{s, base},
					Falls: FallsWithAny,
				})
				owner[p] = s
				ports = append(ports, p)
			}
		}
		ports = rapid.Permutation(ports).Draw(t, "order")
		before := map[Key][]Key{}
		for i := 0; i+1 < len(ports); i += 2 {
			k := add(Resource{
				Key:   Key{wire, id + 1, ports[i].Name + "-" + ports[i+1].Name},
				Needs: ports[i : i+2 : i+2], Falls: FallsWithAll,
			})
			before[owner[ports[i]]] = append(before[owner[ports[i]]], k)
			before[owner[ports[i+1]]] = append(before[owner[ports[i+1]]], k)
		}
		for _, s := range slices.SortedFunc(maps.Values(owner), compareKeys) {
			k := Key{process, id + 1, s.Name}
			if !slices.ContainsFunc(all, func(r Resource) bool { return r.Key == k }) {
				add(Resource{
					Key: k, Needs: []Key{s}, After: before[s], Falls: FallsWithAny, Amend: true,
				})
			}
		}
	}
	return all
}

func (w *world) want(wanted []Resource) {
	w.wants = map[Key]Resource{}
	for _, r := range wanted {
		w.wants[r.Key] = r
	}
}

// pass observes, plans and acts once; it reports how many actions there were.
func (w *world) pass(t *rapid.T, wanted []Resource, hold func(Key) bool) (int, []error) {
	plan, err := Plan(wanted, w.observe(), hold)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.stops = cancel
	results := Run(ctx, plan, 3, w.do)
	if w.wrong != "" {
		t.Fatal(w.wrong)
	}
	return len(plan), results
}

func TestHistoriesWithFailuresEndAsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{things: map[Key]Observed{}}
		var wanted []Resource
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				wanted = drawWanted(t)
				w.want(wanted)
			case 2: // something dies by itself, or somebody meddles
				if keys := slices.SortedFunc(maps.Keys(w.things), compareKeys); len(keys) > 0 {
					w.vanish(rapid.SampledFrom(keys).Draw(t, "victim"))
				}
			case 3: // something is left half made
				if keys := slices.SortedFunc(maps.Keys(w.things), compareKeys); len(keys) > 0 {
					k := rapid.SampledFrom(keys).Draw(t, "broken")
					o := w.things[k]
					o.Broken = true
					w.things[k] = o
				}
			}
			fates := rapid.SampledFrom([]failing{
				succeeds, succeeds, failsBefore, failsHalfway, failsAfter, killedHere,
			})
			script := rapid.SliceOfN(fates, 0, 20).Draw(t, "failures")
			at := 0
			w.fails = func(Action) failing {
				if at++; at <= len(script) {
					return script[at-1]
				}
				return succeeds
			}
			held := map[Key]bool{}
			for _, k := range slices.SortedFunc(maps.Keys(w.things), compareKeys) {
				held[k] = rapid.IntRange(0, 4).Draw(t, "held") == 0
			}
			w.pass(t, wanted, func(k Key) bool { return held[k] })
		}
		w.fails = func(Action) failing { return succeeds }
		for range 4 {
			if n, _ := w.pass(t, wanted, nil); n == 0 {
				break
			}
		}
		if len(w.things) != len(wanted) {
			t.Fatalf("%d things are there, %d are wanted", len(w.things), len(wanted))
		}
		for _, r := range wanted {
			if o := w.things[r.Key]; o.Digest != r.Digest || o.Broken {
				t.Fatalf("%v is %+v, wanted %+v", r.Key, o, r)
			}
		}
		if n, _ := w.pass(t, wanted, nil); n != 0 {
			t.Fatalf("%d actions on a world that is as wanted", n)
		}
	})
}

func TestWithoutFailuresOnePassIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{things: map[Key]Observed{}, fails: func(Action) failing { return succeeds }}
		for range 3 {
			wanted := drawWanted(t)
			w.want(wanted)
			_, results := w.pass(t, wanted, nil)
			if err := errors.Join(results...); err != nil {
				t.Fatal(err)
			}
			if plan, _ := Plan(wanted, w.observe(), nil); len(plan) != 0 {
				t.Fatalf("left after one pass: %v", plan)
			}
		}
	})
}

func TestAFailureHoldsBackOnlyWhatNeedsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wanted := drawWanted(t)
		if len(wanted) == 0 {
			return
		}
		victim := rapid.SampledFrom(wanted).Draw(t, "victim").Key
		hold := func(k Key) bool { return k == victim }
		w := &world{things: map[Key]Observed{}, fails: func(Action) failing { return succeeds }}
		w.want(wanted)
		w.pass(t, wanted, hold)
		blocked := map[Key]bool{victim: true}
		for _, r := range wanted { // drawWanted lists needs before what needs them
			for _, need := range r.Needs {
				blocked[r.Key] = blocked[r.Key] || blocked[need]
			}
		}
		for _, r := range wanted {
			if _, there := w.things[r.Key]; there == blocked[r.Key] {
				t.Fatalf("%v: there=%v though blocked=%v", r.Key, there, blocked[r.Key])
			}
		}
	})
}

func TestPlanRefusesANeedThatIsNotWanted(t *testing.T) {
	_, err := Plan([]Resource{{Key: Key{Kind: port}, Needs: []Key{{Kind: sliver}}}}, nil, nil)
	if err == nil {
		t.Fatal("no error")
	}
}

// What has a thing's name on the machine goes before it, by its own delete or by that of what it falls with.
func TestWhatBlocksAThingGoesFirst(t *testing.T) {
	base, old, name := Key{Kind: area, Name: "a"}, Key{Kind: wire, Name: "x=y"}, Key{Kind: port, Name: "x"}
	for falls, cause := range map[Falls]Key{FallsNever: old, FallsWithAny: base} {
		plan, err := Plan([]Resource{{Key: name}}, []Observed{
			{Key: base}, {Key: old, Needs: []Key{base}, Falls: falls, Blocks: []Key{name}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := func(op Op, k Key) int {
			return slices.IndexFunc(plan, func(a Action) bool { return a.Op == op && a.Key == k })
		}
		if create := at(OpCreate, name); !slices.Contains(plan[create].After, at(OpDelete, cause)) {
			t.Errorf("it falls %d: %+v", falls, plan)
		}
	}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	var b Backoff
	now := time.Unix(0, 0)
	k := Key{Kind: sliver, Name: "a"}
	var pauses []time.Duration
	for range 12 {
		b.Fail(k, now, errInjected)
		next, ok := b.Next(now)
		if !ok || !b.Holds(k, now) || b.Holds(k, next) {
			t.Fatalf("after a failure at %v: next %v %v", now, next, ok)
		}
		pauses = append(pauses, next.Sub(now))
		now = next
	}
	want := []time.Duration{250e6, 500e6, 1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 64e9, 128e9, 240e9, 240e9}
	if !slices.Equal(pauses, want) {
		t.Fatalf("pauses %v, want %v", pauses, want)
	}
	b.Forget(k)
	if _, held := b.Next(now); held {
		t.Fatal("still held after Forget")
	}
}
