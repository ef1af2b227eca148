package drive

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// office is on host A: two joined nodes, a switch with one node here and another switch, a LAN, and a node on host B.
func office(t *testing.T) *plan.Wanted {
	t.Helper()
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "s1"}, []string{"s1", "s2"}, []string{"s2", "h2"},
		[]string{"h1", "h2", "s1"}, []string{"h1", "h3"}, []string{"h2", "h3"})
	for i := range s.Links {
		l := &s.Links[i]
		l.Name = strings.ReplaceAll(strings.TrimSpace(l.Name), " ", "--") // as files have it
		l.Ends[0].Shape.Rate = 1e6
	}
	s.Links[4].Name = "h1:eth3--lan"
	s.Links[6].Name = "backbone"
	plantest.Spread(s, map[string]string{"h1": "A", "h2": "A", "h3": "B"})
	want, broken := plan.New(plan.Place{Host: "A", Joined: true, Address: plantest.Hosts["A"],
		Peers: plantest.Hosts}, []plan.Input{{Spec: s}})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	return want
}

// Errors name links, interfaces and switches as the topology does: whatever an error says of a resource's devices, none
// of them is in the message.
func TestErrorsNameThingsAsTheTopologyDoes(t *testing.T) {
	d := Pass{Want: office(t), Seen: &observe.Snapshot{}}
	said := map[string]bool{}
	for _, r := range d.Want.Resources {
		err := d.named(r.Key, fmt.Errorf("find %s: %w", r.Key.Name, wire.ErrNoDevice))
		if left := deviceNames.FindString(err.Error()); left != "" {
			t.Errorf("%v: %v has device %s", r.Key, err, left)
		}
		subject, _, _ := strings.Cut(err.Error(), ": find ")
		said[subject] = true
	}
	for _, want := range []string{
		"link h1:eth1 - h2:eth1", "link h1:eth2 - s1:eth1", "link s1:eth2 - s2:eth1", "link h1:eth3--lan",
		"link h1:eth4 - h3:eth1", "link backbone (h2:eth4 - h3:eth2)",
		"interface h1:eth1", "tunnel to h3:eth1", "switch s1", "switch s2",
	} {
		if !said[want] {
			t.Errorf("nothing is called %q: %v", want, said)
		}
	}
}

// What is not wanted any more is named by what its devices say.
func TestErrorsNameThingsThatAreNotWanted(t *testing.T) {
	d := Pass{Want: &plan.Wanted{}, Seen: &observe.Snapshot{Owners: map[string]string{
		"s7p1": "r1:eth1", "s7p2": "r2:eth1", "s7babcdefghi": "lab/sw", "s7p8": "lab/a:eth1--b:eth1",
		"s7p9": "lab/a:eth1--b:eth1",
	}}}
	key := func(kind reconcile.Kind, name string) reconcile.Key {
		return reconcile.Key{Kind: kind, Slice: 7, Name: name}
	}
	for _, c := range []struct {
		key       reconcile.Key
		err, want string
	}{
		{key(plan.KindPort, "s7p1"), "find device s7p1: no", "interface r1:eth1: find device r1:eth1: no"},
		{key(plan.KindWire, "s7p1=s7p2"), "no", "link r1:eth1 - r2:eth1: no"},
		{key(plan.KindQueue, "s7p1>s7babcdefghi"), "set htb on s7p1: no", "link r1:eth1 - sw: set htb on r1:eth1: no"},
		{key(plan.KindWire, "s7p8#s7p9"), "no", "link a:eth1--b:eth1: no"},
		{key(plan.KindSwitch, "s7babcdefghi"), "no", "switch sw: no"},
		{key(plan.KindPort, "s7p77"), "no", "interface: no"},
		{key(plan.KindNodeNet, "r1"), "configure the network of r1: no", "configure the network of r1: no"},
	} {
		err := d.named(c.key, fmt.Errorf("%s%w", c.err, wire.ErrNoDevice))
		if want := c.want + wire.ErrNoDevice.Error(); err.Error() != want {
			t.Errorf("%v: %q, want %q", c.key, err, want)
		}
	}
	if err := d.named(key(plan.KindPort, "s7p1"), nil); err != nil {
		t.Error(err)
	}
}

func TestLinkOfManyEndsHasItsName(t *testing.T) {
	l := slice.Link{Name: "floor", LAN: true, Ends: []slice.End{{Node: "a", Interface: "eth1"}}}
	if got := linkName(&l); got != "link floor" {
		t.Error(got)
	}
}
