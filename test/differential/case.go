package differential

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/vnet"
)

// testcase is a network and what happens to it. All of it is plain data, so that parts can be left out.
type testcase struct {
	seed  uint64
	least int // frames that were asked for
	plan  vnet.Plan
	steps []step
	// Frames of a flow arrive in the same order in both networks. Not compared where links have queues: one frame
	// was seen to be overtaken there. Probably another CPU had emptied the queue, for a frame of a node's own, and
	// so took what was the test's to its own backlog.
	ordered bool
	paths   ecmp // what depends on them is not compared
	sound   bool // nothing in the network keeps valid frames from the fast path, until something happens
}

// step is an event, or frames.
type step struct {
	events []event
	frames []frame
}

// newCase draws one with at least so many frames.
func newCase(seed uint64, frames int) *testcase {
	rng := rand.New(rand.NewPCG(seed, 0))
	routers := 2 + rng.IntN(6)
	switch rng.IntN(5) {
	case 0:
		routers = 2 + rng.IntN(39)
	case 1:
		routers = 2 + rng.IntN(16)
	}
	g := randomGraph(rng, routers)
	g.route()
	g.disturb()
	if g.odd.objects {
		g.nameObjects()
	}
	neighbours, known := g.seeding()
	c := &testcase{
		seed: seed, least: frames, plan: g.plan(neighbours), paths: g.ecmp, ordered: !g.odd.shaped,
		sound: known && g.ecmp != single && len(g.lans()) == 0,
	}
	if g.odd.special && g.ecmp == single {
		for range routers {
			if e := g.oddRouteEvent(g.anyRouter()); e != nil {
				c.steps = append(c.steps, step{events: e})
			}
		}
	}
	s := newSender(g)
	for sent := 0; sent < frames; {
		var batch []frame
		for range 20 + rng.IntN(40) {
			batch = append(batch, s.frames(c.sound && sent == 0)...)
		}
		c.steps = append(c.steps, step{frames: batch})
		sent += len(batch)
		for range rng.IntN(3) {
			if e := g.events(); e != nil {
				c.steps = append(c.steps, step{events: e})
			}
		}
	}
	return c
}

// seeding says which neighbours nodes know from the start: all, none, or some, of which some are stale.
func (g *graph) seeding() (neighbours func(*end, *end) []vnet.Neighbour, all bool) {
	kind := g.rng.IntN(4)
	neighbours = func(e, other *end) (all []vnet.Neighbour) {
		for _, family := range []int{4, 6} {
			if !e.link.prefix(family).IsValid() {
				continue
			}
			b := vnet.Neighbour{Interface: e.name, Address: other.address(family),
				MAC: mac(e.link.number, other.place)}
			if kind == 0 {
				continue
			}
			if kind == 1 {
				switch g.rng.IntN(4) {
				case 0:
					continue
				case 1:
					b.State = unix.NUD_STALE
				}
			}
			all = append(all, b)
		}
		return all
	}
	return neighbours, kind > 1
}

// String is the case for a person: what is needed to do it by hand.
func (c *testcase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d nodes, %d links\n", c.seed, len(c.plan.Nodes), len(c.plan.Links))
	for i, l := range c.plan.Links {
		fmt.Fprintf(&b, "link %d:", i+1)
		for _, e := range l.Ends {
			fmt.Fprintf(&b, " %s:%s mtu %d %s %v", e.Node, e.Interface, e.MTU, e.MAC, e.Addresses)
			if !e.Shape.IsZero() {
				fmt.Fprintf(&b, " %+v", e.Shape)
			}
			if e.NIC {
				b.WriteString(" NIC")
			}
		}
		b.WriteByte('\n')
	}
	for _, n := range c.plan.Nodes {
		fmt.Fprintf(&b, "%s: loopbacks %v\n", n.Name, n.Loopbacks)
		for _, o := range n.Objects {
			fmt.Fprintf(&b, "  nexthop %v\n", o)
		}
		for _, r := range n.Routes {
			fmt.Fprintf(&b, "  route %v\n", r)
		}
		for _, m := range n.Neighbours {
			fmt.Fprintf(&b, "  neighbour %v\n", m)
		}
	}
	for i, s := range c.steps {
		for _, e := range s.events {
			fmt.Fprintf(&b, "step %d: %v\n", i+1, e)
		}
		for _, f := range s.frames {
			fmt.Fprintf(&b, "step %d: %s sends #%d (%s): %s\n", i+1, f.host, f.id, f.note, describe(f.data))
		}
	}
	return b.String()
}

func (c *testcase) frames() (n int) {
	for _, s := range c.steps {
		n += len(s.frames)
	}
	return n
}

// lanAddress is the MAC address of a host on a LAN, or nil.
func (c *testcase) lanAddress(host string) net.HardwareAddr {
	for _, l := range c.plan.Links {
		for _, e := range l.Ends {
			if e.Node == host && l.LAN {
				return e.MAC
			}
		}
	}
	return nil
}
