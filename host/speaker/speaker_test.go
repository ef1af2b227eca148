package speaker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	patience  = 20 * time.Second
	refresh   = time.Second
	bandwidth = 1_250_000 // of a link, bytes a second
)

// The routers of these tests: a and d are joined by b and by c, and the kernels' routes go by b.
//
//	a -- b -- d      links 10.0.0.0/24, 10.0.1.0/24
//	a -- c -- d      links 10.0.2.0/24, 10.0.3.0/24
func square() vnet.Plan {
	p := vnet.Plan{Slice: 61}
	via := func(to, hop string) vnet.Route {
		return vnet.Route{To: netip.MustParsePrefix(to), Hops: []vnet.Hop{{Via: netip.MustParseAddr(hop)}}}
	}
	routes := map[string][]vnet.Route{
		"a": {via("192.0.2.4/32", "10.0.0.2"), via("192.0.2.2/32", "10.0.0.2"), via("192.0.2.3/32", "10.0.2.2")},
		"b": {via("192.0.2.4/32", "10.0.1.2"), via("192.0.2.1/32", "10.0.0.1")},
		"c": {via("192.0.2.4/32", "10.0.3.2"), via("192.0.2.1/32", "10.0.2.1")},
		"d": {via("192.0.2.1/32", "10.0.1.1")},
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		p.Nodes = append(p.Nodes, vnet.NodePlan{Name: name, Router: true, Routes: routes[name],
			Loopbacks: []netip.Prefix{netip.PrefixFrom(idOf(i), 32)}})
	}
	for i, ends := range [][2]string{{"a", "b"}, {"b", "d"}, {"a", "c"}, {"c", "d"}} {
		link := vnet.LinkPlan{}
		for side, node := range ends {
			link.Ends = append(link.Ends, vnet.End{Node: node, Interface: "to-" + ends[1-side],
				Addresses: []netip.Prefix{netip.PrefixFrom(linkAddress(i, side), 24)}})
		}
		p.Links = append(p.Links, link)
	}
	return p
}

func idOf(router int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(router + 1)}) }

func linkAddress(link, side int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(link), byte(side + 1)})
}

// lab is a network whose routers all speak.
type lab struct {
	*testing.T
	network  *vnet.Network
	speakers map[string]*told
}

// told is a speaker, and what it has told.
type told struct {
	*Speaker
	stop func()

	mu     sync.Mutex
	labels map[rsvp.Key]rsvp.Entry
	events []rsvp.Event
	failed []error
	refuse error // of labels that are to be installed
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := newSilentLab(t, square())
	for _, node := range l.network.Plan.Nodes {
		l.speak(node.Name)
	}
	return l
}

// newSilentLab has no speakers yet.
func newSilentLab(t *testing.T, p vnet.Plan) *lab {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	n, remove, err := vnet.New(t.Context(), dir, vnet.Log(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	return &lab{T: t, network: n, speakers: map[string]*told{}}
}

// speak starts a router's speaker, without state.
func (l *lab) speak(name string) *told {
	l.Helper()
	node, plan := l.network.Nodes[name], l.network.Plan
	s := &told{labels: map[rsvp.Key]rsvp.Entry{}}
	config := rsvp.Config{ID: plan.Node(name).Loopbacks[0].Addr(), Refresh: refresh, Random: rand.Uint64,
		FirstLabel: 1000, LastLabel: 1999, Sequence: uint64(time.Now().UnixNano())}
	for _, link := range plan.Links {
		for _, e := range link.Ends {
			if e.Node != name {
				continue
			}
			index, err := node.Index(e.Interface)
			if err != nil {
				l.Fatal(err)
			}
			config.Interfaces = append(config.Interfaces,
				rsvp.Interface{Index: index, Prefix: e.Addresses[0], Bandwidth: bandwidth})
		}
	}
	var err error
	if s.Speaker, err = Open(Config{Namespace: node.NS, Router: config, Labels: s.changed, Event: s.happened,
		Failed: s.unsent}); err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.Errorf("the speaker of %s: %v", name, err)
		}
	})
	l.Cleanup(s.stop)
	l.speakers[name] = s
	return s
}

func (s *told) changed(c rsvp.LabelChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Remove:
		delete(s.labels, c.Entry.Key)
	case s.refuse != nil:
		return s.refuse
	default:
		s.labels[c.Entry.Key] = c.Entry
	}
	return nil
}

func (s *told) refuses(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *told) happened(e rsvp.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *told) unsent(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

func (s *told) entry(k rsvp.Key) (e rsvp.Entry, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok = s.labels[k]
	return e, ok
}

func (s *told) kinds() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		all = append(all, e.Kind)
	}
	return all
}

// request is an LSP of a to d, by the addresses of the routers on the way; none: as it is routed.
func request(tunnel uint16, rate uint64, by ...netip.Addr) rsvp.Request {
	q := rsvp.Request{Key: rsvp.Key{Session: message.Session{End: idOf(3), Tunnel: tunnel, Extended: idOf(0)},
		Sender: idOf(0), LSP: 1}, Bandwidth: rate, Record: true,
		Attribute: message.SessionAttribute{Setup: 4, Holding: 4, Name: fmt.Sprintf("t%d", tunnel)}}
	for _, a := range by {
		q.Route = append(q.Route, message.Step{Prefix: netip.PrefixFrom(a, 32)})
	}
	return q
}

// leadsBy waits until the labels of an LSP lead from router to router, and nowhere else.
func (l *lab) leadsBy(k rsvp.Key, way ...string) {
	l.Helper()
	testkit.Eventually(l, func() error {
		var label message.Label
		for i, name := range way {
			e, ok := l.speakers[name].entry(k)
			switch {
			case !ok:
				return fmt.Errorf("%s has no labels for it", name)
			case e.HasIn != (i > 0), e.HasOut != (i < len(way)-1), e.HasIn && e.In != label:
				return fmt.Errorf("%s has %+v behind label %d", name, e, label)
			}
			label = e.Out
		}
		for name, s := range l.speakers {
			if _, ok := s.entry(k); ok != (index(way, name) >= 0) {
				return fmt.Errorf("%s has labels for it: %t", name, ok)
			}
		}
		return nil
	}, patience, fmt.Sprintf("an LSP by %v", way))
}

func index(all []string, one string) int {
	for i, s := range all {
		if s == one {
			return i
		}
	}
	return -1
}

func TestAnLSPFollowsTheKernelsRoutes(t *testing.T) {
	l := newLab(t)
	a := l.speakers["a"]
	q := request(1, 1000)
	if err := a.Add(q); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "b", "d")
	if err := a.Remove(q.Key); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key)
}

func TestAnExplicitRouteNeedNotBeTheKernels(t *testing.T) {
	l := newLab(t)
	q := request(1, 1000, linkAddress(2, 1), linkAddress(3, 1))
	if err := l.speakers["a"].Add(q); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "c", "d")
}

func TestRoutersOnTheFastPathGetMessages(t *testing.T) {
	l := newLab(t)
	if err := l.network.FastPath(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	q := request(1, 1000)
	if err := l.speakers["a"].Add(q); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "b", "d")
	if err := l.network.InStep(t.Context(), "a", "b", "c", "d"); err != nil {
		t.Errorf("a socket for RSVP takes a router off the fast path: %v", err)
	}
}

// A speaker that was killed leaves its neighbours' state, which brings its own back.
func TestASpeakerThatBeginsAnewGetsItsLSPsBack(t *testing.T) {
	l := newLab(t)
	q := request(1, 1000)
	if err := l.speakers["a"].Add(q); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "b", "d")
	l.speakers["b"].stop()
	l.speak("b")
	l.leadsBy(q.Key, "a", "b", "d")
	for name, s := range l.speakers {
		if index(s.kinds(), rsvp.Down) >= 0 {
			t.Errorf("%s says the LSP was down: %v", name, s.kinds())
		}
	}
}

// The link to c fails for a, and c does not see it: the LSP goes by b, with messages between a and d, which are no
// neighbours. Of c, the state expires.
func TestARepairedLSPLivesByMessagesBetweenTheEndsOfItsBypass(t *testing.T) {
	l := newLab(t)
	a, d := l.speakers["a"], l.speakers["d"]
	q := request(1, 1000, linkAddress(2, 1), linkAddress(3, 1))
	q.Attribute.Flags = message.LocalProtection
	bypass := request(2, 0, linkAddress(0, 1), linkAddress(1, 1))
	round, err := l.network.Nodes["a"].Index("to-c")
	if err != nil {
		t.Fatal(err)
	}
	bypass.Bypass = round
	for _, q := range []rsvp.Request{q, bypass} {
		if err := a.Add(q); err != nil {
			t.Fatal(err)
		}
	}
	l.leadsBy(q.Key, "a", "c", "d")
	l.leadsBy(bypass.Key, "a", "b", "d")
	if err := a.SetLink(round, false); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { _, there := l.speakers["c"].entry(q.Key); return !there }, patience,
		"the old way to expire")
	out, _ := a.entry(q.Key)
	by, _ := a.entry(bypass.Key)
	in, there := d.entry(q.Key)
	if !there || out.Out != in.In || out.Interface != by.Interface || out.Bypass != by.Out {
		t.Errorf("a has %+v, and d %+v", out, in)
	}
	if kinds := a.kinds(); index(kinds, rsvp.Repaired) < 0 || index(kinds, rsvp.Down) >= 0 {
		t.Errorf("a says %v", kinds)
	}
	if err := a.Remove(q.Key); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key)
}

// What a router has not got is told at the ingress.
func TestARefusalComesBack(t *testing.T) {
	l := newLab(t)
	first, second := request(1, bandwidth), request(2, bandwidth)
	if err := l.speakers["b"].Add(rsvp.Request{Key: rsvp.Key{Session: message.Session{End: idOf(3), Tunnel: 9,
		Extended: idOf(1)}, Sender: idOf(1), LSP: 1}, Bandwidth: first.Bandwidth,
		Attribute: first.Attribute}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { return index(l.speakers["b"].kinds(), rsvp.Up) >= 0 }, patience, "the first LSP")
	if err := l.speakers["a"].Add(second); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { return index(l.speakers["a"].kinds(), rsvp.Failed) >= 0 }, patience,
		"an error for the second one")
}

// A label that cannot be written is told at the ingress before the LSP is up, and tried again.
func TestALabelThatCannotBeInstalledIsToldAtTheIngress(t *testing.T) {
	l := newLab(t)
	a, b := l.speakers["a"], l.speakers["b"]
	b.refuses(errors.New("no space left"))
	q := request(1, 1000)
	if err := a.Add(q); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { return index(a.kinds(), rsvp.Failed) >= 0 }, patience, "an error")
	if _, there := a.entry(q.Key); there || index(a.kinds(), rsvp.Up) >= 0 {
		t.Errorf("the ingress says %v", a.kinds())
	}
	b.refuses(nil)
	l.leadsBy(q.Key, "a", "b", "d")
	b.refuses(errors.New("no space left"))
	if err := b.Repeat(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { return index(a.kinds(), rsvp.Down) >= 0 }, patience, "the LSP to be down")
}

// A link that is down loses messages; the speaker tells, and goes on.
func TestWhatCannotBeSentIsTold(t *testing.T) {
	l := newLab(t)
	q := request(1, 1000)
	a := l.speakers["a"]
	if err := a.Add(q); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "b", "d")
	set := func(up bool) {
		if err := l.network.Nodes["a"].Apply(vnet.SetLink{Interface: "to-b", Up: up}); err != nil {
			t.Fatal(err)
		}
	}
	set(false)
	testkit.Eventually(t, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.failed) == 0 {
			return errors.New("no message failed")
		}
		return nil
	}, patience, "a message that cannot be sent")
	testkit.Await(t, func() bool { _, ok := l.speakers["d"].entry(q.Key); return !ok }, patience, "the state's end")
	set(true)
	if err := l.network.Nodes["a"].Apply(vnet.ReplaceRoute{Route: l.network.Plan.Node("a").Routes[0]}); err != nil {
		t.Fatal(err)
	}
	l.leadsBy(q.Key, "a", "b", "d")
}
