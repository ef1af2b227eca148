package drive

import (
	"testing"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
)

func TestTheWatchdogIsCalledForNodesThatMayStartElsewhereAlone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	all := []plan.Input{{Spec: s}}
	here, fenced := plan.Place{Host: "A"}, plan.Place{Host: "A", Fenced: true}
	if hasMarks(here, all) {
		t.Error("no node may start elsewhere")
	}
	s.Node("h2").Placement.Reschedule = slice.RescheduleAlways
	if hasMarks(here, all) {
		t.Error("the one that may is on another host")
	}
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	if !hasMarks(here, all) || hasMarks(fenced, all) {
		t.Error("h1 may, and is here unless the fence is closed")
	}
}
