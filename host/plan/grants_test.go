package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func TestAHostMakesNoNodeThatWantsMoreThanItAllows(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h3", "u1"})
	for i := range s.Nodes {
		s.Nodes[i].Host = "A"
	}
	s.Node("h1").Binds = []slice.Bind{{Source: "/srv/labs/x", Target: "/x"}}
	s.Node("h2").Rootfs = slice.Rootfs{Kind: slice.RootfsDir, Ref: "/"}
	at := Place{Host: "A", Joined: true, Terms: &hosts.Terms{
		Allowance: hosts.Allowance{Paths: []string{"/srv/labs"}},
		Given:     map[string][]slice.Hold{"other": {{Path: "/"}, {}}},
	}}
	w, broken := New(at, []Input{{Spec: s}})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	if got := strings.Join(w.names(KindSliver), " "); got != "h1 h3" {
		t.Errorf("slivers of %s", got)
	}
	if got := strings.Join(w.names(KindPort), " "); strings.Count(got, "s7p") != 2 {
		t.Errorf("ports %s", got)
	}
	spec := w.details[reconcile.Key{Kind: KindSliver, Slice: 7, Name: "h1"}].(Sliver)
	if !maps.Equal(spec.Beneath, map[string]string{"/srv/labs/x": "/srv/labs"}) {
		t.Errorf("h1 is bound to %v", spec.Beneath)
	}
	const again = "from before an upgrade, nobody's consent is known)"
	want := []string{
		"node h2: host A does not let it have / (to read): apply the network on A itself, as root, or start " +
			"Pergola there with --host-paths /srv/labs,/ (if it had it before: apply it again; " + again,
		"node u1: host A does not let it have its network (kind: uplink): apply the network on A itself, " +
			"as root, or start Pergola there with --host-network " +
			"(if it had it before: apply it again; " + again,
	}
	if got := at.Refusals(s); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("says %q", got)
	}

	// Its own root asked for that; or it is in no cluster.
	given := at
	given.Terms = &hosts.Terms{Given: map[string][]slice.Hold{s.Name: {
		{Path: "/"}, {}, {Path: "/srv/labs/x", Write: true},
	}}}
	for name, p := range map[string]Place{"given": given, "alone": {Host: "A", Joined: true}} {
		w, _ := New(p, []Input{{Spec: s}})
		if got := strings.Join(w.names(KindSliver), " "); got != "h1 h2 h3" || len(p.Refusals(s)) > 0 {
			t.Errorf("%s: slivers of %s, %v", name, got, p.Refusals(s))
		}
		h1 := reconcile.Key{Kind: KindSliver, Slice: 7, Name: "h1"}
		if spec := w.details[h1].(Sliver); len(spec.Beneath) > 0 {
			t.Errorf("%s: h1 is bound to %v", name, spec.Beneath)
		}
	}
}

// Who lets slices see a directory does not let them open the devices in it.
func TestDevicesAreGrantedByName(t *testing.T) {
	n := &slice.Node{Name: "a", Kind: slice.Host, Host: "A", Devices: []slice.Device{
		{Source: "/dev/kvm", Target: "/dev/kvm"}, {Source: "/dev/sda", Target: "/dev/sda"},
		{Source: "/dev/net/tun", Target: "/dev/net/tun"},
	}}
	device := func(path string) slice.Hold { return slice.Hold{Path: path, Write: true, Device: true} }
	for _, c := range []struct {
		terms   hosts.Terms
		refused string
		named   string
	}{
		{hosts.Terms{Allowance: hosts.Allowance{Paths: []string{"/dev"}}}, "--host-paths /dev,/dev/kvm,/dev/sda", ""},
		{hosts.Terms{Allowance: hosts.Allowance{Paths: []string{"/dev/kvm", "/dev/sda"}}}, "", "/dev/kvm /dev/sda"},
		{hosts.Terms{Given: map[string][]slice.Hold{"lab": {device("/dev/kvm"), device("/dev/sda")}}}, "", ""},
		{hosts.Terms{Given: map[string][]slice.Hold{"lab": {{Path: "/dev/kvm", Write: true}, device("/dev/sda")}}},
			"have its device /dev/kvm: apply the network on A itself", ""},
	} {
		at := Place{Host: "A", Joined: true, Terms: &c.terms, Allows: c.terms.Allowance}
		why := at.Refuses("lab", n)
		if (why == "") != (c.refused == "") || !strings.Contains(why, c.refused) {
			t.Errorf("%+v refuses: %s", c.terms, why)
		}
		if got := strings.Join(at.NamedDevices(n), " "); got != c.named {
			t.Errorf("%+v names %s", c.terms, got)
		}
		if got := at.beneath("lab", n); len(got) > 0 {
			t.Errorf("%+v binds devices to %v", c.terms, got)
		}
	}
}
