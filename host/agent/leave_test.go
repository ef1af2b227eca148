package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
)

// A BIRD router that starts anew tells its neighbours before; one that is stopped, as if its power failed, does not,
// and no router does when its network is taken down.
func TestLoopHasRoutersLeaveBeforeTheyStartAnew(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "h2"})
	n := s.Node("h1")
	n.Kind = slice.Router
	n.Routing = &slice.Routing{
		Daemon: slice.BIRD, Protocols: []slice.Protocol{slice.OSPF}, RouterID: netip.MustParseAddr("192.0.2.1"),
	}
	in := &plan.Input{Spec: s, Overrides: slice.Overrides{
		Restarts: map[string]int{}, Power: map[string]slice.Power{},
	}}
	l.wanted["lab1"] = in
	l.settle(t)
	left := func() (names []string) {
		l.memoryMachine.mu.Lock()
		defer l.memoryMachine.mu.Unlock()
		for _, command := range l.ran {
			if strings.Contains(command, "stub router yes") {
				names = append(names, command[:strings.Index(command, " ")])
			}
		}
		l.ran = nil
		return names
	}
	if got := left(); len(got) != 0 {
		t.Errorf("at first, %q left", got)
	}
	in.Overrides.Restarts["h1"]++
	l.settle(t)
	if got := left(); !slices.Equal(got, []string{"h1"}) {
		t.Errorf("after a restart, %q had left", got)
	}
	in.Overrides.Power["h1"] = slice.PowerOff
	l.settle(t)
	in.Overrides.Power["h1"] = slice.PowerOn
	l.settle(t)
	l.down(t)
	if got := left(); len(got) != 0 {
		t.Errorf("without power, or with the network, %q left", got)
	}
}
