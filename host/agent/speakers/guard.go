package speakers

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// guard is the bypass round a link of a router (RFC 4090), by which LSPs go when the link fails. Each router of a
// network with an LSP that wants this has one for each of its links to one other router: the ingress does not say to
// others where they are needed.
type guard struct {
	key    rsvp.Key
	path   te.Path
	up     bool
	failed bool
	notYet time.Time // it is not asked for again before: when it has failed, or when it is not up by then
}

// bypassTunnel is the tunnel number of all guards: that of no LSP of the network (slice.LSP.ID).
const bypassTunnel = 0

// isBypass tells guards from LSPs of the network.
func isBypass(k rsvp.Key) bool { return k.Session.Tunnel == bypassTunnel }

// guardLinks asks for bypasses that are not there or have failed, and tears those down that are not wanted any more. It
// tells when something is to be tried again; zero: nothing is.
func (r *router) guardLinks(want *Router, now time.Time, known databases) time.Time {
	var due due
	for index, is := range want.Interfaces {
		end, ok := want.across(is)
		if !want.Guard || !ok {
			r.unguard(index)
			continue
		}
		wait, guarded := r.guarded(index, now)
		if !guarded {
			r.unguard(index)
			wait = r.guard(want, index, end, now, known.of(want))
		}
		due.at(wait)
	}
	return due.Time
}

// guarded reports whether nothing is to be done for the bypass round a link before a time; zero: before something
// happens.
func (r *router) guarded(index int, now time.Time) (until time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch g := r.guards[index]; {
	case g == nil:
		return time.Time{}, false
	case g.up && !g.failed:
		return time.Time{}, true
	default:
		return g.notYet, now.Before(g.notYet)
	}
}

// guard asks for the bypass round a link, to the router behind it.
func (r *router) guard(want *Router, index int, end netip.Addr, now time.Time, known *te.Database) time.Time {
	local := want.Interfaces[index].Prefix.Addr()
	g := &guard{failed: true, notYet: now.Add(longestPause)}
	path, err := known.Path(te.Request{From: want.ID, To: end, IGP: true,
		Avoid: te.Avoid{Links: []netip.Addr{local}}})
	if err == nil {
		g.path, g.failed, g.notYet = path, false, now.Add(setUpTime)
		session := message.Session{End: end, Tunnel: bypassTunnel, Extended: local}
		g.key = rsvp.Key{Session: session, Sender: want.ID, LSP: 1}
	}
	r.mu.Lock()
	r.guards[index] = g
	r.mu.Unlock()
	if err == nil {
		err = r.speaker.Add(rsvp.Request{Key: g.key, Route: path.Route(), Record: true, Bypass: index,
			Attribute: message.SessionAttribute{Setup: 7, Name: "round " + want.Interfaces[index].Name}})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		g.fail(now)
	}
	return g.notYet
}

func (g *guard) fail(now time.Time) { g.up, g.failed, g.notYet = false, true, now.Add(longestPause) }

// unguard tears the bypass round a link down, if there is one.
func (r *router) unguard(index int) {
	r.mu.Lock()
	g := r.guards[index]
	delete(r.guards, index)
	r.mu.Unlock()
	if g == nil || g.key == (rsvp.Key{}) {
		return
	}
	if err := r.speaker.Remove(g.key); err != nil && !errors.Is(err, rsvp.ErrNoLSP) {
		r.all.log.Error("tear a bypass down", "router", r.id.String(), "error", err)
	}
}

// hearGuard takes an event of a bypass in; r.mu is held.
func (r *router) hearGuard(e rsvp.Event) {
	for _, g := range r.guards {
		if g.key != e.Key {
			continue
		}
		switch e.Kind {
		case rsvp.Up:
			g.up, g.failed = true, false
		case rsvp.Failed, rsvp.Down:
			if !g.failed {
				g.fail(r.all.now())
				r.all.again()
			}
		}
	}
}

// across gives the router behind an interface, by its own address; false: there is none, or several.
func (r *Router) across(is Interface) (netip.Addr, bool) {
	if len(is.Neighbours) != 1 {
		return netip.Addr{}, false
	}
	for a := range is.Neighbours {
		name, _, _ := strings.Cut(routerOf(r.Network, a), ":")
		if n := r.Network.Node(name); n != nil {
			return n.Address(false)
		}
	}
	return netip.Addr{}, false
}
