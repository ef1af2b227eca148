package serve

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/model/slice"
)

// having is a runtime on a machine with these programs.
type having struct {
	machine.Runtime
	programs string
}

func (h having) Installed(programs ...string) bool {
	for _, p := range programs {
		if strings.Contains(h.programs, p) {
			return true
		}
	}
	return false
}

func TestSuitesThatAreMissingAreNamed(t *testing.T) {
	frr, bird := &slice.Routing{Daemon: slice.FRR}, &slice.Routing{Daemon: slice.BIRD}
	spec := &slice.Slice{Nodes: []slice.Node{
		{Name: "a", Routing: frr}, {Name: "b", Routing: frr, Rootfs: slice.Rootfs{Kind: slice.RootfsHost}},
		{Name: "c", Routing: bird}, {Name: "d"},
		{Name: "e", Routing: bird, Rootfs: slice.Rootfs{Kind: slice.RootfsRegistry}}, // brings its own
		{Name: "f", Routing: bird, Host: "elsewhere"},
	}}
	noFRR := lack.Lack{
		What: "frr is not installed (no /usr/lib/frr/zebra)", Nodes: []string{"a", "b"}, Package: "frr",
	}
	noBIRD := lack.Lack{What: "bird2 is not installed (no /usr/sbin/bird)", Nodes: []string{"c"}, Package: "bird2"}
	for _, c := range []struct {
		programs string
		want     []lack.Lack
	}{
		{"/usr/libexec/frr/zebra /usr/sbin/bird", nil},
		{"/usr/sbin/bird", []lack.Lack{noFRR}},
		{"", []lack.Lack{noBIRD, noFRR}},
	} {
		s := &Server{machine: &machine.Machine{Runtime: having{programs: c.programs}}}
		have := s.lackSuites(spec, func(n *slice.Node) bool { return n.Host == "" })
		if diff := cmp.Diff(c.want, have); diff != "" {
			t.Errorf("with %q: -want +have:\n%s", c.programs, diff)
		}
	}
}
