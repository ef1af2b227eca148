package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/topology"
)

// Members that admit without a pause, more than their hosts have, give each thing once. No request of theirs ends as a
// conflict, and none takes longer than its attempts may wait and decide. Nothing is taken back here, so that in the end
// it shows if there was ever too much.
func TestMembersThatAdmitWithoutAPauseOvercommitNothing(t *testing.T) {
	t.Parallel()
	const members, applies, longest = 4, 50, patience + 5*time.Second
	f := &fake{hosts: machines(members, func(h []store.HostState) {
		for i := range h {
			h[i].Allows.Ports = []hosts.Ports{{First: 8000, Last: 8019}}
		}
	})}
	c, s, _ := member(t, f)
	tops := make([][]*topology.Topology, members)
	for m := range tops {
		random := rand.New(rand.NewPCG(uint64(m), 1))
		for i := range applies {
			tops[m] = append(tops[m], parsed(t, greedyFile(random, fmt.Sprintf("lab%d-%d", m, i))))
		}
	}
	var wg sync.WaitGroup
	var given, refused atomic.Int64
	for m := range members {
		self := fmt.Sprintf("h%d", m+1)
		c := New(c.store, f, f, c.events, InCluster(f, self))
		wg.Go(func() {
			for i, top := range tops[m] {
				start := time.Now()
				_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
				if err == nil && i%2 == 0 {
					port := api.ReservationChange{Reserve: []string{fmt.Sprint("udp/", 8000+i%20)}}
					err = c.Reserve(t.Context(), top.Name, "a", port)
				}
				if took := time.Since(start); took > longest {
					t.Errorf("%s was applied for %s", top.Name, took)
				}
				var refusal *Refusal
				switch {
				case err == nil:
					given.Add(1)
				case errors.As(err, &refusal):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if given.Load() < 30 || refused.Load() < 30 {
		t.Errorf("%d requests were carried out, and %d refused", given.Load(), refused.Load())
	}
	checkNothingOvercommitted(t, s, f)
}

// greedyFile is a network that takes something of each kind: cores, memory, a port and the rate of cards.
func greedyFile(random *rand.Rand, name string) string {
	one, other := 1+random.IntN(4), 1+random.IntN(4)
	text := fmt.Sprintf("name: %s\nnodes:\n  a: {host: h%d, cpu: 0.5, memory: 512MiB, ports: [tcp/%d]}\n"+
		"  b: {cpu: 0.25}\n", name, one, 8000+random.IntN(20))
	if other != one {
		text += fmt.Sprintf("  c: {host: h%d, cpu: 0.1}\nlinks: [{ends: [a, c], rate: 500Mbit}]\n", other)
	}
	return text
}

// checkNothingOvercommitted checks what all slices have of each host.
func checkNothingOvercommitted(t *testing.T, s *store.Store, f *fake) {
	t.Helper()
	records, err := s.Slices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used, ports := map[string]usage{}, map[string]map[string]string{}
	for _, r := range records {
		spec, _, err := s.Slice(t.Context(), r.Name)
		if err != nil {
			t.Fatal(err)
		}
		for host, u := range usageOf(spec) {
			sum := used[host]
			sum.Resources, sum.rate = sum.Plus(u.Resources), sum.rate+u.rate
			used[host] = sum
			if ports[host] == nil {
				ports[host] = map[string]string{}
			}
			for port, whose := range u.ports {
				if first := ports[host][port]; first != "" {
					t.Errorf("%s of %s is given to %s and to %s", port, host, first, whose)
				}
				ports[host][port] = whose
			}
		}
	}
	for i := range f.hosts {
		h := &f.hosts[i]
		if full := used[h.Name].WhyFull(mapping.Resources{}, capacityOf(&h.Host)); full != "" {
			t.Errorf("%s: %s", h.Name, full)
		}
		if rate := used[h.Name].rate; rate > h.Underlays[0].Rate {
			t.Errorf("%s: links that leave it need %d bit/s", h.Name, rate)
		}
	}
}
