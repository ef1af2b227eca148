package serve

import (
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
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

func TestSuitesThatAreMissingAreNamedTogether(t *testing.T) {
	frr, bird := &slice.Routing{Daemon: slice.FRR}, &slice.Routing{Daemon: slice.BIRD}
	spec := &slice.Slice{Nodes: []slice.Node{
		{Name: "a", Routing: frr}, {Name: "b", Routing: frr, Rootfs: slice.Rootfs{Kind: slice.RootfsHost}},
		{Name: "c", Routing: bird}, {Name: "d"},
		{Name: "e", Routing: bird, Rootfs: slice.Rootfs{Kind: slice.RootfsRegistry}}, // brings its own
		{Name: "f", Routing: bird, Host: "elsewhere"},
	}}
	for _, c := range []struct{ programs, want string }{
		{"/usr/libexec/frr/zebra /usr/sbin/bird", ""},
		{"/usr/sbin/bird", "not installed: frr for 2 nodes (no /usr/lib/frr/zebra)\ninstall: apt-get install frr"},
		{"", "not installed: bird2 for 1 node (no /usr/sbin/bird); frr for 2 nodes (no /usr/lib/frr/zebra)\n" +
			"install: apt-get install bird2 frr"},
	} {
		s := &Server{machine: &machine.Machine{Runtime: having{programs: c.programs}}}
		got := ""
		if err := s.haveSuites(plan.Place{Host: "here"}, spec); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("with %q: %q, want %q", c.programs, got, c.want)
		}
	}
}
