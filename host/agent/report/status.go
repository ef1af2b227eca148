package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// status says how this host's part of a slice is, but for what is still to be done. before is the report so far.
func (r *Reports) status(p *Pass, w *plan.Input, before *report) slice.Status {
	next := slice.Status{
		Slice: w.Spec.Name, Generation: w.Spec.Generation,
		Nodes: make(map[string]slice.NodeStatus, len(w.Spec.Nodes)),
		Links: make(map[string]slice.LinkStatus, len(w.Spec.Links)),
	}
	var misfits []string
	if y := p.Want.Share(w.Spec.ID); y != nil {
		for i := range w.Spec.Nodes {
			if n := &w.Spec.Nodes[i]; y.ReportsOn(n) {
				st := r.nodeStatus(p, y.Place, w, n, before.restarts[n.Name])
				id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
				st.Message = cmp.Or(st.Message, w.WhyLost(n.Name), r.cfg.Ports(id))
				next.Nodes[n.Name] = st
			}
		}
		for i := range w.Spec.Links {
			if l := &w.Spec.Links[i]; y.HasPart(l) {
				next.Links[l.Name] = linkStatus(p, w, l)
			}
		}
		if hasForeign(p, y, w.Spec.ID) { // the host that has the node now waits for this one to let go of it
			next.Generation = min(next.Generation, before.status.Generation)
		}
		misfits = y.Misfits(w.Spec)
	}
	next.Errors = slices.Concat(
		p.Failures.Messages(w.Spec.ID), p.Want.Problems(w.Spec), p.At.Refusals(w.Spec), misfits)
	return next
}

// hasForeign reports whether a sliver is still here of a node that is another host's, or no host's.
func hasForeign(p *Pass, y *plan.Share, id uint16) bool {
	for s := range p.Seen.Slivers {
		if s.Slice == id && !y.OwnsNamed(s.Node) {
			return true
		}
	}
	return false
}

// nodeStatus tells a node's phase from what was observed of it.
func (r *Reports) nodeStatus(
	p *Pass, at plan.Place, w *plan.Input, n *slice.Node, restarts int,
) slice.NodeStatus {
	id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
	st := slice.NodeStatus{Host: r.cfg.Host, Restarts: restarts, FastPath: r.cfg.Trouble(id)}
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
	k := reconcile.Key{Kind: plan.KindSliver, Slice: w.Spec.ID, Name: n.Name}
	if count, cause := p.Failures.Of(k); cause != nil && !w.Ended[n.Name] {
		st.Phase, st.Message = slice.Failed, fmt.Sprintf("%v (%d times; it is tried again)", cause, count)
	}
	if !n.HasSliver() {
		if st.Phase == "" {
			st.Phase = slice.Running
		}
		return st
	}
	s, there := p.Seen.Slivers[id]
	if !there {
		if st.Phase == "" {
			st.Phase, st.Message = slice.Pending, p.Waits[id].Why
		}
		return st
	}
	st.PID, st.Since, st.NoIPv6 = s.PID, s.StartedAt, p.Seen.NoIPv6[id]
	st.Exec = execResults(s, n.Exec)
	switch s.State {
	case sliver.Running:
		st.Phase, st.Message = slice.Running, ""
	case sliver.Paused:
		st.Phase, st.Message = slice.Paused, ""
	case sliver.Exited:
		st.PID = 0
		st.Phase = slice.Exited
		st.Message = exitMessage(s, n.Memory) + lastLine(r.cfg.LogPath(w.Spec.Name, n.Name))
		st.Done = s.ExitCode == 0 && w.Spec.AwaitsEnd(n.Name)
		if !w.Ended[n.Name] {
			st.Phase, st.Message = slice.Failed, st.Message+"; it is started again"
		}
	default:
		if st.Phase == "" {
			st.Phase, st.Message = slice.Starting, p.Waits[id].Why
		}
	}
	k.Kind = plan.KindProgram
	if _, cause := p.Failures.Of(k); cause != nil {
		st.Message = cause.Error()
		if _, older := p.Seen.Programs[id]; !older {
			st.Phase = slice.Failed
		}
	}
	for _, k.Kind = range []reconcile.Kind{plan.KindOutside, plan.KindProcess} {
		if _, cause := p.Failures.Of(k); cause != nil {
			st.Phase, st.Message = slice.Failed, cause.Error()
		}
	}
	return st
}

// execResults reads how those exec lines ended in a sliver that the file still has. A note that cannot be read says
// nothing.
func execResults(s sliver.Observed, lines []string) (all []slice.ExecResult) {
	if text := s.Notes[plan.ExecNote]; text != "" {
		_ = json.Unmarshal([]byte(text), &all)
	}
	return slices.DeleteFunc(all, func(r slice.ExecResult) bool { return !slices.Contains(lines, r.Line) })
}

func linkStatus(p *Pass, w *plan.Input, l *slice.Link) slice.LinkStatus {
	needed := p.Want.Link(w.Spec.ID, l.Name)
	st := slice.LinkStatus{Up: len(needed) > 0}
	for _, k := range needed {
		st.Up = st.Up && p.Seen.Whole[k]
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

// describe words a node's phase.
func describe(n slice.NodeStatus) string {
	if n.Message != "" {
		return string(n.Phase) + ": " + n.Message
	}
	return string(n.Phase)
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

// lastLine gives the last line that a first process printed, or nothing: it often says why it ended.
func lastLine(log string) string {
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
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	return ": " + string(last[:min(len(last), most)])
}
