package fastpath

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
)

// counts keeps routers' counters from going back. The programs count punts under numbers: a router that is read again
// gets another one, and another server gives all of them others. So what was counted goes on under the new number, in
// the kernel, where the next server finds it. What the mirror counts is lost with the server, and with nothing else.
type counts struct {
	log *slog.Logger

	mu      sync.Mutex         // guards what follows; nothing is called with it held but path
	path    machine.DataPath   // nil: there is none
	routers map[string]counted // by the mirror's name
}

type counted struct {
	slice  uint16
	number uint32            // under which the programs count; 0: they do not
	before map[string]uint64 // punts, while they do not
	mirror mirror.Counters   // until the mirror forgot the router last
}

func newCounts(log *slog.Logger) *counts { return &counts{log: log, routers: make(map[string]counted)} }

// open uses another data path, or none (nil).
func (c *counts) open(path machine.DataPath) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, r := range c.routers {
		r.stop(c, name)
		c.routers[name] = r
	}
	c.path = path
}

// keep forgets the slices of which there is no router any more: another slice may get the number of one.
func (c *counts) keep(want map[sliver.ID]Router) {
	slices := make(map[uint16]bool)
	for id := range want {
		slices[id.Slice] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.routers, func(_ string, r counted) bool { return !slices[r.slice] })
}

// adopt takes over a router that this server does not know, before the mirror gives it a number of its own.
func (c *counts) adopt(id sliver.ID, r Router) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.routers[id.String()]; known {
		return
	}
	now := counted{slice: id.Slice}
	for _, port := range r.Legs {
		if c.path == nil || now.number != 0 {
			break
		}
		// All ports of a router have the same number; some may be no legs. What cannot be read counts from
		// zero.
		now.number, _ = c.path.Router(port)
	}
	c.routers[id.String()] = now
}

// live is mirror.Config.Live.
func (c *counts) live(name string, number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.routers[name]
	if c.path == nil || r.number == number {
		return
	}
	r.stop(c, name)
	if err := c.path.SetPunts(number, r.before); err != nil {
		c.log.Warn("go on with the counters of a router", "router", name, "error", err)
	}
	r.number = number
	c.routers[name] = r
}

// gone is mirror.Config.Gone.
func (c *counts) gone(name string, number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, known := c.routers[name]; known && r.number == number {
		r.stop(c, name)
		c.routers[name] = r
	}
}

// stop ends counting under the router's number. c.mu is held.
func (r *counted) stop(c *counts, name string) {
	if r.number == 0 || c.path == nil {
		return
	}
	before, err := c.path.Punts(context.Background(), r.number)
	if err != nil {
		c.log.Warn("read the counters of a router", "router", name, "error", err)
	} else {
		r.before = before
	}
	r.number = 0
}

// ended adds what the mirror counted of a router that it is about to forget.
func (c *counts) ended(id sliver.ID, m mirror.Counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, known := c.routers[id.String()]; known {
		r.mirror = r.mirror.Plus(m)
		c.routers[id.String()] = r
	}
}

// of gives all that was counted, with what the mirror has counted since it was set.
func (c *counts) of(id sliver.ID, now mirror.Counters) mirror.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routers[id.String()].mirror.Plus(now)
}

func (c *counts) punts(ctx context.Context, id sliver.ID) (map[string]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.routers[id.String()]
	if r.number == 0 || c.path == nil {
		return maps.Clone(r.before), nil
	}
	return c.path.Punts(ctx, r.number)
}
