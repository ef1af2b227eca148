package agent

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// report is what the agent tells of one slice, and what it remembers in order to tell it.
type report struct {
	status      slice.Status
	restarts    map[string]int // by node: how often its first process was started anew
	fresh       bool           // differs from what was published
	settles     bool           // it settled, which is to be announced if all hosts have
	unannounced *slice.Status  // the store has this, with which it settled, and has not answered yet whether all hosts have
	ask         time.Time      // when to ask that again
	absent      bool           // there is nothing of it here, and nobody waits to hear that
	released    bool           // the store has nothing of it from this host
}

// beginReportLocked brings the reports up to what was seen and what is planned.
func (a *Agent) beginReportLocked(wishes []plan.Input, want *plan.Wanted, broken map[uint16]error, seen *sight, plan []reconcile.Action) {
	left := make(map[uint16]int)
	for _, act := range plan {
		left[act.Key.Slice]++
	}
	now := time.Now()
	for i := range wishes {
		w := &wishes[i]
		r := a.reportLocked(w.Spec.Name)
		next := a.statusLocked(w, want, seen, r)
		if err := broken[w.Spec.ID]; err != nil {
			next.Errors = append(next.Errors, err.Error())
		}
		todo := left[w.Spec.ID] + left[0] + a.bootsLocked(w.Spec.ID, now) + a.restartsLocked(w.Spec.ID, now)
		if r.status.Generation == next.Generation && (!r.status.Settled || todo == 0) {
			next.Done = r.status.Done // also when this host has settled: others may not have, and the sum is shown
		}
		next.Total = next.Done + todo
		next.Settled = todo == 0 && len(next.Errors) == 0
		a.announceLocked(r, &next)
		if next.Settled != r.status.Settled {
			a.flush()
		}
		y := want.Layout(w.Spec.ID)
		r.absent = y != nil && !y.Holds() && !seen.slices[w.Spec.ID] && !hasLeftovers(w.Spec, a.cfg.Host)
		r.status, r.fresh = next, true
	}
	for name, id := range a.deleting {
		r := a.reportLocked(name)
		r.status.Slice, r.status.Settled, r.status.Errors = name, false, a.failuresLocked(id)
		r.status.Done, r.status.Total, r.fresh = 0, left[id]+left[0], true
		r.absent = false
	}
}

// statusLocked says how this host's part of a slice is, but for what is still to be done.
func (a *Agent) statusLocked(w *plan.Input, want *plan.Wanted, seen *sight, r *report) slice.Status {
	next := slice.Status{
		Slice: w.Spec.Name, Generation: w.Spec.Generation,
		Nodes: make(map[string]slice.NodeStatus, len(w.Spec.Nodes)), Links: make(map[string]slice.LinkStatus, len(w.Spec.Links)),
	}
	var misfits []string
	if y := want.Layout(w.Spec.ID); y != nil {
		for i := range w.Spec.Nodes {
			if n := &w.Spec.Nodes[i]; y.ReportsOn(n) {
				next.Nodes[n.Name] = a.nodeStatus(y.Place, w, n, seen, r)
			}
		}
		for i := range w.Spec.Links {
			if l := &w.Spec.Links[i]; y.HasPart(l) {
				next.Links[l.Name] = linkStatus(w, l, want, seen)
			}
		}
		if hasForeign(y, seen, w.Spec.ID) { // whoever has the node now waits for this host to let go of it
			next.Generation = min(next.Generation, r.status.Generation)
		}
		misfits = y.Misfits(w.Spec)
	}
	next.Errors = slices.Concat(a.failuresLocked(w.Spec.ID), want.Problems(w.Spec), a.placeLocked().Refusals(w.Spec), misfits)
	return next
}

// hasForeign reports whether a sliver is still here of a node that is another host's, or nobody's.
func hasForeign(y *plan.Layout, seen *sight, id uint16) bool {
	for s := range seen.slivers {
		if s.Slice == id && !y.OwnsNamed(s.Node) {
			return true
		}
	}
	return false
}

// hasLeftovers reports whether a node was moved away from a host and others want to hear that it is gone.
func hasLeftovers(s *slice.Slice, host string) bool {
	for i := range s.Nodes {
		if _, was := s.Nodes[i].Left[host]; was {
			return true
		}
	}
	return false
}

const (
	// hopeless is how many ends in a row make a node one that does not run, rather than one about to be started again.
	hopeless = 3
	// probation is how long a node must run after that to be told from one that ends at once.
	probation = 500 * time.Millisecond
)

// restartsLocked counts the nodes of a slice that are about to be started again, or just were.
func (a *Agent) restartsLocked(id uint16, now time.Time) (count int) {
	a.crashes.Each(func(k reconcile.Key, _ error, ends int) {
		if k.Slice == id && ends < hopeless && a.crashes.Holds(k, now.Add(-probation)) {
			count++
		}
	})
	return count
}

func (a *Agent) reportLocked(name string) *report {
	r := a.reports[name]
	if r == nil {
		r = &report{restarts: make(map[string]int)}
		a.reports[name] = r
	}
	return r
}

// announceLocked publishes what changed between two reports.
func (a *Agent) announceLocked(r *report, next *slice.Status) {
	for _, name := range slices.Sorted(maps.Keys(next.Nodes)) {
		if now, was := next.Nodes[name], r.status.Nodes[name]; now.Phase != was.Phase {
			a.cfg.Events.Publish(events.Event{Slice: next.Slice, Node: name, Kind: events.NodeChanged, Message: describe(now)})
		}
		if now, was := next.Nodes[name], r.status.Nodes[name]; now.FastPath != was.FastPath && now.FastPath != "" {
			a.cfg.Events.Publish(events.Event{Slice: next.Slice, Node: name, Kind: events.Failed, Message: "off the fast path: " + now.FastPath})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.Links)) {
		if was, known := r.status.Links[name]; known && next.Links[name].Up != was.Up {
			a.cfg.Events.Publish(events.Event{Slice: next.Slice, Link: name, Kind: events.LinkChanged, Message: upOrDown(next.Links[name].Up)})
		}
	}
	switch news := !r.status.Settled || r.status.Generation != next.Generation; {
	case !next.Settled:
		r.settles = false
	case news && a.cfg.Cluster == nil:
		a.announceSettled(next)
	case news:
		r.settles = true
	}
}

func (a *Agent) announceSettled(st *slice.Status) {
	a.cfg.Events.Publish(events.Event{Slice: st.Slice, Kind: events.SliceSettled, Message: fmt.Sprintf("generation %d is as wanted", st.Generation)})
}

func describe(n slice.NodeStatus) string {
	if n.Message != "" {
		return string(n.Phase) + ": " + n.Message
	}
	return string(n.Phase)
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// nodeStatus tells a node's phase from what was seen of it.
func (a *Agent) nodeStatus(at plan.Place, w *plan.Input, n *slice.Node, seen *sight, r *report) slice.NodeStatus {
	st := slice.NodeStatus{
		Host: a.cfg.Host, Restarts: r.restarts[n.Name], FastPath: a.fast.troubleOf(sliver.ID{Slice: w.Spec.ID, Node: n.Name}),
	}
	if w.Overrides.Power[n.Name] == slice.PowerOff {
		st.Phase = slice.Stopped
		return st
	}
	if why := w.Barred(at, n); why != "" {
		st.Phase, st.Message = slice.Pending, why
		if at.Refuses(w.Spec.Name, n) != "" {
			st.Phase = slice.Failed // it waits for nothing that comes by itself
		}
		return st
	}
	key := reconcile.Key{Kind: plan.KindSliver, Slice: w.Spec.ID, Name: n.Name}
	if count, cause := a.backoff.Failures(key); cause != nil && !w.Ended[n.Name] {
		st.Phase, st.Message = slice.Failed, fmt.Sprintf("%v (%d times; it is tried again)", cause, count)
	}
	if !n.HasSliver() {
		if st.Phase == "" {
			st.Phase = slice.Running
		}
		return st
	}
	s, there := seen.slivers[sliver.ID{Slice: w.Spec.ID, Node: n.Name}]
	if !there {
		if st.Phase == "" {
			st.Phase = slice.Pending
		}
		return st
	}
	st.PID, st.Since = s.PID, s.StartedAt
	switch s.State {
	case sliver.Running:
		st.Phase, st.Message = slice.Running, ""
	case sliver.Paused:
		st.Phase, st.Message = slice.Paused, ""
	case sliver.Exited:
		st.PID = 0
		st.Phase, st.Message = slice.Exited, exitMessage(s, n.Memory)+lastWords(a.runtime.LogPath(w.Spec.Name, n.Name))
		if !w.Ended[n.Name] {
			st.Phase, st.Message = slice.Failed, st.Message+"; it is started again"
		}
	default:
		if st.Phase == "" {
			st.Phase = slice.Starting
		}
	}
	if _, cause := a.backoff.Failures(reconcile.Key{Kind: plan.KindProcess, Slice: w.Spec.ID, Name: n.Name}); cause != nil {
		st.Phase, st.Message = slice.Failed, cause.Error()
	}
	return st
}

func linkStatus(w *plan.Input, l *slice.Link, want *plan.Wanted, seen *sight) slice.LinkStatus {
	needed := want.Link(w.Spec.ID, l.Name)
	st := slice.LinkStatus{Up: len(needed) > 0}
	for _, k := range needed {
		st.Up = st.Up && seen.has[k]
	}
	for _, e := range l.Ends {
		if s, changed := w.Overrides.Shapes[e.String()]; changed && !s.Equal(e.Shape) {
			if st.Shapes == nil {
				st.Shapes = make(map[string]slice.Shape)
			}
			st.Shapes[e.String()] = s
		}
	}
	return st
}

// failuresLocked words what failed of a slice, or of the host itself, and is held back.
func (a *Agent) failuresLocked(id uint16) (all []string) {
	a.backoff.Each(func(k reconcile.Key, cause error, _ int) {
		if k.Slice == id || k.Slice == 0 {
			all = append(all, cause.Error())
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// reportActionLocked counts an action that has ended and notes what it did to its node. What failed as it did before is
// no news.
func (a *Agent) reportActionLocked(act reconcile.Action, before, err error) {
	for name, id := range a.deleting {
		if id == act.Key.Slice || act.Key.Slice == 0 {
			r := a.reportLocked(name)
			r.status.Done, r.status.Errors, r.fresh = r.status.Done+1, a.failuresLocked(id), true
		}
	}
	for name, w := range a.wishes {
		if w.Spec.ID != act.Key.Slice && act.Key.Slice != 0 {
			continue
		}
		r := a.reportLocked(name)
		r.fresh = true
		r.status.Done++
		if err != nil {
			r.status.Errors = a.failuresLocked(w.Spec.ID)
			if before != nil && before.Error() == err.Error() {
				continue
			}
			a.cfg.Events.Publish(events.Event{Slice: name, Node: nodeOf(act.Key), Kind: events.Failed, Message: err.Error()})
			continue
		}
		n, known := r.status.Nodes[act.Key.Name]
		if !known || act.Op == reconcile.OpDelete {
			continue
		}
		was := n.Phase
		switch act.Key.Kind {
		case plan.KindSliver:
			n.Phase = slice.Starting
		case plan.KindProcess:
			n.Phase = slice.Running
		}
		if n.Phase != was {
			r.status.Nodes[act.Key.Name] = n
			a.cfg.Events.Publish(events.Event{Slice: name, Node: act.Key.Name, Kind: events.NodeChanged, Message: describe(n)})
		}
	}
}

// countRestart notes that a node is made anew because its first process ended.
func (a *Agent) countRestart(id sliver.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.wishes {
		if w.Spec.ID == id.Slice {
			a.reportLocked(name).restarts[id.Node]++
		}
	}
}

// warn publishes what went wrong in a node and is not tried again.
func (a *Agent) warn(id sliver.ID, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.wishes {
		if w.Spec.ID == id.Slice {
			a.cfg.Events.Publish(events.Event{Slice: name, Node: id.Node, Kind: events.Failed, Message: message})
		}
	}
}

// exitMessage words how a first process ended that may have had so many bytes of memory.
func exitMessage(s sliver.Observed, memory int64) string {
	const killed = 128 + int(unix.SIGKILL)
	switch {
	case s.OutOfMemory && (s.ExitCode < 0 || s.ExitCode == killed):
		return "it needed more than its `memory: " + units.BytesSize(float64(memory)) + "`"
	case s.ExitCode < 0:
		return "its first process ended"
	case s.ExitCode > 128:
		return fmt.Sprintf("its first process was ended by signal %d", s.ExitCode-128)
	}
	return fmt.Sprintf("its first process ended with status %d", s.ExitCode)
}

// lastWords gives the last line that a first process printed, or nothing: it often says why it ended.
func lastWords(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	const most = 200
	tail := make([]byte, 4096) // no more: a line may be as long as the node likes
	n, _ := f.ReadAt(tail, max(0, st.Size()-int64(len(tail))))
	text := bytes.TrimSpace(bytes.ToValidUTF8(tail[:n], nil))
	if len(text) == 0 {
		return ""
	}
	words := text[bytes.LastIndexByte(text, '\n')+1:]
	return ": " + string(words[:min(len(words), most)])
}

// nodeOf gives the node that a resource belongs to by name, or nothing.
func nodeOf(k reconcile.Key) string {
	switch k.Kind {
	case plan.KindSliver, plan.KindNodeNet, plan.KindConfig, plan.KindProcess, plan.KindBoot:
		return k.Name
	}
	return ""
}
