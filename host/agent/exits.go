package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/hosts"
)

// isBound reports whether packets of tunnels leave by the underlays alone: root named these; or one is a VPN, whose packets the machine's routes
// lead elsewhere while it is down, perhaps by the default route, and there they would be in clear. Other machines' routes are left alone: they may
// well lead out by another network card to the same network.
func isBound(c *Cluster, underlays []hosts.Underlay) bool {
	return len(c.Interfaces) > 0 || slices.ContainsFunc(underlays, hosts.Underlay.IsVPN)
}

// offUnderlay is how the data path calls what it keeps back (reasons.h).
const offUnderlay = "off underlay"

// straysFor is how long after the last packet was kept back it counts as trouble.
const straysFor = 30 * time.Second

// strays watches how many packets are kept back because the machine's routes lead them out of the underlay. Its zero value has seen nothing.
type strays struct {
	seen  bool
	count uint64
	last  time.Time
}

// look takes the counter as it is now, and reports whether packets are kept back these days.
func (s *strays) look(count uint64, now time.Time) bool {
	if s.seen && count > s.count {
		s.last = now
	}
	s.seen, s.count = true, count
	return !s.last.IsZero() && now.Sub(s.last) < straysFor
}

// straysTrouble words it.
func straysTrouble(underlays []hosts.Underlay) string {
	var names []string
	for _, u := range underlays {
		if u.Name != noUnderlay {
			names = append(names, u.Name)
		}
	}
	by := "by an interface that is none of its underlay"
	if len(names) > 0 {
		by = "by another interface than " + strings.Join(names, " or ")
	}
	return fmt.Sprintf("packets of tunnels are kept back (%s): its routes lead them out %s; `ip route get ADDRESS` there, with another host's address, says by which",
		offUnderlay, by)
}

// HostTrouble is an event of no slice: something is wrong with a host's tunnels, or no longer.
const HostTrouble events.Kind = "host-trouble"

// noteStrays has people told when packets begin to be kept back, and when that has ended.
func (a *Agent) noteStrays(h *hosts.Host, count uint64, now time.Time) {
	had := a.astray
	a.astray = a.strays.look(count, now)
	if a.astray {
		h.Trouble = straysTrouble(h.Underlays)
	}
	switch {
	case a.astray && !had:
		a.cfg.Log.Warn("packets of tunnels are kept back: the machine's routes lead them out by no interface of the underlay")
		a.cfg.Events.Publish(events.Event{Kind: HostTrouble, Message: "host " + h.Name + ": " + h.Trouble})
	case had && !a.astray:
		a.cfg.Log.Info("no packets of tunnels are kept back any more")
		a.cfg.Events.Publish(events.Event{Kind: HostTrouble, Message: "host " + h.Name + ": no packets of tunnels are kept back any more"})
	}
}
