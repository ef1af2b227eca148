package member

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/hosts"
)

// offUnderlay is the data path's name for packets that it drops because the machine's routes lead them out of the
// underlay (reasons.h).
const offUnderlay = "off underlay"

// straysFor is how long after the last such packet there is a problem.
const straysFor = 30 * time.Second

// HostTrouble is an event of no slice: something is wrong with a host's tunnels, or no longer.
const HostTrouble events.Kind = "host-trouble"

// strays watches how many packets are dropped because the machine's routes lead them out of the underlay.
type strays struct {
	log    *slog.Logger
	events *events.Bus

	seen   bool // a counter was read before
	count  uint64
	last   time.Time // when the counter grew
	active bool      // packets were dropped lately
}

// look takes the counter as it is now, and reports whether packets were dropped lately.
func (s *strays) look(count uint64, now time.Time) bool {
	if s.seen && count > s.count {
		s.last = now
	}
	s.seen, s.count = true, count
	return !s.last.IsZero() && now.Sub(s.last) < straysFor
}

// describe takes the counter as it is now, writes the problem into the description of the host, and publishes when it
// begins and ends.
func (s *strays) describe(h *hosts.Host, count uint64, now time.Time) {
	before := s.active
	s.active = s.look(count, now)
	if s.active {
		h.Trouble = straysProblem(h.Underlays)
	}
	switch {
	case s.active && !before:
		s.log.Warn("packets of tunnels are kept back: " +
			"the machine's routes lead them out by no interface of the underlay")
		s.events.Publish(events.Event{Kind: HostTrouble, Message: "host " + h.Name + ": " + h.Trouble})
	case before && !s.active:
		s.log.Info("no packets of tunnels are kept back any more")
		s.events.Publish(events.Event{
			Kind: HostTrouble, Message: "host " + h.Name + ": no packets of tunnels are kept back any more",
		})
	}
}

// straysProblem words it.
func straysProblem(underlays []hosts.Underlay) string {
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
	return fmt.Sprintf("packets of tunnels are kept back (%s): its routes lead them out %s; "+
		"`ip route get ADDRESS` there, with another host's address, says by which", offUnderlay, by)
}
