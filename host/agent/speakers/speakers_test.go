package speakers

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// square joins a and d by b, whose links are fast, and by c, whose links are slow.
const square = `name: lab
addressing: {ipv6: false}
nodes:
  a: {routing: ospf}
  b: {routing: ospf}
  c: {routing: ospf}
  d: {routing: ospf}
  pc: {}
links:
  - {ends: [a, b], rate: 100Mbit}
  - {ends: [b, d], rate: 100Mbit}
  - {ends: [a, c], rate: 10Mbit}
  - {ends: [c, d], rate: 10Mbit}
  - [a, pc]
lsps:
  - {name: named, path: ["a:eth2", "c:eth2", d], bandwidth: 1Mbit, to: 10.9.0.0/24, ttl: pipe}
  - {name: free, path: [a, d], bandwidth: 20Mbit, setup_priority: 5, holding_priority: 4}
`

var resolved, seen = agenttest.Resolved, agenttest.Seen

func speaking(t *testing.T, s *slice.Slice, o slice.Overrides, name string, but ...string) *Router {
	t.Helper()
	r := Of(plan.Place{}, []plan.Input{{Spec: s, Overrides: o}}, seen(s, but...))[sliver.ID{Slice: 7, Node: name}]
	if r == nil {
		t.Fatalf("%s does not speak", name)
	}
	return r
}

// at gives an interface of a router by its name.
func (r *Router) at(name string) (index int, is Interface) {
	for i, is := range r.Interfaces {
		if is.Name == name {
			return i, is
		}
	}
	return 0, Interface{}
}

func TestRoutersSpeakAtInterfacesToRouters(t *testing.T) {
	s := resolved(t, square, nil)
	all := Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s))
	if len(all) != 4 {
		t.Errorf("%d speak, want the four routers", len(all))
	}
	a := speaking(t, s, slice.Overrides{}, "a")
	if len(a.Interfaces) != 2 {
		t.Errorf("a speaks at %v, want its two links to routers", a.Interfaces)
	}
	_, toB := a.at("eth1")
	neighbour := s.Node("b").Interface("eth1")
	mac, err := net.ParseMAC(neighbour.MAC)
	if err != nil {
		t.Fatal(err)
	}
	if got := toB.Neighbours[neighbour.Addresses[0].Addr()]; got != [6]byte(mac) {
		t.Errorf("b is at %x, want %s", got, mac)
	}
	// It speaks by its first IPv4 address, whichever it has beside.
	neighbour.Addresses = append([]netip.Prefix{netip.MustParsePrefix("2001:db8::2/64")}, neighbour.Addresses...)
	neighbour.Addresses = append(neighbour.Addresses, netip.MustParsePrefix("192.0.2.2/24"))
	_, toB = speaking(t, s, slice.Overrides{}, "a").at("eth1")
	if _, ok := toB.Neighbours[neighbour.Addresses[1].Addr()]; !ok || len(toB.Neighbours) != 1 {
		t.Errorf("with other addresses b is %v", toB.Neighbours)
	}
	if toB.Bandwidth != 100_000_000 || toB.Down {
		t.Errorf("the link to b is %+v", toB)
	}
	if len(a.LSPs) != 2 || len(speaking(t, s, slice.Overrides{}, "d").LSPs) != 0 {
		t.Error("LSPs begin at another router than a")
	}
	// Without a signalled LSP nobody speaks.
	quiet := resolved(t, square[:strings.Index(square, "lsps:")], nil)
	if all := Of(plan.Place{}, []plan.Input{{Spec: quiet}}, seen(quiet)); len(all) != 0 {
		t.Errorf("%d speak of a network without LSPs", len(all))
	}
}

func TestLinksToNodesThatDoNotRunAreDown(t *testing.T) {
	s := resolved(t, square, nil)
	link := s.Node("a").Interface("eth1").Link
	for name, r := range map[string]*Router{
		"node that does not run": speaking(t, s, slice.Overrides{}, "a", "b"),
		"link that is cut":       speaking(t, s, slice.Overrides{Down: map[string]bool{link: true}}, "a"),
	} {
		_, toB := r.at("eth1")
		if _, toC := r.at("eth2"); !toB.Down || toC.Down {
			t.Errorf("%s: down is %t, and of the other %t", name, toB.Down, toC.Down)
		}
	}
	// What another host has is not known.
	elsewhere := *s
	elsewhere.Nodes = slices.Clone(s.Nodes)
	elsewhere.Node("b").Host = "other"
	at := plan.Place{Host: "here"}
	for i := range elsewhere.Nodes {
		if elsewhere.Nodes[i].Name != "b" {
			elsewhere.Nodes[i].Host = "here"
		}
	}
	all := Of(at, []plan.Input{{Spec: &elsewhere}}, seen(s, "b"))
	if _, toB := all[sliver.ID{Slice: 7, Node: "a"}].at("eth1"); toB.Down {
		t.Error("a link to another host is down, of which nothing is known")
	}
}

func TestEntriesAreWrittenByPort(t *testing.T) {
	s := resolved(t, square, nil)
	c := speaking(t, s, slice.Overrides{}, "c")
	from, toA := c.at("eth1")
	to, toD := c.at("eth2")
	next := s.Node("d").Interface("eth2")
	mac, err := net.ParseMAC(next.MAC)
	if err != nil {
		t.Fatal(err)
	}
	session, _ := sessionOf(s, s.LSP("named"))
	swap := rsvp.Entry{Key: rsvp.Key{Session: session, Sender: session.Extended}, HasIn: true, HasOut: true,
		In: 20_000, Out: 30_000, From: from, Interface: to, Next: next.Addresses[0].Addr()}
	e, err := c.entry(swap)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := c.key(swap)
	if want := (labels.Key{Space: c.Space, Number: 20_000}); !ok || k != want {
		t.Errorf("the entry is of %v, want %v", k, want)
	}
	want := datapath.NHLFE{In: toA.Port, Port: toD.Port, MAC: [6]byte(mac), Push: []datapath.Label{{Label: 30_000}},
		TTL: 255, KeepClass: true} // the pipe, as the network says
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("swap: -want +got:\n%s", diff)
	}
	reserved := swap
	reserved.Bandwidth = 1_250_000
	want.Reserved = true
	if e, err = c.entry(reserved); err != nil || !cmp.Equal(want, e) {
		t.Errorf("swap with a bandwidth, %v: -want +got:\n%s", err, cmp.Diff(want, e))
	}
	pop := swap
	pop.Out = message.ImplicitNull
	if e, err := c.entry(pop); err != nil || e.Push != nil || e.Pop || e.Port != toD.Port {
		t.Errorf("penultimate hop: %+v, %v", e, err)
	}
	repaired := reserved
	repaired.From, repaired.Bypass = 0, 40_000
	want.In, want.Push, want.Bypass = 0, []datapath.Label{{Label: 30_000}, {Label: 40_000}}, true
	if e, err := c.entry(repaired); err != nil || cmp.Diff(want, e) != "" {
		t.Errorf("by a bypass: %v, -want +got:\n%s", err, cmp.Diff(want, e))
	}
	repaired.Out, want.Push = message.ImplicitNull, []datapath.Label{{Label: 40_000}}
	if e, err := c.entry(repaired); err != nil || cmp.Diff(want, e) != "" {
		t.Errorf("the penultimate hop by a bypass: %v, -want +got:\n%s", err, cmp.Diff(want, e))
	}
	last := rsvp.Entry{HasIn: true, In: 20_001, From: from}
	if e, err := c.entry(last); err != nil || !e.Pop || !e.Uniform || e.In != toA.Port || e.Port != 0 {
		t.Errorf("egress: %+v, %v", e, err)
	}
	first := rsvp.Entry{Key: swap.Key, HasOut: true, Out: 30_000, Interface: to, Next: swap.Next}
	if k, ok := c.key(first); !ok || !k.FTN || k.Number != ftnOf(s.LSP("named").ID) {
		t.Errorf("ingress: %v", k)
	}
	first.Bandwidth = 1_250_000
	s.LSP("named").Excess = slice.Drop
	measured := datapath.Reservation{Rate: 1_250_000, Burst: 125_000, Drop: true}
	if e, err := c.entry(first); err != nil || !e.Reserved || e.Reservation != measured {
		t.Errorf("ingress with a bandwidth: %+v, %v", e, err)
	}
	for name, wrong := range map[string]func(*rsvp.Entry){
		"no such neighbour": func(e *rsvp.Entry) { e.Next = netip.MustParseAddr("10.9.9.9") },
		"no way in":         func(e *rsvp.Entry) { e.From = 999 },
		"no way out":        func(e *rsvp.Entry) { e.Interface = 999 },
	} {
		e := swap
		wrong(&e)
		if _, err := c.entry(e); err == nil {
			t.Errorf("%s: it is written", name)
		}
	}
}

// LSPs can reserve what a link has, without what its classes have reserved.
func TestLinksHaveARateToReserve(t *testing.T) {
	for name, tt := range map[string]struct {
		shape slice.Shape
		want  unit.Rate
	}{
		"nothing": {slice.Shape{}, DefaultBandwidth},
		"rate":    {slice.Shape{Rate: 100e6}, 100e6},
		"classes": {slice.Shape{Rate: 100e6, Classes: []slice.Class{{Reserve: 30e6}, {Reserve: 10e6}, {}}}, 60e6},
		"police":  {slice.Shape{Rate: 100e6, Police: slice.Policer{Rate: 20e6}}, 20e6},
		"policed": {slice.Shape{Police: slice.Policer{Rate: 20e6}}, 20e6},
	} {
		if got := reservable(tt.shape); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// While two versions share what they have reserved, packets are measured by that of the one which they go by.
func TestPacketsAreMeasuredByTheirOwnVersion(t *testing.T) {
	s := resolved(t, square, nil)
	want := speaking(t, s, slice.Overrides{}, "a")
	l := s.LSP("free")
	v, _, _ := new(tunnel).next(want, l, time.Now(), func() *te.Database { return empty(want) })
	r := &router{want: want, tunnels: map[string]*tunnel{l.Name: {versions: []*version{v}}}}
	if got, ok := r.askedFor(v.request.Key); !ok || got != bytesPerSecond(l.Signal.Bandwidth) {
		t.Errorf("%d bytes a second, %t", got, ok)
	}
	other := v.request.Key
	other.LSP++
	if _, ok := r.askedFor(other); ok {
		t.Error("a version that nobody asked for has a bandwidth")
	}
}

// What a speaker has installed is what its successor takes over.
func TestEntriesAreTakenOverAsTheyWere(t *testing.T) {
	s := resolved(t, square, nil)
	a, c := speaking(t, s, slice.Overrides{}, "a"), speaking(t, s, slice.Overrides{}, "c")
	from, _ := c.at("eth1")
	to, _ := c.at("eth2")
	out, _ := a.at("eth2")
	session, _ := sessionOf(s, s.LSP("named"))
	key := rsvp.Key{Session: session, Sender: a.ID, LSP: lspID(1, 0)}
	next := func(node, name string) netip.Addr { return s.Node(node).Interface(name).Addresses[0].Addr() }
	for name, tt := range map[string]struct {
		router *Router
		entry  rsvp.Entry
	}{
		"push": {a, rsvp.Entry{Key: key, HasOut: true, Out: 20_000, Interface: out, Next: next("c", "eth1"),
			Shared: true}},
		"swap": {c, rsvp.Entry{HasIn: true, HasOut: true, In: 20_000, Out: 30_000, From: from, Interface: to,
			Next: next("d", "eth2")}},
		"pop": {c, rsvp.Entry{HasIn: true, HasOut: true, In: 20_000, Out: message.ImplicitNull, From: from,
			Interface: to, Next: next("d", "eth2")}},
		"deliver":            {c, rsvp.Entry{HasIn: true, In: 20_000, From: from}},
		"from any interface": {c, rsvp.Entry{HasIn: true, In: 20_000}},
		"by a bypass": {c, rsvp.Entry{HasIn: true, HasOut: true, In: 20_000, Out: 30_000, Bypass: 40_000,
			Interface: to, Next: next("d", "eth2")}},
	} {
		k, _ := tt.router.key(tt.entry)
		is, err := tt.router.entry(tt.entry)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := tt.router.adopted(k, is)
		if diff := cmp.Diff(tt.entry, got, cmpopts.EquateComparable(netip.Addr{})); !ok || diff != "" {
			t.Errorf("%s: %t, -want +got:\n%s", name, ok, diff)
		}
	}
	is := datapath.NHLFE{In: 9999, Pop: true}
	if _, ok := c.adopted(labels.Key{Space: c.Space, Number: 20_000}, is); ok {
		t.Error("an entry of a port that is gone is taken over")
	}
}

func TestLabelsThatLeadOnAreTheFirstRoute(t *testing.T) {
	s := resolved(t, square, nil)
	all := Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s))
	node := func(name string) *Router { return all[sliver.ID{Slice: 7, Node: name}] }
	to := func(from, iface, node, at string, push uint32) datapath.NHLFE {
		_, is := all[sliver.ID{Slice: 7, Node: from}].at(iface)
		mac, err := net.ParseMAC(s.Node(node).Interface(at).MAC)
		if err != nil {
			t.Fatal(err)
		}
		return datapath.NHLFE{Port: is.Port, MAC: [6]byte(mac), Push: []datapath.Label{{Label: push}}}
	}
	l := s.LSP("free")
	first := labels.Key{Space: node("a").Space, Number: ftnOf(l.ID), FTN: true}
	last := labels.Key{Space: node("d").Space, Number: 30_000}
	speakers := &Speakers{wanted: all, entries: map[labels.Key]owner{
		first:                                    {entry: to("a", "eth2", "c", "eth1", 20_000)},
		{Space: node("c").Space, Number: 20_000}: {entry: to("c", "eth2", "d", "eth2", 30_000)},
		last:                                     {entry: datapath.NHLFE{Pop: true}},
	}}
	var got []string
	for _, step := range speakers.trace(node("a"), l) {
		got = append(got, routerOf(s, step.Prefix.Addr()))
	}
	if want := []string{"c:eth1", "d:eth2"}; !slices.Equal(got, want) {
		t.Errorf("the labels lead by %v, want %v", got, want)
	}
	tunnel := tunnel{resume: speakers.trace(node("a"), l)}
	next, _, _ := tunnel.next(node("a"), l, time.Now(), func() *te.Database { return empty(node("a")) })
	if by := strings.Join(next.path.Routers(), " "); by != "a c d" { // whatever is reserved, and would be shorter
		t.Errorf("it is asked for by %s", by)
	}
	delete(speakers.entries, last)
	if got := speakers.trace(node("a"), l); got != nil {
		t.Errorf("labels that end half-way are the route %v", got)
	}
}

// A router that is switched off is gone wherever it is, and so is a link that is down: also for an LSP that reserves
// nothing.
func TestPathsGoRoundWhatIsGone(t *testing.T) {
	s := resolved(t, square, nil)
	l := *s.LSP("free")
	l.Signal = &slice.Signal{Number: 1, Setup: 7, Holding: 7}
	off := slice.Overrides{Power: map[string]slice.Power{"b": slice.PowerOff}}
	elsewhere := *s
	elsewhere.Nodes = slices.Clone(s.Nodes)
	for i := range elsewhere.Nodes {
		elsewhere.Nodes[i].Host = map[bool]string{true: "there", false: "here"}[elsewhere.Nodes[i].Name == "b"]
	}
	all := Of(plan.Place{Host: "here"}, []plan.Input{{Spec: &elsewhere, Overrides: off}}, seen(s, "b"))
	if _, toB := all[sliver.ID{Slice: 7, Node: "a"}].at("eth1"); !toB.Down {
		t.Error("the link to a router that is switched off on another host is up")
	}
	down := func(router, iface string) (*[te.Priorities]uint64, bool) {
		return nil, router == "a" && iface == "eth1"
	}
	for name, d := range map[string]*te.Database{
		"switched off": database(s, &off, nothing), "link down": database(s, &slice.Overrides{}, down),
	} {
		p, err := route(s, &slice.Overrides{}, &l, d, nil, nil)
		if by := strings.Join(p.Routers(), " "); by != "a c d" {
			t.Errorf("%s: it goes by %s, %v", name, by, err)
		}
	}
}

// A router that says nothing is avoided after a while.
func TestAnLSPDoesNotWaitForEver(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	l := *s.LSP("free")
	l.Signal = &slice.Signal{Number: 1, Setup: 7, Holding: 7}
	var tunnel tunnel
	now := time.Now()
	next := func() (*version, time.Time) {
		v, _, due := tunnel.next(r, &l, now, func() *te.Database { return empty(r) })
		if v != nil {
			tunnel.versions = append(tunnel.versions, v)
		}
		return v, due
	}
	first, due := next()
	if by := strings.Join(first.path.Routers(), " "); by != "a b d" || !due.Equal(now.Add(setUpTime)) {
		t.Fatalf("asked for by %s, due in %s", by, due.Sub(now))
	}
	now = now.Add(setUpTime / 2)
	if v, _ := next(); v != nil {
		t.Error("asked for again before its time is over")
	}
	now = now.Add(setUpTime)
	second, _ := next()
	if second == nil || strings.Join(second.path.Routers(), " ") != "a c d" {
		t.Errorf("asked for %+v, want the other way", second)
	}
}

// What packets go by since before a speaker began stays until another version is up.
func TestARefusalAfterARestartLeavesTheLabels(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	l, now := s.LSP("free"), time.Now()
	tunnel := tunnel{resume: steps(s, l)}
	known := func() *te.Database { return empty(r) }
	first, _, _ := tunnel.next(r, l, now, known)
	tunnel.versions = append(tunnel.versions, first)
	tunnel.handle(rsvp.Event{Kind: rsvp.Failed, Key: first.request.Key}, s, now)
	second, remove, _ := tunnel.next(r, l, now.Add(time.Minute), known)
	if second == nil || len(remove) > 0 || second.request.Replaces != first.request.Key.LSP {
		t.Errorf("asked for %+v, and removed %v", second, remove)
	}
}

func TestTheLinkThatHasNoRoomIsAvoided(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	l, now := s.LSP("free"), time.Now()
	var tunnel tunnel
	v, _, _ := tunnel.next(r, l, now, func() *te.Database { return empty(r) })
	tunnel.versions = append(tunnel.versions, v)
	address := func(node, name string) netip.Addr { return s.Node(node).Interface(name).Addresses[0].Addr() }
	for _, tt := range []struct{ told, avoided netip.Addr }{
		{address("b", "eth1"), address("b", "eth2")}, // where the Path came in, as b has nothing left behind it
		{address("b", "eth2"), address("b", "eth2")},
		{s.Node("b").Loopbacks[0].Addr(), address("b", "eth2")},
		{address("d", "eth1"), address("d", "eth1")}, // the last one
	} {
		e := message.ErrorSpec{Node: tt.told, Code: message.AdmissionFailure}
		tunnel.handle(rsvp.Event{Kind: rsvp.Failed, Key: v.request.Key, Error: e}, s, now)
		if _, ok := tunnel.avoid[tt.avoided]; !ok || len(tunnel.avoid) != 1 {
			t.Errorf("told by %s: %v is avoided, want %s", tt.told, tunnel.avoid, tt.avoided)
		}
		clear(tunnel.avoid)
	}
}

func TestSummariesSayWhatBecomesOfPackets(t *testing.T) {
	s := resolved(t, square, nil)
	up, refused := &version{up: true}, &version{}
	refused.request.Key.LSP = 2
	failed := rsvp.Event{Kind: rsvp.Failed, Key: refused.request.Key}
	for want, tt := range map[string]struct {
		tunnel tunnel
		was    bool
	}{
		"is not set up: ":   {tunnel{versions: []*version{refused}}, false},
		"stays as it was: ": {tunnel{versions: []*version{up, refused}}, false},
		"is broken: ":       {tunnel{versions: []*version{refused}}, true},
	} {
		if got := tt.tunnel.summary(failed, tt.was, s); !strings.HasPrefix(got, want) {
			t.Errorf("%q does not begin with %q", got, want)
		}
	}
}

// nothing is known to be reserved.
func nothing(string, string) (free *[te.Priorities]uint64, down bool) { return nil, false }

func empty(r *Router) *te.Database { return database(r.Network, r.Overrides, nothing) }

func TestPathsHaveTheBandwidth(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	by := func(l *slice.LSP, free linkState) (string, error) {
		p, err := route(s, &slice.Overrides{}, l, database(s, &slice.Overrides{}, free), nil, nil)
		return strings.Join(p.Routers(), " "), err
	}
	if got, err := by(s.LSP("free"), nothing); got != "a b d" {
		t.Errorf("20 Mbit/s go by %s, %v", got, err)
	}
	if got, err := by(s.LSP("named"), nothing); got != "a c d" {
		t.Errorf("the path is named, and goes by %s, %v", got, err)
	}
	taken := func(router, iface string) (*[te.Priorities]uint64, bool) {
		if router == "b" && iface == "eth2" {
			return &[te.Priorities]uint64{}, false
		}
		return nil, false
	}
	_, err := by(s.LSP("free"), taken)
	if err == nil || !strings.Contains(err.Error(), "have less than 20 Mbit/s unreserved at priority 5") {
		t.Errorf("by links that have it not: %v", err)
	}
	// Another way is taken if there is one, for what has failed.
	small := *s.LSP("free")
	small.Signal = &slice.Signal{Number: 1, Bandwidth: 1_000_000}
	local := r.Interfaces
	for _, is := range local {
		if is.Name != "eth1" {
			continue
		}
		p, err := route(s, &slice.Overrides{}, &small, database(s, &slice.Overrides{}, nothing),
			[]netip.Addr{is.Prefix.Addr()}, nil)
		if got := strings.Join(p.Routers(), " "); got != "a c d" {
			t.Errorf("1 Mbit/s not by b goes by %s, %v", got, err)
		}
	}
	down := slice.Overrides{Down: map[string]bool{s.Node("a").Interface("eth2").Link: true}}
	if _, err := route(s, &down, s.LSP("named"), database(s, &down, nothing), nil, nil); err == nil ||
		!strings.Contains(err.Error(), "is down") {
		t.Errorf("the path is named, and cut: %v", err)
	}
}

func TestLSPsAreReplacedWhenTheNewOneIsUp(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	l := s.LSP("free")
	now := time.Now()
	var tunnel tunnel
	ask := func(l *slice.LSP) (next *version, remove []rsvp.Key) {
		next, remove, _ = tunnel.next(r, l, now, func() *te.Database { return empty(r) })
		if next != nil {
			tunnel.versions = append(tunnel.versions, next)
		}
		for _, k := range remove {
			tunnel.forget(k)
		}
		return next, remove
	}
	hear := func(kind string, v *version) { tunnel.handle(rsvp.Event{Kind: kind, Key: v.request.Key}, s, now) }

	first, _ := ask(l)
	if first == nil || first.request.Replaces != 0 || first.request.Bandwidth != 2_500_000 ||
		first.request.Attribute.Setup != 5 || first.request.Attribute.Holding != 4 {
		t.Fatalf("asked for %+v", first)
	}
	if again, _ := ask(l); again != nil {
		t.Errorf("asked for again: %+v", again)
	}
	hear(rsvp.Up, first)
	more := *l
	signal := *l.Signal
	signal.Bandwidth, signal.Number = 30_000_000, l.Signal.Next()
	more.Signal = &signal
	second, remove := ask(&more)
	if second == nil || len(remove) > 0 || second.request.Replaces != first.request.Key.LSP {
		t.Fatalf("asked for %+v, and removed %v", second, remove)
	}
	// It is refused: the first one stays, and goes when one that asks for less is up.
	hear(rsvp.Failed, second)
	less := more
	signal.Bandwidth, signal.Number = 10_000_000, more.Signal.Next()
	now = now.Add(time.Minute)
	less.Signal = &signal
	third, remove := ask(&less)
	if third == nil || !slices.Equal(remove, []rsvp.Key{second.request.Key}) ||
		third.request.Replaces != first.request.Key.LSP {
		t.Fatalf("asked for %+v, and removed %v", third, remove)
	}
	hear(rsvp.Up, third)
	hear(rsvp.Replaced, first)
	if len(tunnel.versions) != 1 || tunnel.newest() != third {
		t.Errorf("there are %d versions", len(tunnel.versions))
	}
	// One that was removed and added again has the same number.
	anew := less
	other := *less.Signal
	other.Bandwidth = 11_000_000
	anew.Signal = &other
	now = now.Add(time.Minute)
	fourth, _ := ask(&anew)
	if fourth == nil || fourth.request.Key == third.request.Key || fourth.request.Bandwidth != 1_375_000 {
		t.Errorf("asked for %+v", fourth)
	}
	// What routers say is not kept without bound.
	for i := range 1000 {
		e := message.ErrorSpec{Node: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}
		tunnel.handle(rsvp.Event{Kind: rsvp.Failed, Key: third.request.Key, Error: e}, s, now)
	}
	if len(tunnel.avoid) > 0 {
		t.Errorf("%d addresses of no link are avoided", len(tunnel.avoid))
	}
}

func TestAnLSPThatFailsIsAskedForAgainEverMoreSlowly(t *testing.T) {
	s := resolved(t, square, nil)
	r := speaking(t, s, slice.Overrides{}, "a")
	var tunnel tunnel
	now, last := time.Now(), time.Time{}
	var pauses []time.Duration
	for tries := 0; tries < 8; now = now.Add(100 * time.Millisecond) {
		next, _, _ := tunnel.next(r, s.LSP("free"), now, func() *te.Database { return empty(r) })
		if next == nil {
			continue
		}
		tunnel.versions = append(tunnel.versions, next)
		tunnel.handle(rsvp.Event{Kind: rsvp.Failed, Key: next.request.Key}, s, now)
		if !last.IsZero() {
			pauses = append(pauses, now.Sub(last))
		}
		last = now
		tries++
	}
	if !slices.IsSorted(pauses) || pauses[len(pauses)-1] < 10*time.Second {
		t.Errorf("the pauses are %v", pauses)
	}
}
