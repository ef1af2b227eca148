package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/topology"
)

// meeting is the cluster as members see it that decide at the same time: the first time, none gets an answer before all
// have asked.
type meeting struct {
	*fake
	first sync.Once
	all   *sync.WaitGroup
}

func (m *meeting) Hosts(ctx context.Context) ([]store.HostState, error) {
	m.first.Do(func() {
		m.all.Done()
		m.all.Wait()
	})
	return m.fake.Hosts(ctx)
}

// atOnce gives two controllers at one store, whose next decisions are made at the same time. Their machines run no
// nodes, so neither is asked first what it lacks.
func atOnce(t *testing.T, c *Controller, f *fake) [2]*Controller {
	t.Helper()
	var all sync.WaitGroup
	all.Add(2)
	var members [2]*Controller
	for i := range members {
		self := fmt.Sprint("server", i+1)
		members[i] = New(c.store, f, f, c.events, InCluster(&meeting{fake: f, all: &all}, self))
	}
	return members
}

// one checks that of two requests at once one was carried out, and the other one refused with a reason.
func one(t *testing.T, want string, do func(i int) error) {
	t.Helper()
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	err := errors.Join(errs[:]...)
	var refusal *Refusal
	if (errs[0] == nil) == (errs[1] == nil) || !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, and %v; want %s", errs[0], errs[1], want)
	}
}

func TestTwoMembersDoNotGiveTheSameToTwoSlices(t *testing.T) {
	for what, tt := range map[string]struct{ nodes, links, want string }{
		"cores":   {"{a: {host: h1, cpu: 5}}", "", "5 cores wanted, 3 of 8 free"},
		"memory":  {"{a: {host: h1, memory: 9GiB}}", "", "9216 MiB of memory wanted, 7168 MiB of 16384 MiB free"},
		"a port":  {"{a: {host: h1, ports: tcp/8080}}", "", "its port tcp/8080 is reserved for"},
		"filters": {"{a: {host: h1, program: p.o, reserve: {filters: 60}}}", "", "60 filters wanted, 40 of 100 free"},
		"bandwidth": {"{a: {host: h1}, b: {host: h2}}", "links: [{ends: [a, b], rate: 6Gbit}]",
			"links that leave h1 would need 12 Gbit/s of 10 Gbit/s"},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fake{hosts: machines(2, func(h []store.HostState) {
				h[0].Allows.Ports = []hosts.Ports{{First: 8080, Last: 8080}}
				h[0].Reservable.Filters = 100
			})}
			c, s, _ := member(t, f)
			members := atOnce(t, c, f)
			var tops [2]*topology.Topology
			for i := range tops {
				tops[i] = parsed(t, fmt.Sprintf("name: lab%d\nnodes: %s\n%s\n", i, tt.nodes, tt.links))
			}
			one(t, tt.want, func(i int) error {
				_, _, err := members[i].Apply(t.Context(), Caller{Root: true}, tops[i], false)
				return err
			})
			if records, err := s.Slices(t.Context()); err != nil || len(records) != 1 {
				t.Errorf("stored are %+v, %v", records, err)
			}
		})
	}
}

func TestTwoMembersDoNotGiveTheSameToTwoNodesThatRun(t *testing.T) {
	for what, tt := range map[string]struct {
		change api.ReservationChange
		want   string
	}{
		"a port": {api.ReservationChange{Reserve: []string{"tcp/8080"}}, "port tcp/8080 of host h1 is reserved for"},
		"a port that is bound": {api.ReservationChange{Reserve: []string{"tcp/8081"}, Bound: true},
			"port tcp/8081 of host h1 is reserved for"},
		"bandwidth": {rateOf("eth1", 6e9), "links that leave it would need 12Gbit of 10Gbit"},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fake{hosts: machines(2, func(h []store.HostState) {
				h[0].Allows.Ports = []hosts.Ports{{First: 8080, Last: 8089}}
			})}
			c, _, _ := member(t, f, InCluster(f, "h1"))
			for i := range 2 {
				mustApply(t, c, fmt.Sprintf("name: lab%d\nlinks: [[a, b]]\n"+
					"nodes: {a: {host: h1, ports: [{bind: 8081-8089}]}, b: {host: h2}}\n", i))
			}
			members := atOnce(t, c, f)
			one(t, tt.want, func(i int) error {
				return members[i].Reserve(t.Context(), fmt.Sprint("lab", i), "a", tt.change)
			})
		})
	}
}

// A conflict is no refusal: all that fits is admitted, however many members admit at the same time.
func TestManyMembersAdmitAtOnce(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, s, _ := member(t, f)
	const members = 8
	var wg sync.WaitGroup
	for i := range members {
		wg.Go(func() {
			m := New(c.store, f, f, c.events, InCluster(f, "h1"))
			for j := range 3 {
				file := fmt.Appendf(nil, "name: lab%d-%d\nnodes: {a: {cpu: 0.1}}\n", i, j)
				top, _ := topology.Parse("lab.yaml", file)
				if _, _, err := m.Apply(t.Context(), Caller{Root: true}, top, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if records, err := s.Slices(t.Context()); err != nil || len(records) != 3*members {
		t.Errorf("%d slices are stored, %v", len(records), err)
	}
}

func TestConflictsThatDoNotEndAreToldAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tries, start := 0, time.Now()
		conflict := fmt.Errorf("lab: %w", store.ErrConflict)
		do := func() error {
			tries++
			return conflict
		}
		err := untilNoConflict(ctx, do)
		took := time.Since(start)
		want := fmt.Sprintf("given up after %d attempts in 10s: %v", tries, conflict)
		if !errors.Is(err, conflict) || err.Error() != want || tries < 40 || took > patience+longWait {
			t.Errorf("%d tries in %s: %v", tries, took, err)
		}
		tries = 0
		cancel()
		if err := untilNoConflict(ctx, do); !errors.Is(err, conflict) || tries != 1 {
			t.Errorf("of a request that ended: %d tries: %v", tries, err)
		}
	})
}
