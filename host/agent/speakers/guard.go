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
	avoid  shunned
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
			avoid := r.unguard(index)
			wait = r.guard(want, index, end, now, known.of(want), avoid)
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
	case g.up:
		return time.Time{}, true
	case now.Before(g.notYet):
		return g.notYet, true
	default:
		if !g.failed { // a router on its way does not answer
			g.avoid.addAll(g.path, now)
		}
		return time.Time{}, false
	}
}

// guard asks for the bypass round a link, to the router behind it: by what is to be avoided only if there is no other
// way.
func (r *router) guard(want *Router, index int, end netip.Addr, now time.Time, known *te.Database,
	avoid shunned) time.Time {
	local := want.Interfaces[index].Prefix.Addr()
	g := &guard{failed: true, notYet: now.Add(longestPause), avoid: avoid}
	q := te.Request{From: want.ID, To: end, IGP: true, Avoid: te.Avoid{Links: append(avoid.links(now), local)}}
	path, err := known.Path(q)
	if err != nil && len(q.Avoid.Links) > 1 {
		q.Avoid.Links = []netip.Addr{local}
		path, err = known.Path(q)
	}
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

// unguard tears the bypass round a link down, if there is one, and gives the links that another one is to avoid.
func (r *router) unguard(index int) shunned {
	r.mu.Lock()
	g := r.guards[index]
	delete(r.guards, index)
	r.mu.Unlock()
	if g == nil {
		return nil
	}
	if g.key == (rsvp.Key{}) {
		return g.avoid
	}
	if err := r.speaker.Remove(g.key); err != nil && !errors.Is(err, rsvp.ErrNoLSP) {
		r.all.log.Error("tear a bypass down", "router", r.id.String(), "error", err)
	}
	return g.avoid
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
		case rsvp.Failed: // one that is up stays so, unless Down comes, too
			g.avoid.refused(&g.path, e.Error.Node, r.want.Network, r.all.now())
			if !g.up && !g.failed {
				g.fail(r.all.now())
				r.all.again()
			}
		case rsvp.Down:
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
