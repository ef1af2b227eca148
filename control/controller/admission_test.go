package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// watched is the cluster as a member sees it: in the midst of a decision, something else happens.
type watched struct {
	*fake
	decisions int
	meanwhile func(decision int)
}

func (w *watched) Hosts(ctx context.Context) ([]store.HostState, error) {
	w.decisions++
	w.meanwhile(w.decisions)
	return w.fake.Hosts(ctx)
}

// watch gives another member of c's cluster.
func watch(c *Controller, f *fake, self string, meanwhile func(decision int)) (*Controller, *watched) {
	w := &watched{fake: f, meanwhile: meanwhile}
	return New(c.store, f, f, c.events, InCluster(w, self)), w
}

// registry is a machine that asks registries.
type registry struct {
	*fake
	asked  atomic.Int64
	answer chan struct{} // closed: it has answered
}

func (r *registry) Supports(context.Context, *slice.Slice) ([]string, error) {
	r.asked.Add(1)
	<-r.answer
	return []string{"nothing certain"}, nil
}

func TestAMemberAdmitsOthersWhileARegistryIsAsked(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	slow := &registry{fake: f, answer: make(chan struct{})}
	c.host = slow
	top := parsed(t, "name: slow\nnodes: {a: {host: h1, cpu: 1}}\n")
	var wg sync.WaitGroup
	wg.Go(func() {
		plan, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
		if err != nil || strings.Join(plan.Warnings, "\n") != "nothing certain" {
			t.Errorf("%q, %v", plan.Warnings, err)
		}
	})
	for i := range 3 {
		mustApply(t, c, fmt.Sprintf("name: lab%d\nnodes: {a: {host: h2, cpu: 1}}\n", i))
	}
	close(slow.answer)
	wg.Wait()
	if n := slow.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestAConflictAsksNoRegistryAgain(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, _, _ := member(t, f, InCluster(f, "h2"))
	const conflicts = 4
	m, w := watch(c, f, "h1", func(decision int) {
		if decision <= conflicts {
			mustApply(t, c, fmt.Sprintf("name: lab%d\nnodes: {a: {host: h2, cpu: 1}}\n", decision))
		}
	})
	slow := &registry{fake: f, answer: make(chan struct{})}
	close(slow.answer)
	m.host = slow
	mustApply(t, m, "name: slow\nnodes: {a: {host: h1, cpu: 1}}\n")
	if n := slow.asked.Load(); n != 1 || w.decisions != conflicts+1 {
		t.Errorf("it was asked %d times in %d decisions", n, w.decisions)
	}
}

func TestOnlyWhatTakesMoreOfHostsEndsOtherAdmissions(t *testing.T) {
	const file = "name: lab\nnodes: {p: {host: h1, cpu: 2, program: p.o}, b: {host: h2, cpu: 1}}\n" +
		"links: [{name: l, ends: [p, b], delay: 1ms, from: {p: {rate: 1Gbit, queues: {1: {share: 2}}}}}]\n"
	queue := func(c *Controller, q api.QueuePatch) error {
		return c.SetLink(t.Context(), "lab", "l", api.LinkPatch{End: "p:eth1", Queues: []api.QueuePatch{q}})
	}
	apply := func(old, changed string) func(c *Controller) error {
		return func(c *Controller) error {
			top := parsed(t, strings.Replace(file, old, changed, 1))
			_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
			return err
		}
	}
	for what, tt := range map[string]struct {
		takes bool
		do    func(c *Controller) error
	}{
		"a longer delay":  {false, apply("1ms", "2ms")},
		"fewer cores":     {false, apply("cpu: 2", "cpu: 1")},
		"more cores":      {true, apply("cpu: 2", "cpu: 3")},
		"a node more":     {true, apply("b:", "c: {host: h1, cpu: 0.5}, b:")},
		"more of a card":  {true, apply("from: {", "from: {b: {rate: 2Gbit}, ")},
		"a port":          {true, apply("cpu: 1", "ports: [tcp/8080]")},
		"more queues":     {true, apply("1: {share: 2}", "1: {share: 2}, 2: {share: 1}")},
		"a longer queue":  {true, apply("share: 2", "share: 2, length: 4000")},
		"another network": {true, apply("name: lab", "name: other")},
		"another host":    {true, apply("host: h2", "host: h1")},
		"power": {false, func(c *Controller) error {
			return c.SetPower(t.Context(), "lab", "b", api.NodeStop)
		}},
		"a port that is reserved": {true, func(c *Controller) error {
			return c.Reserve(t.Context(), "lab", "b", api.ReservationChange{Reserve: []string{"tcp/8081"}})
		}},
		"a port that is released": {false, func(c *Controller) error {
			return c.Release(t.Context(), "lab", "p", api.ReservationRelease{Ports: []string{"tcp/8082"}})
		}},
		"bandwidth": {true, func(c *Controller) error {
			return c.Reserve(t.Context(), "lab", "b", rateOf("eth1", 2e9))
		}},
		"less bandwidth": {false, func(c *Controller) error {
			return c.Reserve(t.Context(), "lab", "p", rateOf("eth1", 1e6))
		}},
		"a share": {false, func(c *Controller) error {
			return queue(c, api.QueuePatch{Number: 1, Share: pointer(3)})
		}},
		"a queue": {true, func(c *Controller) error { return queue(c, api.QueuePatch{Number: 2}) }},
		"a queue less": {false, func(c *Controller) error {
			return queue(c, api.QueuePatch{Number: 1, Remove: true})
		}},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fake{hosts: machines(2, func(h []store.HostState) {
				for i := range h {
					h[i].Allows.Ports = []hosts.Ports{{First: 8080, Last: 8089}}
				}
			})}
			c, _, _ := member(t, f, InCluster(f, "server"))
			mustApply(t, c, file)
			claim := rateOf("eth1", 1e9)
			claim.Reserve = []string{"tcp/8082"}
			if err := c.Reserve(t.Context(), "lab", "p", claim); err != nil {
				t.Fatal(err)
			}
			m, w := watch(c, f, "server", func(decision int) {
				if decision > 1 {
					return
				}
				if err := tt.do(c); err != nil {
					t.Error(err)
				}
			})
			mustApply(t, m, "name: next\nnodes: {a: {host: h1, cpu: 0.1}}\n")
			if conflict := w.decisions > 1; conflict != tt.takes {
				t.Errorf("an admission ended in a conflict: %v", conflict)
			}
		})
	}
}

// What users change by hand while a version is admitted is admitted with it.
func TestWhatIsChangedByHandMeanwhileIsNotContradicted(t *testing.T) {
	f := &fake{hosts: machines(1)}
	c, s, _ := member(t, f, InCluster(f, "server"))
	const file = "name: lab\nnodes: {a: {host: h1}, b: {host: h1}}\n" +
		"links: [{name: l, ends: [a, b], rate: 20Mbit, " +
		"classes: {voice: {match: [{dscp: EF}], reserve: 3Mbit}}}]\n"
	mustApply(t, c, file)
	m, _ := watch(c, f, "server", func(decision int) {
		set := api.LinkPatch{End: "a:eth1", Rate: pointer(unit.Rate(4e6))}
		if err := c.SetLink(t.Context(), "lab", "l", set); decision == 1 && err != nil {
			t.Error(err)
		}
	})
	top := parsed(t, strings.Replace(file, "3Mbit", "5Mbit", 1))
	_, _, err := m.Apply(t.Context(), Caller{Root: true}, top, false)
	if reasonOf(err) != Invalid || !strings.Contains(err.Error(), "the class reserves 5Mbit of 4Mbit") {
		t.Errorf("%v", err)
	}
	if r, err := s.Record(t.Context(), "lab"); err != nil || r.Generation != 1 {
		t.Errorf("stored is %+v, %v", r, err)
	}
}

func TestQueuesThatComeBackNeedRoom(t *testing.T) {
	f := &fake{hosts: machines(1)}
	c, _, _ := member(t, f, InCluster(f, "server"))
	mustApply(t, c, "name: lab\nnodes: {p: {host: h1, program: p.o}, h: {host: h1}}\n"+
		"links: [{name: l, ends: [p, h], from: {p: {rate: 1Mbit, queues: {1: {share: 2}}}}}]\n")
	fewer := api.LinkPatch{End: "p:eth1", Queues: []api.QueuePatch{{Number: 1, Remove: true}}}
	c.host = full{f, "h1"}
	if err := c.SetLink(t.Context(), "lab", "l", fewer); err != nil {
		t.Fatal(err)
	}
	if err := c.ResetLink(t.Context(), "lab", "l"); reasonOf(err) != Full ||
		err.Error() != "link l: host h1 has no queues left" {
		t.Errorf("without room: %v", err)
	}
	c.host = f
	if err := c.ResetLink(t.Context(), "lab", "l"); err != nil {
		t.Error(err)
	}
}

func TestManyUsersChangeANetworkByHandAtOnce(t *testing.T) {
	c, s, _ := member(t, &fake{})
	mustApply(t, c, "name: lab\nnodes: [a]\n")
	const users, times = 8, 5
	var wg sync.WaitGroup
	for range users {
		wg.Go(func() {
			for range times {
				if err := c.SetPower(t.Context(), "lab", "a", api.NodeRestart); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if o, err := s.Overrides(t.Context(), "lab"); err != nil || o.Restarts["a"] != users*times {
		t.Errorf("%d of %d restarts counted, %v", o.Restarts["a"], users*times, err)
	}
}

func TestAChangeByHandEndsAtLastWhereOthersAreAlwaysFirst(t *testing.T) {
	t.Parallel()
	c, s, _ := member(t, &fake{})
	mustApply(t, c, "name: lab\nnodes: [a]\n")
	tries := 0
	err := c.updateOverrides(t.Context(), "lab", func(*slice.Overrides) (bool, error) {
		tries++
		first := func(*slice.Overrides) (bool, error) { return false, nil }
		return false, s.UpdateOverrides(t.Context(), "lab", first)
	})
	want := fmt.Sprintf("change network lab by hand: given up after %d attempts in 10s: network lab was changed "+
		"by hand: another request was carried out meanwhile: try again", tries)
	if !errors.Is(err, store.ErrConflict) || err.Error() != want {
		t.Errorf("after %d: %v", tries, err)
	}
}
