package agent

import (
	"maps"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func TestAHostMakesNoNodeThatWantsMoreThanItAllows(t *testing.T) {
	s := network(7, []string{"h1", "h2"}, []string{"h3", "u1"})
	for i := range s.Nodes {
		s.Nodes[i].Host = "A"
	}
	s.Node("h1").Binds = []slice.Bind{{Source: "/srv/labs/x", Target: "/x"}}
	s.Node("h2").Rootfs = slice.Rootfs{Kind: slice.RootfsDir, Ref: "/"}
	at := place{host: "A", joined: true, terms: &hosts.Terms{
		Allowance: hosts.Allowance{Paths: []string{"/srv/labs"}},
		Given:     map[string][]slice.Hold{"other": {{Path: "/"}, {}}},
	}}
	w, broken := wants(at, []wish{{spec: s}})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	if got := strings.Join(w.names(kindSliver), " "); got != "h1 h3" {
		t.Errorf("slivers of %s", got)
	}
	if got := strings.Join(w.names(kindPort), " "); strings.Count(got, "s7p") != 2 {
		t.Errorf("ports %s", got)
	}
	spec := w.details[reconcile.Key{Kind: kindSliver, Slice: 7, Name: "h1"}].(sliver.Spec)
	if !maps.Equal(spec.Beneath, map[string]string{"/srv/labs/x": "/srv/labs"}) {
		t.Errorf("h1 is bound to %v", spec.Beneath)
	}
	want := []string{
		"node h2: host A does not let it have / (to read): apply the slice on A itself, as root, or start Pergola there with --host-paths / (if it had it before: apply it again; from before an upgrade, nobody's consent is known)",
		"node u1: host A does not let it have its network (kind: uplink): apply the slice on A itself, as root, or start Pergola there with --host-network (if it had it before: apply it again; from before an upgrade, nobody's consent is known)",
	}
	if got := at.refusals(s); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("says %q", got)
	}

	// Its own root asked for that; or it is in no cluster.
	given := at
	given.terms = &hosts.Terms{Given: map[string][]slice.Hold{s.Name: {{Path: "/"}, {}, {Path: "/srv/labs/x", Write: true}}}}
	for name, p := range map[string]place{"given": given, "alone": {host: "A", joined: true}} {
		w, _ := wants(p, []wish{{spec: s}})
		if got := strings.Join(w.names(kindSliver), " "); got != "h1 h2 h3" || len(p.refusals(s)) > 0 {
			t.Errorf("%s: slivers of %s, %v", name, got, p.refusals(s))
		}
		if spec := w.details[reconcile.Key{Kind: kindSliver, Slice: 7, Name: "h1"}].(sliver.Spec); len(spec.Beneath) > 0 {
			t.Errorf("%s: h1 is bound to %v", name, spec.Beneath)
		}
	}
}
