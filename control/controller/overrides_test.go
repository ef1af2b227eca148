package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

func reasonOf(err error) Reason {
	var r *Refusal
	if !errors.As(err, &r) {
		return -1
	}
	return r.Reason
}

func TestVerbsOfNodesFormALifeCycle(t *testing.T) {
	n := &slice.Node{Name: "a", Kind: slice.Host}
	rapid.Check(t, func(t *rapid.T) {
		var o slice.Overrides
		power, restarts := slice.PowerOn, 0
		for _, verb := range rapid.SliceOf(rapid.SampledFrom([]api.NodeVerb{api.NodeStart, api.NodeStop,
			api.NodePause, api.NodeResume, api.NodeRestart})).Draw(t, "verbs") {
			refused := verb == api.NodeStart && power == slice.PowerFrozen || power == slice.PowerOff &&
				(verb == api.NodePause || verb == api.NodeResume)
			if err := setPower(&o, n, verb); (reasonOf(err) == Conflict) != refused {
				t.Fatalf("%s while %s: %v", verb, power, err)
			}
			if refused {
				continue
			}
			if verb == api.NodeRestart && power != slice.PowerOff {
				restarts++
			}
			power = slice.PowerOn
			if want, changes := map[api.NodeVerb]slice.Power{api.NodeStop: slice.PowerOff,
				api.NodePause: slice.PowerFrozen}[verb]; changes {
				power = want
			}
			got, written := o.Power["a"]
			if !written {
				got = slice.PowerOn
			}
			if got != power {
				t.Fatalf("after %s the power is %q, want %q", verb, got, power)
			}
		}
		if o.Restarts["a"] != restarts {
			t.Fatalf("%d restarts, want %d", o.Restarts["a"], restarts)
		}
	})
}

func TestSwitchHasNoProcesses(t *testing.T) {
	n := &slice.Node{Name: "s", Kind: slice.Switch}
	var o slice.Overrides
	for _, verb := range []api.NodeVerb{api.NodePause, api.NodeResume, api.NodeRestart} {
		if err := setPower(&o, n, verb); reasonOf(err) != Invalid {
			t.Errorf("%s a switch: %v", verb, err)
		}
	}
	if err := setPower(&o, n, api.NodeStop); err != nil || o.Power["s"] != slice.PowerOff {
		t.Errorf("stop a switch: %v", err)
	}
}

func pointer[T any](v T) *T { return &v }

func TestLinkPatchIsChecked(t *testing.T) {
	for name, p := range map[string]api.LinkPatch{
		"nothing":         {End: "a:eth1"},
		"negative delay":  {Delay: pointer(-time.Second)},
		"negative jitter": {Jitter: pointer(-time.Second)},
		"loss above 100":  {Loss: pointer(100.1)},
		"loss NaN":        {Loss: pointer(math.NaN())},
		"negative queue":  {Queue: pointer(-1)},
		"slow policer":    {Police: pointer(unit.Rate(8))},
		"negative burst":  {Burst: pointer(int64(-1))},
	} {
		if err := checkPatch(p); reasonOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinkPatchChangesOnlyWhatItNames(t *testing.T) {
	l := &slice.Link{Name: "wire", Ends: []slice.End{
		{Node: "a", Interface: "eth1", Shape: slice.Shape{Rate: 1e6, Loss: 1}}, {Node: "b", Interface: "eth1"},
	}}
	var o slice.Overrides
	apply := func(p api.LinkPatch) error {
		trial := *l
		trial.Ends = append([]slice.End(nil), l.Ends...)
		return applyPatch(p, &slice.Slice{Name: "net"}, l, &trial, &o)
	}
	if err := apply(api.LinkPatch{Delay: pointer(5 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	if err := apply(api.LinkPatch{End: "a:eth1", Rate: pointer(unit.Rate(2e6))}); err != nil {
		t.Fatal(err)
	}
	want := map[string]slice.Shape{
		"a:eth1": {Rate: 2e6, Loss: 1, Delay: 5 * time.Millisecond},
		"b:eth1": {Delay: 5 * time.Millisecond},
	}
	if diff := cmp.Diff(want, o.Shapes); diff != "" {
		t.Error(diff)
	}
	if err := apply(api.LinkPatch{End: "a:eth2", Rate: pointer(unit.Rate(8))}); reasonOf(err) != NotFound {
		t.Errorf("an end that does not exist: %v", err)
	}
	if err := apply(api.LinkPatch{Delay: pointer(time.Duration(0)),
		Jitter: pointer(time.Millisecond)}); reasonOf(err) != Invalid {
		t.Errorf("jitter without delay: %v", err)
	}
	if err := apply(api.LinkPatch{End: "a:eth1", Burst: pointer(int64(3000))}); reasonOf(err) != Invalid {
		t.Errorf("a burst without a policer: %v", err)
	}
	for _, p := range []api.LinkPatch{
		{End: "a:eth1", Police: pointer(unit.Rate(1e6)), Burst: pointer(int64(3000))}, {End: "a:eth1", Police: pointer(unit.Rate(2e6))},
	} {
		if err := apply(p); err != nil {
			t.Fatal(err)
		}
	}
	if have := o.Shapes["a:eth1"].Police; have != (slice.Policer{Rate: 2e6, Burst: 3000}) {
		t.Errorf("policer %+v", have)
	}
	err := apply(api.LinkPatch{End: "a:eth1", Police: pointer(unit.Rate(0))})
	if err != nil || o.Shapes["a:eth1"].Police != (slice.Policer{}) {
		t.Errorf("policer %+v, %v", o.Shapes["a:eth1"].Police, err)
	}
	// Back at the file's values, nothing is overridden.
	if err := apply(api.LinkPatch{End: "b:eth1", Delay: pointer(time.Duration(0))}); err != nil {
		t.Fatal(err)
	}
	if _, left := o.Shapes["b:eth1"]; left {
		t.Errorf("overrides %v", o.Shapes)
	}
}

func TestPolicerBetweenSwitchesIsRefused(t *testing.T) {
	s := &slice.Slice{Nodes: []slice.Node{
		{Name: "a", Kind: slice.Host}, {Name: "s", Kind: slice.Switch}, {Name: "z", Kind: slice.Switch},
	}}
	police := slice.Shape{Police: slice.Policer{Rate: 1e6}}
	for _, c := range []struct {
		link   slice.Link
		refuse bool
	}{
		{slice.Link{Ends: []slice.End{{Node: "a", Shape: police}, {Node: "s", Shape: police}}}, false},
		{slice.Link{Ends: []slice.End{{Node: "z"}, {Node: "s"}}}, false},
		{slice.Link{Ends: []slice.End{{Node: "z"}, {Node: "s", Shape: police}}}, true},
		{slice.Link{LAN: true, Ends: []slice.End{{Node: "a", Shape: police}, {Node: "s"}}}, false},
		{slice.Link{LAN: true, Ends: []slice.End{{Node: "a"}, {Node: "s", Shape: police}}}, true},
	} {
		if err := canPolice(s, &c.link); (reasonOf(err) == Invalid) != c.refuse {
			t.Errorf("%+v: %v", c.link, err)
		}
	}
}

func TestAccessToTheHostIsNamed(t *testing.T) {
	s := &slice.Slice{Name: "net", Nodes: []slice.Node{
		{Name: "bound", Kind: slice.Host, Binds: []slice.Bind{{Source: "/etc", Target: "/mnt"}}},
		{Name: "device", Kind: slice.Host, Devices: []slice.Device{{Source: "/dev/kvm", Target: "/dev/kvm"}}},
		{Name: "dir", Kind: slice.Host, Rootfs: slice.Rootfs{Kind: slice.RootfsDir, Ref: "/"}},
		{Name: "layout", Kind: slice.Host, Rootfs: slice.Rootfs{Kind: slice.RootfsLayout, Ref: "/x"}},
		{Name: "out", Kind: slice.Uplink},
		{Name: "plain", Kind: slice.Router, Rootfs: slice.Rootfs{Kind: slice.RootfsRegistry, Ref: "alpine"}},
	}}
	want := "nodes.bound.binds, nodes.device.devices, nodes.dir.rootfs, nodes.layout.image, nodes.out.kind"
	if got := locations(privileged(s)); got != want {
		t.Errorf("privileged: %s, want %s", got, want)
	}
}

func TestLinkPatchChangesQueues(t *testing.T) {
	queues := []slice.Queue{{Share: 1}, {Share: 30, Reserve: 1e6}, {Share: 20, Length: unit.Length{Bytes: 65536}}}
	l := &slice.Link{Name: "wire", Ends: []slice.End{
		{
			Node:      "p",
			Interface: "eth1",
			Shape:     slice.Shape{Rate: 10e6, Queues: queues},
		}, {Node: "h", Interface: "eth1"},
	}}
	var o slice.Overrides
	apply := func(p api.LinkPatch) error {
		trial := *l
		trial.Ends = slices.Clone(l.Ends)
		return applyPatch(p, &slice.Slice{Name: "net"}, l, &trial, &o)
	}
	if err := apply(api.LinkPatch{Queues: []api.QueuePatch{
		{Number: 0, Priority: pointer(8)}, {Number: 1, Share: pointer(40), Priority: pointer(2)},
		{Number: 2, Length: pointer(unit.Length{Frames: 200}), Rate: pointer(unit.Rate(5e6))},
	}}); err != nil {
		t.Fatal(err)
	}
	want := map[string]slice.Shape{"p:eth1": {Rate: 10e6, Queues: []slice.Queue{
		{Share: 1}, {Share: 40, Reserve: 1e6, Priority: 2},
		{Share: 20, Length: unit.Length{Frames: 200}, Rate: 5e6},
	}}}
	if diff := cmp.Diff(want, o.Shapes); diff != "" || queues[1].Share != 30 {
		t.Errorf("the file's are %+v; changed:\n%s", queues, diff)
	}
	for text, p := range map[string]api.LinkPatch{
		"link wire: p:eth1 has no queue 4: it has 0 to 2": {Queues: []api.QueuePatch{{Number: 4, Share: pointer(1)}}},
		"priority 9 is out of range":                      {Queues: []api.QueuePatch{{Number: 1, Priority: pointer(9)}}},
		"share 0 is out of range":                         {Queues: []api.QueuePatch{{Number: 1, Share: pointer(0)}}},
		"the queues reserve 11Mbit":                       {Queues: []api.QueuePatch{{Number: 0, Reserve: pointer(unit.Rate(10e6))}}},
		"queues divide a rate, and there is none":         {End: "p:eth1", Rate: pointer(unit.Rate(0))},
		"its ends have no queues":                         {End: "h:eth1", Queues: []api.QueuePatch{{Number: 1, Share: pointer(1)}}},
	} {
		if err := apply(p); reasonOf(err) != Invalid || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLinkPatchAddsAndRemovesTheLastQueue(t *testing.T) {
	const taken = "only the last one can be removed, and that is 2"
	silent := unit.Length{Frames: 82} // of frames of 1,514 bytes, in 100 ms at 10 Mbit/s
	queues := []slice.Queue{{Share: 1}, {Share: 30, Reserve: 1e6}, {Share: 20}}
	remove := func(n int) api.QueuePatch { return api.QueuePatch{Number: n, Remove: true} }
	share := func(n, share int) api.QueuePatch { return api.QueuePatch{Number: n, Share: &share} }
	many := make([]api.QueuePatch, slice.MaxQueues-2)
	for i := range many {
		many[i] = share(3+i, 1)
	}
	for _, tt := range []struct {
		name    string
		changes []api.QueuePatch
		other   []slice.Queue // of the link's other end
		want    []slice.Queue
		wrong   string
	}{
		{"the next", []api.QueuePatch{{Number: 3, Length: &unit.Length{Bytes: 9000}}}, nil,
			append(slices.Clone(queues), slice.Queue{Share: 1, Length: unit.Length{Bytes: 9000}}), ""},
		{"two", []api.QueuePatch{share(3, 5), share(4, 6)}, nil,
			append(slices.Clone(queues), slice.Queue{Share: 5, Length: silent},
				slice.Queue{Share: 6, Length: silent}), ""},
		{"the last ones go", []api.QueuePatch{remove(2), remove(1)}, nil, queues[:1], ""},
		{"one goes, and comes back", []api.QueuePatch{remove(2), share(2, 7)}, nil,
			[]slice.Queue{queues[0], queues[1], {Share: 7, Length: silent}}, ""},
		{"the default length again", []api.QueuePatch{{Number: 2, Length: &unit.Length{}}}, nil,
			[]slice.Queue{queues[0], queues[1], {Share: 20, Length: silent}}, ""},
		{"a gap", []api.QueuePatch{share(4, 6), share(3, 5)}, nil, nil, "no queue 4: it has 0 to 2, and 3 would be"},
		{"a middle one goes", []api.QueuePatch{remove(1)}, nil, nil, "queue 1 of p:eth1: " + taken},
		{"what is not there goes", []api.QueuePatch{remove(3)}, nil, nil, taken},
		{"number 0 goes", []api.QueuePatch{remove(0)}, nil, nil, "it is always there"},
		{"it goes with a share", []api.QueuePatch{{Number: 2, Remove: true, Share: pointer(1)}}, nil, nil,
			"removes a queue, or sets"},
		{"without a share", []api.QueuePatch{share(3, 0)}, nil, nil, "queue 3: share 0 is out of range"},
		{"more than the rate", []api.QueuePatch{{Number: 3, Reserve: pointer(unit.Rate(10e6))}}, nil, nil,
			"the queues reserve 11Mbit"},
		{"too many", many, nil, nil, "1025 queues: at most 1024"},
		{"another number at the other end", []api.QueuePatch{share(3, 1)}, make([]slice.Queue, 4), nil,
			"name one of p:eth1, h:eth1"},
	} {
		l := &slice.Link{Name: "wire", Ends: []slice.End{
			{Node: "p", Interface: "eth1", Shape: slice.Shape{Rate: 10e6, Queues: slices.Clone(queues)}},
			{Node: "h", Interface: "eth1"},
		}}
		if tt.other != nil {
			for i := range tt.other {
				tt.other[i].Share = 1
			}
			l.Ends[1].Shape = slice.Shape{Rate: 10e6, Queues: tt.other}
		}
		trial := *l
		trial.Ends = slices.Clone(l.Ends)
		var o slice.Overrides
		err := applyPatch(api.LinkPatch{Queues: tt.changes}, &slice.Slice{Name: "net"}, l, &trial, &o)
		if diff := cmp.Diff(queues, l.Ends[0].Shape.Queues); diff != "" {
			t.Errorf("%s changed the file's:\n%s", tt.name, diff)
		}
		if tt.wrong != "" {
			if reasonOf(err) != Invalid || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, o.Shapes["p:eth1"].Queues); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
}

// crowded is a machine that has room for three queues.
type crowded struct{ *fake }

func (crowded) HaveRoom(_ context.Context, _ *hosts.Host, s *slice.Slice, shapes map[string]slice.Shape) error {
	if n := s.Queueing(shapes)["p"].Queues; n > 3 {
		return fmt.Errorf("%d queues wanted", n)
	}
	return nil
}

func TestQueuesAreAddedAsFarAsTheNodeAndItsHostHaveSome(t *testing.T) {
	for _, tt := range []struct {
		host    Host
		reserve int
		want    string
	}{
		{&fake{}, 2, "node p would have more than it may: there are 3 queues, and 2 are reserved"},
		{crowded{&fake{}}, 0, "link l: 4 queues wanted"},
	} {
		c, s, _ := member(t, &fake{})
		c.host = tt.host
		spec := &slice.Slice{Name: "lab", Nodes: []slice.Node{
			{Name: "h", Kind: slice.Host}, {Name: "p", Kind: slice.Program, Reserve: slice.Reserve{Queues: tt.reserve}},
		}, Links: []slice.Link{{Name: "l", Ends: []slice.End{{Node: "h", Interface: "eth1"}, {
			Node: "p", Interface: "eth1",
			Shape: slice.Shape{Rate: 1e6, Queues: []slice.Queue{{Share: 1}}},
		}}}}}
		if err := s.PutSlice(t.Context(), spec, 0); err != nil {
			t.Fatal(err)
		}
		queues := 1
		var err error
		for err == nil && queues < 10 {
			patch := api.LinkPatch{Queues: []api.QueuePatch{{Number: queues}}}
			err = c.SetLink(t.Context(), "lab", "l", patch)
			if err == nil {
				queues++
			}
		}
		if reasonOf(err) != Full || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %d queues: %v", queues, err)
		}
		o, err := s.Overrides(t.Context(), "lab")
		if err != nil || len(o.Shapes["p:eth1"].Queues) != queues {
			t.Errorf("%d queues are stored as %+v, %v", queues, o.Shapes, err)
		}
	}
}

// full is a cluster one of whose hosts has no room for queues.
type full struct {
	*fake
	host string
}

func (f full) HaveRoom(_ context.Context, on *hosts.Host, _ *slice.Slice, _ map[string]slice.Shape) error {
	switch f.host {
	case on.Name:
		return fmt.Errorf("host %s has no queues left", on.Name)
	case unread:
		return fmt.Errorf("look: %w", store.ErrUnread)
	}
	return nil
}

// unread is in place of a host where it is not known what hosts have left.
const unread = "?"

// A store that does not answer has refused nothing: who asks can ask again.
func TestWhatIsNotKnownIsNoRefusal(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) {
		h[0].Allows.Ports = []hosts.Ports{{First: 8000, Last: 8099}}
	})}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	const file = "name: lab\nnodes: {p: {host: h1, program: p.o}, h: {host: h1}}\n" +
		"links: [{name: l, ends: [p, h], from: {p: {rate: 1Mbit, queues: {1: {share: 2}}}}}]\n"
	mustApply(t, c, file)
	c.host = full{f, unread}
	more := parsed(t, strings.Replace(file, "share: 2", "share: 3", 1))
	_, _, applied := c.Apply(t.Context(), Caller{Root: true}, more, false)
	for what, err := range map[string]error{
		"up": applied,
		"link set": c.SetLink(t.Context(), "lab", "l", api.LinkPatch{End: "p:eth1",
			Queues: []api.QueuePatch{{Number: 2}}}),
	} {
		if !errors.Is(err, store.ErrUnread) || reasonOf(err) != -1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestQueuesAreThoseOfTheHostOfTheirNode(t *testing.T) {
	f := &fake{hosts: machines(3)}
	c, s, _ := member(t, f, InCluster(f, "h1"))
	const file = "name: lab\nnodes: {p: {host: h2, program: p.o}, h: {host: h1}}\n" +
		"links: [{name: l, ends: [p, h], from: {p: {rate: 1Mbit, queues: {1: {share: 2}}}}}]\n"
	apply := func() error {
		_, _, err := c.Apply(t.Context(), Caller{Root: true}, parsed(t, file), false)
		return err
	}
	c.host = full{f, "h2"}
	if err := apply(); reasonOf(err) != Full || err.Error() != "network lab: host h2 has no queues left" {
		t.Errorf("%v", err)
	}
	if _, err := s.Record(t.Context(), "lab"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it is stored: %v", err)
	}
	c.host = full{f, "h3"}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	more := api.LinkPatch{End: "p:eth1", Queues: []api.QueuePatch{{Number: 2}}}
	if err := c.SetLink(t.Context(), "lab", "l", more); err != nil {
		t.Error(err)
	}
	c.host = full{f, "h2"}
	more.Queues[0].Number = 3
	if err := c.SetLink(t.Context(), "lab", "l", more); reasonOf(err) != Full ||
		err.Error() != "link l: host h2 has no queues left" {
		t.Errorf("one more: %v", err)
	}
}

func TestLongerQueuesStayWithinTheNodesReservation(t *testing.T) {
	c, s, _ := member(t, &fake{})
	e := slice.End{Node: "p", Interface: "eth1", Shape: slice.Shape{Rate: 1e6, Queues: []slice.Queue{{Share: 1}}}}
	spec := &slice.Slice{Name: "lab", Nodes: []slice.Node{
		{
			Name: "h",
			Kind: slice.Host,
		}, {Name: "p", Kind: slice.Program, Reserve: slice.Reserve{Buffer: 1 << 20}},
	}, Links: []slice.Link{{Name: "l", Ends: []slice.End{{Node: "h", Interface: "eth1"}, e}}}}
	spec.Links[0].Ends[1].Shape.Queues[0].Length.Frames = 100
	if err := s.PutSlice(t.Context(), spec, 0); err != nil {
		t.Fatal(err)
	}
	set := func(bytes int64) error {
		return c.SetLink(t.Context(), "lab", "l", api.LinkPatch{Queues: []api.QueuePatch{
			{Number: 0, Length: &unit.Length{Bytes: bytes}},
		}})
	}
	if err := set(1 << 20); err != nil {
		t.Fatal(err)
	}
	err := set(1<<20 + 1)
	const want = "link l: node p would have more than it may: the lengths of its queues add up to 1048577 " +
		"bytes, and " +
		"1048576 are reserved"
	if reasonOf(err) != Full || err.Error() != want {
		t.Errorf("%v", err)
	}
	o, err := s.Overrides(t.Context(), "lab")
	if err != nil || o.Shapes["p:eth1"].Queues[0].Length.Bytes != 1<<20 {
		t.Errorf("overrides %+v, %v", o.Shapes, err)
	}
}

func TestANewerFileChangesWhatWasNotSetByHand(t *testing.T) {
	c, s, _ := member(t, &fake{})
	file := func(link string) string {
		return "name: lab\nnodes: {a: {kind: host}, b: {kind: host}}\n" +
			"links: [{name: l, ends: [a, b], " + link + "}]\n"
	}
	mustApply(t, c, file("rate: 10Mbit, delay: 5ms"))
	set := api.LinkPatch{End: "a:eth1", Rate: pointer(unit.Rate(4e6))}
	if err := c.SetLink(t.Context(), "lab", "l", set); err != nil {
		t.Fatal(err)
	}
	mustApply(t, c, file("rate: 20Mbit, loss: 1%"))
	o, err := s.Overrides(t.Context(), "lab")
	want := map[string]slice.Shape{"a:eth1": {Rate: 4e6, Loss: 1}}
	if diff := cmp.Diff(want, o.Shapes); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	const reserving = "rate: 20Mbit, classes: {voice: {match: [{dscp: EF}], reserve: 5Mbit}}"
	top, found := topology.Parse("lab.yaml", []byte(file(reserving)))
	if len(found) > 0 {
		t.Fatal(found)
	}
	_, _, err = c.Apply(t.Context(), Caller{Root: true}, top, false)
	const reason = "frames that leave a:eth1: with what was changed by hand: class voice: " +
		"the class reserves 5Mbit of 4Mbit (`pergola link reset a:eth1 -s lab` takes the change back)"
	if reasonOf(err) != Invalid || err.Error() != reason {
		t.Errorf("a class that reserves more than the rate that was set: %v", err)
	}
	if err := c.ResetLink(t.Context(), "lab", "l"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, c, file(reserving))
}

func TestAFileThatQueuesSetByHandExceedIsRefused(t *testing.T) {
	c, s, _ := member(t, &fake{})
	spec := func(buffer int64) *slice.Slice {
		e := slice.End{Node: "p", Interface: "eth1", Shape: slice.Shape{Rate: 1e6,
			Queues: []slice.Queue{{Share: 1, Length: unit.Length{Bytes: 1 << 20}}}}}
		return &slice.Slice{Name: "lab", Nodes: []slice.Node{{Name: "h", Kind: slice.Host},
			{Name: "p", Kind: slice.Program, Reserve: slice.Reserve{Buffer: buffer}}},
			Links: []slice.Link{{Name: "l", Ends: []slice.End{{Node: "h", Interface: "eth1"}, e}}}}
	}
	if err := s.PutSlice(t.Context(), spec(8<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := c.SetLink(t.Context(), "lab", "l", api.LinkPatch{Queues: []api.QueuePatch{
		{Number: 0, Length: &unit.Length{Bytes: 6 << 20}},
	}}); err != nil {
		t.Fatal(err)
	}
	o, err := s.Overrides(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := keepsOverrides(o, spec(8<<20), spec(6<<20)); err != nil {
		t.Errorf("a buffer that is just enough: %v", err)
	}
	err = keepsOverrides(o, spec(8<<20), spec(4<<20))
	const want = "node p would have more than it may, with queues of p:eth1 that were changed by hand or by " +
		"the node: the lengths of its queues add up to 6291456 bytes, and 4194304 are reserved " +
		"(reserve more, or take the change back: `pergola link reset p:eth1 -s lab`)"
	if reasonOf(err) != Full || err.Error() != want {
		t.Errorf("a buffer that is too small: %v", err)
	}
}
