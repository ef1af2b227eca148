// Package waits says which nodes are not to be started yet: they wait for a time, or for other nodes.
package waits

import (
	"fmt"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Wait is why a node's first process is not started now.
type Wait struct {
	Why   string
	Until time.Time // when to look again; zero: when something has happened
}

// Waits are those of the nodes of a host.
type Waits map[sliver.ID]Wait

// Holds tells whether a resource is not to be made now.
func (w Waits) Holds(k reconcile.Key) bool {
	_, waits := w[sliver.ID{Slice: k.Slice, Node: k.Name}]
	return waits && k.Kind == plan.KindProcess
}

// Next is when to look again, at most so long after now.
func (w Waits) Next(now time.Time, most time.Duration) time.Duration {
	for _, one := range w {
		if !one.Until.IsZero() {
			most = min(most, max(one.Until.Sub(now), 0))
		}
	}
	return most
}

// Of finds the nodes that wait. booting are those whose exec lines still run.
func Of(want *plan.Wanted, seen *observe.Snapshot, booting map[sliver.ID]bool, now time.Time) Waits {
	all := make(Waits)
	for i := range want.Resources {
		k := want.Resources[i].Key
		if k.Kind != plan.KindProcess {
			continue
		}
		p, _ := want.Detail(k).(plan.Process)
		if _, runs := seen.Whole[k]; runs || p.Delay == 0 && len(p.After) == 0 {
			continue
		}
		h := host{want, seen, booting}
		if w, waits := h.wait(sliver.ID{Slice: k.Slice, Node: k.Name}, p, now); waits {
			all[sliver.ID{Slice: k.Slice, Node: k.Name}] = w
		}
	}
	return all
}

type host struct {
	want    *plan.Wanted
	seen    *observe.Snapshot
	booting map[sliver.ID]bool
}

func (h host) wait(id sliver.ID, p plan.Process, now time.Time) (w Wait, waits bool) {
	var reasons []string
	for _, other := range p.After {
		if missing := h.missing(id.Slice, other); missing != "" {
			reasons = append(reasons, missing)
		}
	}
	if len(reasons) > 0 {
		return Wait{Why: "waits for " + strings.Join(reasons, ", and for ")}, true
	}
	if p.Delay == 0 {
		return Wait{}, false
	}
	made := now // it is about to be made
	if s, there := h.seen.Slivers[id]; there && (s.State == sliver.Created) {
		made = s.CreatedAt
	}
	due := made.Add(p.Delay)
	return Wait{fmt.Sprintf("is started %s after it was made", p.Delay), due}, now.Before(due)
}

// missing says what a node that is waited for has not done yet; empty: nothing.
func (h host) missing(id uint16, w slice.WaitFor) string {
	s := h.seen.Slivers[sliver.ID{Slice: id, Node: w.Node}]
	started := s.State == sliver.Running || s.State == sliver.Paused
	ended := s.State == sliver.Exited && s.ExitCode == 0
	var reached bool
	switch w.Until {
	case slice.UntilRunning:
		reached = started || ended
	case slice.UntilReady:
		boot := reconcile.Key{Kind: plan.KindBoot, Slice: id, Name: w.Node}
		reached = started && !h.booting[s.ID] && (!h.want.Has(boot) || h.seen.Whole[boot])
	case slice.UntilExited:
		reached = ended
	}
	switch {
	case reached:
		return ""
	case s.State == sliver.Exited && s.ExitCode != 0:
		return fmt.Sprintf("%s, which has ended with status %d", w.Reached(), s.ExitCode)
	}
	return w.Reached()
}
