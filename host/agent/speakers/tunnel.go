package speakers

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

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
	backoff             // since it was up
	avoid    shunned
	resume   []message.Step // the route by which packets go since before the speaker began; nil: not known, or used
}

// version is an LSP as it was asked for.
type version struct {
	request rsvp.Request
	number  uint16 // of the network's LSP
	hops    []slice.Hop
	path    *te.Path
	up      bool
	around  bool   // it is up, and goes round a failure
	leads   bool   // packets go by its labels since before the speaker began, though it is not up again yet
	failed  string // why it is not up, or does not come up
	route   []message.Record
	since   time.Time
}

// LSP IDs are made of the LSP's number and of how often another way was tried.
const attempts = 1 << 4

func lspID(number, attempt uint16) uint16 { return number*attempts | attempt%attempts }

// setUpTime is how long it may take until an LSP comes up, or an error comes; else a router does not answer.
const setUpTime = 10 * time.Second

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
	case !changed && newest.up && !newest.around:
		return nil, nil, due
	case !changed && !newest.up && newest.failed == "" && now.Before(newest.since.Add(setUpTime)):
		return nil, nil, newest.since.Add(setUpTime)
	}
	if !changed && newest.failed == "" && !newest.up {
		t.silent(newest, now)
	}
	switch {
	case now.Before(t.notYet) && t.asked == l.Signal.Number:
		return nil, nil, t.notYet
	}
	if newest != nil && newest.number != l.Signal.Number && t.asked != l.Signal.Number {
		clear(t.avoid) // a user may know that what failed is mended
	}
	t.asked = l.Signal.Number
	leads := t.resume != nil
	path, err := t.route(r, l, known(), now)
	if err != nil {
		t.fail(err.Error(), now)
		return nil, nil, t.notYet
	}
	if t.attempt++; newest == nil || newest.number != l.Signal.Number {
		t.attempt = 0
	}
	key := rsvp.Key{Session: session, Sender: r.ID, LSP: lspID(l.Signal.Number, t.attempt)}
	for slices.Contains(t.keys(), key) {
		t.attempt++
		key.LSP = lspID(l.Signal.Number, t.attempt)
	}
	next = &version{number: l.Signal.Number, hops: l.Hops, path: &path, leads: leads, since: now,
		request: requestFor(l, key, path.Route())}
	for _, v := range t.versions {
		if (v.up || v.leads) && v.request.Key.Session == session {
			next.request.Replaces = v.request.Key.LSP
		} else {
			remove = append(remove, v.request.Key)
		}
	}
	t.problem = ""
	t.backOff(now)
	return next, remove, now.Add(setUpTime)
}

// requestFor is what the speaker is asked for.
func requestFor(l *slice.LSP, key rsvp.Key, route []message.Step) rsvp.Request {
	var protect uint8
	if l.Signal.Protect == slice.ProtectLink {
		protect = message.LocalProtection
	}
	return rsvp.Request{Key: key, Route: route, Bandwidth: bytesPerSecond(l.Signal.Bandwidth), Record: true,
		Attribute: message.SessionAttribute{Setup: l.Signal.Setup, Holding: l.Signal.Holding, Name: l.Name,
			Flags: message.SharedStyle | message.LabelRecording | protect}}
}

// silent notes that neither a reservation nor an error has come: the routers of the way are avoided.
func (t *tunnel) silent(v *version, now time.Time) {
	v.failed = "a router on its way does not answer"
	t.avoid.addAll(*v.path, now)
}

// asks reports whether a version is what is wanted now.
func (v *version) asks(l *slice.LSP) bool {
	a, q := v.request.Attribute, l.Signal
	return v.number == q.Number && v.request.Bandwidth == bytesPerSecond(q.Bandwidth) && a.Setup == q.Setup &&
		a.Holding == q.Holding && slices.Equal(v.hops, l.Hops)
}

// route chooses the way: at first that which packets have, then that of package te.
func (t *tunnel) route(r *Router, l *slice.LSP, known *te.Database, now time.Time) (te.Path, error) {
	if t.resume != nil {
		session, _ := sessionOf(r.Network, l)
		q := te.Request{From: session.Extended, To: session.End, Via: t.resume, IGP: true}
		t.resume = nil
		if path, err := known.Path(q); err == nil {
			return path, nil
		}
	}
	return route(r.Network, r.Overrides, l, known, t.avoid.links(now), t.held())
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
	t.backOff(now)
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

// handle takes an event in, and reports whether the tunnel is to be looked at.
func (t *tunnel) handle(e rsvp.Event, network *slice.Slice, now time.Time) bool {
	v := t.version(e.Key)
	if v == nil {
		return false
	}
	switch e.Kind {
	case rsvp.Up:
		v.up, v.around, v.leads, v.failed, v.route, t.tries = true, false, false, "", e.Route, 0
		if v == t.newest() {
			t.problem = ""
		}
	case rsvp.Down:
		v.up, v.around, v.leads = false, false, false
		v.failed = cmp.Or(v.failed, "the reservation was taken back")
	case rsvp.Failed:
		v.failed = describe(e, network)
		t.avoid.refused(v.path, e.Error.Node, network, now)
		if v.up || t.tries <= 1 { // by another way at once; then with pauses
			t.notYet = time.Time{}
		}
	case rsvp.Repaired: // another way is asked for at once, which replaces it
		v.around, t.notYet = true, time.Time{}
		t.avoid.refused(v.path, e.Error.Node, network, now)
	case rsvp.Replaced:
		t.forget(e.Key)
	default:
		return false
	}
	return true
}

// version gives what was asked for by a key; nil: nothing was.
func (t *tunnel) version(k rsvp.Key) *version {
	for _, v := range t.versions {
		if v.request.Key == k {
			return v
		}
	}
	return nil
}

// isUp reports whether packets have an LSP to go by.
func (t *tunnel) isUp() bool {
	return slices.ContainsFunc(t.versions, func(v *version) bool { return v.up })
}

// summary says what an event that was taken in has changed, for people; empty: nothing. was: what it is about was up.
func (t *tunnel) summary(e rsvp.Event, was bool, network *slice.Slice) string {
	switch {
	case e.Kind == rsvp.Up:
		return "is up by " + wayOf(e.Route, network)
	case e.Kind == rsvp.Repaired:
		return "goes round a failure: " + describe(e, network)
	case e.Kind == rsvp.Failed:
		what := "is not set up: "
		switch {
		case was:
			what = "is broken: "
		case t.isUp():
			what = "stays as it was: "
		}
		return what + describe(e, network)
	case was && !t.isUp():
		return "is down"
	}
	return ""
}

// wayOf names the routers of a recorded route.
func wayOf(route []message.Record, network *slice.Slice) string {
	var all []string
	for _, rec := range route {
		if !rec.IsLabel && rec.Flags&message.NodeID == 0 { // that of its interface follows
			node, _, _ := strings.Cut(routerOf(network, rec.Addr), ":")
			all = append(all, cmp.Or(node, rec.Addr.String()))
		}
	}
	return strings.Join(all, ", ")
}

// describe says what a router has reported.
func describe(e rsvp.Event, network *slice.Slice) string {
	text := message.ErrorText(e.Error.Code, e.Error.Value)
	if e.Said != "" {
		text += " (" + strings.Map(printable, e.Said) + ")"
	}
	who := cmp.Or(routerOf(network, e.Error.Node), e.Error.Node.String())
	return fmt.Sprintf("%s says: %s", who, text)
}

// printable keeps what others have sent from doing anything to terminals.
func printable(c rune) rune {
	if !unicode.IsPrint(c) {
		return '?'
	}
	return c
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
