package speakers

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// tunnel is an LSP of the network at its ingress: what was asked for, one after the other, of which at most one is up
// that another is to replace.
type tunnel struct {
	versions []*version // the oldest first
	attempt  uint16     // of the last one
	asked    uint16     // the number that a path was looked for last
	problem  string     // why the last one could not be asked for
	tries    int        // since it was up
	notYet   time.Time  // it is not tried again before
	avoid    map[netip.Addr]time.Time
	resume   []message.Step // the route by which packets go since before the speaker began; nil: not known, or used
}

// version is an LSP as it was asked for.
type version struct {
	request rsvp.Request
	number  uint16 // of the network's LSP
	hops    []slice.Hop
	path    *te.Path
	up      bool
	failed  string // why it is not up, or does not come up
	route   []message.Record
	since   time.Time
}

// LSP IDs are made of the LSP's number and of how often another way was tried.
const attempts = 1 << 4

func lspID(number, attempt uint16) uint16 { return number*attempts | attempt%attempts }

// How long another way is preferred to one that has failed, and how long an LSP that has failed is not asked for again:
// the first time, and at most.
const (
	avoidFor     = 30 * time.Second
	pause        = time.Second
	longestPause = 20 * time.Second
)

// next gives what is to be asked for, if anything, what is to be torn down before, and when the tunnel is to be looked
// at again, because it is not as it is wanted; zero: when something happens.
func (t *tunnel) next(r *Router, l *slice.LSP, now time.Time, known func() *te.Database) (next *version,
	remove []rsvp.Key, due time.Time) {
	newest := t.newest()
	session, ok := sessionOf(r.Network, l)
	changed := newest == nil || newest.request.Key.Session != session || !newest.asks(l)
	switch {
	case !ok:
		t.problem, remove = "one of its ends has no IPv4 address", t.keys()
		t.versions = nil
		return nil, remove, due
	case !changed && (newest.up || newest.failed == ""):
		return nil, nil, due
	case now.Before(t.notYet) && t.asked == l.Signal.Number:
		return nil, nil, t.notYet
	}
	if newest != nil && newest.number != l.Signal.Number && t.asked != l.Signal.Number {
		clear(t.avoid) // a user may know that what failed is mended
	}
	t.asked = l.Signal.Number
	maps.DeleteFunc(t.avoid, func(_ netip.Addr, until time.Time) bool { return now.After(until) })
	path, err := t.route(r, l, known())
	if err != nil {
		t.fail(err.Error(), now)
		return nil, nil, t.notYet
	}
	if t.attempt++; newest == nil || newest.number != l.Signal.Number {
		t.attempt = 0
	}
	next = &version{number: l.Signal.Number, hops: l.Hops, path: &path, since: now, request: rsvp.Request{
		Key:   rsvp.Key{Session: session, Sender: r.ID, LSP: lspID(l.Signal.Number, t.attempt)},
		Route: path.Route(), Bandwidth: bytesPerSecond(l.Signal.Bandwidth), Record: true,
		Attribute: message.SessionAttribute{Setup: l.Signal.Setup, Holding: l.Signal.Holding, Name: l.Name,
			Flags: message.SharedStyle | message.LabelRecording},
	}}
	for _, v := range t.versions {
		if v.up && v.request.Key.Session == session {
			next.request.Replaces = v.request.Key.LSP
		} else {
			remove = append(remove, v.request.Key)
		}
	}
	for _, k := range remove {
		t.forget(k)
	}
	t.problem = ""
	t.rest(now)
	return next, remove, due
}

// asks reports whether a version is what is wanted now.
func (v *version) asks(l *slice.LSP) bool {
	a, q := v.request.Attribute, l.Signal
	return v.number == q.Number && v.request.Bandwidth == bytesPerSecond(q.Bandwidth) && a.Setup == q.Setup &&
		a.Holding == q.Holding && slices.Equal(v.hops, l.Hops)
}

// route chooses the way: at first that which packets have, then that of package te.
func (t *tunnel) route(r *Router, l *slice.LSP, known *te.Database) (te.Path, error) {
	if t.resume != nil {
		session, _ := sessionOf(r.Network, l)
		q := te.Request{From: session.Extended, To: session.End, Via: t.resume, IGP: true}
		t.resume = nil
		if path, err := known.Path(q); err == nil {
			return path, nil
		}
	}
	return route(r.Network, r.Overrides, l, known, slices.Collect(maps.Keys(t.avoid)), t.held())
}

// held is what the LSP that is up holds, which one that replaces it shares.
func (t *tunnel) held() *te.Held {
	for _, v := range t.versions {
		if v.up && v.path != nil {
			q := &v.request
			return &te.Held{Path: *v.path, Bandwidth: q.Bandwidth, Holding: q.Attribute.Holding}
		}
	}
	return nil
}

func (t *tunnel) newest() *version {
	if len(t.versions) == 0 {
		return nil
	}
	return t.versions[len(t.versions)-1]
}

// fail notes why an LSP cannot be asked for.
func (t *tunnel) fail(why string, now time.Time) {
	t.problem = why
	t.rest(now)
}

// rest lets time pass before the tunnel is tried again: ever more.
func (t *tunnel) rest(now time.Time) {
	t.notYet = now.Add(min(pause<<t.tries, longestPause))
	t.tries = min(t.tries+1, 5)
}

func (t *tunnel) forget(k rsvp.Key) {
	t.versions = slices.DeleteFunc(t.versions, func(v *version) bool { return v.request.Key == k })
}

func (t *tunnel) keys() (all []rsvp.Key) {
	for _, v := range t.versions {
		all = append(all, v.request.Key)
	}
	return all
}

// hear takes an event in, and reports whether the tunnel is to be looked at.
func (t *tunnel) hear(e rsvp.Event, network *slice.Slice) bool {
	i := slices.IndexFunc(t.versions, func(v *version) bool { return v.request.Key == e.Key })
	if i < 0 {
		return false
	}
	v := t.versions[i]
	switch e.Kind {
	case rsvp.Up:
		v.up, v.failed, v.route, t.tries = true, "", e.Route, 0
		if v == t.newest() {
			t.problem = ""
		}
	case rsvp.Down:
		v.up, v.failed = false, cmp.Or(v.failed, "the reservation was taken back")
	case rsvp.Failed:
		v.failed = describe(e.Error, network)
		if strings.Contains(routerOf(network, e.Error.Node), ":") { // an interface of this network
			if t.avoid == nil {
				t.avoid = map[netip.Addr]time.Time{}
			}
			t.avoid[e.Error.Node] = time.Now().Add(avoidFor)
		}
		if v.up || t.tries <= 1 { // by another way at once; then with pauses
			t.notYet = time.Time{}
		}
	case rsvp.Replaced:
		t.forget(e.Key)
	default:
		return false
	}
	return true
}

// isUp reports whether packets have an LSP to go by.
func (t *tunnel) isUp() bool {
	return slices.ContainsFunc(t.versions, func(v *version) bool { return v.up })
}

// news says what an event that was taken in has changed, for people; empty: nothing. was: the tunnel was up before.
func (t *tunnel) news(e rsvp.Event, was bool, network *slice.Slice) string {
	switch {
	case e.Kind == rsvp.Up:
		return "is up by " + wayOf(e.Route, network)
	case e.Kind == rsvp.Failed:
		if was {
			return "is broken: " + describe(e.Error, network)
		}
		return "is not set up: " + describe(e.Error, network)
	case was && !t.isUp():
		return "is down"
	}
	return ""
}

// wayOf names the routers of a recorded route.
func wayOf(route []message.Record, network *slice.Slice) string {
	var all []string
	for _, rec := range route {
		if !rec.IsLabel {
			node, _, _ := strings.Cut(routerOf(network, rec.Addr), ":")
			all = append(all, cmp.Or(node, rec.Addr.String()))
		}
	}
	return strings.Join(all, ", ")
}

// describe says what a router has reported.
func describe(e message.ErrorSpec, network *slice.Slice) string {
	text := message.ErrorText(e.Code, e.Value)
	if name := routerOf(network, e.Node); name != "" {
		return fmt.Sprintf("%s says: %s", name, text)
	}
	return fmt.Sprintf("%s says: %s", e.Node, text)
}

// routerOf names the router that has an address, with the interface where it is one's.
func routerOf(s *slice.Slice, a netip.Addr) string {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, p := range n.Loopbacks {
			if p.Addr() == a {
				return n.Name
			}
		}
		for _, at := range n.Interfaces {
			for _, p := range at.Addresses {
				if p.Addr() == a && n.Kind == slice.Router {
					return n.Name + ":" + at.Name
				}
			}
		}
	}
	return ""
}
