// Package follow waits for what a server does in the background and shows how far it is.
package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Server is the part of the client that is needed here.
type Server interface {
	Progress(ctx context.Context, name string, each func(api.Progress) (stop bool)) error
	Convergence(ctx context.Context, name string) (*api.Convergence, error)
}

// StallTimeout is how long a host may fail at something without any progress before the wait ends. The host
// itself goes on trying.
const StallTimeout = 15 * time.Second

// NotReached is the error of a network that does not reach the state that was waited for. Any other error means that
// its state could not be determined.
type NotReached struct{ Err error }

func (e *NotReached) Error() string { return e.Err.Error() }

func (e *NotReached) Unwrap() error { return e.Err }

func notReached(format string, args ...any) error { return &NotReached{fmt.Errorf(format, args...)} }

var errStalled = errors.New("no progress")

// Settled waits until the hosts have nothing left to do for a generation of a slice, and gives the last status. An
// error says what does not come up.
func Settled(ctx context.Context, s Server, p *ui.Progress, name string, generation int64) (slice.Status, error) {
	var last slice.Status
	settled := false
	w := newWatch(ctx, p)
	defer w.stop()
	err := s.Progress(w.ctx, name, func(m api.Progress) bool {
		if m.Gone || m.Deleting {
			w.cancel(fmt.Errorf("another user took it down"))
			return true
		}
		if m.Status.Generation < generation {
			p.Step("bringing "+name+" up", 0, 0)
			if lost := lost(&m.Status); len(lost) > 0 { // it does not receive the new generation
				last = m.Status
				w.see(&m.Status, 0)
			}
			return false
		}
		last = m.Status
		up, all := parts(&m.Status)
		w.see(&m.Status, up)
		if !w.failed { // else tries count among what was done
			up, all = m.Status.Done, m.Status.Total
		}
		p.Step("bringing "+name+" up"+waiting(&m.Status), up, all)
		settled = m.Status.Settled
		return settled
	})
	if settled {
		return last, dead(name, &last)
	}
	return last, w.explain(err, "bring "+name+" up", faults(&last))
}

// waiting says which nodes are not started yet because they wait for others, or for a time.
func waiting(st *slice.Status) string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(st.Nodes)) {
		n := st.Nodes[node]
		if (n.Phase == slice.Pending || n.Phase == slice.Starting) && n.Message != "" {
			all = append(all, node+" "+n.Message)
		}
	}
	switch {
	case len(all) == 0:
		return ""
	case len(all) == 1:
		return ": " + all[0]
	}
	return fmt.Sprintf(": %s; %d more wait", all[0], len(all)-1)
}

// faults are the actions that fail, the nodes that have ended though they should run, and the hosts that do not answer.
func faults(st *slice.Status) []string {
	all := slices.Clone(st.Errors)
	for _, node := range slices.Sorted(maps.Keys(st.Nodes)) {
		if n := st.Nodes[node]; n.Phase == slice.Exited && !n.Done {
			all = append(all, fmt.Sprintf("%s %s: %s", node, n.Phase, n.Message))
		}
	}
	return append(all, lost(st)...)
}

// lost says which hosts do not answer that have nodes of a slice.
func lost(st *slice.Status) []string {
	hosts := map[string]bool{}
	for _, n := range st.Nodes {
		if n.Phase == slice.Lost {
			hosts[n.Host] = true
		}
	}
	var said []string
	for _, h := range slices.Sorted(maps.Keys(hosts)) {
		said = append(said, fmt.Sprintf("host %s does not answer; where it will not come back, `pergola "+
			"host rm %[1]s` removes it", h))
	}
	return said
}

// parts counts the nodes and links of a slice, and those that are as they should be.
func parts(st *slice.Status) (up, all int) {
	for _, n := range st.Nodes {
		if n.Phase == slice.Running || n.Phase == slice.Stopped || n.Phase == slice.Paused {
			up++
		}
	}
	for _, l := range st.Links {
		if l.Up {
			up++
		}
	}
	return up, len(st.Nodes) + len(st.Links)
}

// dead is an error where a settled slice has nodes that do not run though they should.
func dead(name string, st *slice.Status) error {
	var faults []string
	for node, n := range st.Nodes {
		if n.Phase == slice.Failed || n.Phase == slice.Exited && !n.Done {
			faults = append(faults, fmt.Sprintf("%s %s: %s", node, n.Phase, n.Message))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return notRunning(name, faults)
}

func countBe(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return wording.Count(n, "node") + " are"
}

// Gone waits until nothing of a slice is left.
func Gone(ctx context.Context, s Server, p *ui.Progress, name string) error {
	gone := false
	var last slice.Status
	w := newWatch(ctx, p)
	defer w.stop()
	err := s.Progress(w.ctx, name, func(m api.Progress) bool {
		gone, last = m.Gone, m.Status
		w.see(&m.Status, m.Status.Done-m.Status.Total)
		p.Step("taking "+name+" down", m.Status.Done, m.Status.Total)
		return gone
	})
	if gone {
		return nil
	}
	return w.explain(err, "take "+name+" down", faults(&last))
}

// watch ends a wait in which actions fail and nothing progresses.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	p      *ui.Progress
	timer  *time.Timer // runs while something fails; starts again on progress

	failing bool                 // now
	failed  bool                 // now or before
	best    int                  // how far it ever was
	planned int                  // actions, at first
	since   map[string]time.Time // when an error was first seen
	shown   map[string]bool      // errors
}

// maxRepeats: a host that has carried out twice as many actions as were planned, and this many more, repeats itself.
const maxRepeats = 50

func newWatch(ctx context.Context, p *ui.Progress) *watch {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx, cancel: cancel, p: p, best: math.MinInt, since: map[string]time.Time{},
		shown: map[string]bool{}}
	w.timer = time.AfterFunc(StallTimeout, func() { cancel(errStalled) })
	w.timer.Stop()
	return w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// see notes how far the work is: a number that rises.
func (w *watch) see(st *slice.Status, far int) {
	all := faults(st)
	w.tell(all)
	if w.planned == 0 {
		w.planned = st.Total
	}
	failing := len(all) > 0 || st.Done > 2*w.planned+maxRepeats
	switch {
	case !failing:
		w.timer.Stop()
	case !w.failing, far > w.best:
		w.timer.Reset(StallTimeout)
	}
	w.failing, w.best = failing, max(far, w.best)
	w.failed = w.failed || w.failing
}

// tell writes each error that lasts, once. Most errors end without help, because a host retries.
func (w *watch) tell(faults []string) {
	const (
		lasts = 3 * time.Second
		few   = 5
	)
	now := time.Now()
	for _, f := range faults {
		first, known := w.since[f]
		if !known {
			w.since[f] = now
			continue
		}
		if now.Sub(first) >= lasts && !w.shown[f] && len(w.shown) < few {
			w.shown[f] = true
			w.p.Note("still trying: %s", f)
		}
	}
}

// explain says why a wait ended before its time.
func (w *watch) explain(err error, what string, faults []string) error {
	const goesOn = "the server continues: `pergola inspect` shows the state, `pergola events -f` what happens"
	switch cause := context.Cause(w.ctx); {
	case errors.Is(cause, errStalled):
		return ui.Advise(notReached("%s: no progress for %s", what, ui.Elapsed(StallTimeout)), "%s\n%s",
			list(faults), goesOn)
	case errors.Is(cause, context.DeadlineExceeded):
		return ui.Advise(notReached("%s: not done in time", what), "%s\n%s", list(faults), goesOn)
	case cause != nil && !errors.Is(cause, context.Canceled):
		err = cause
	}
	if err == nil {
		err = client.ErrEnded
	}
	return fmt.Errorf("%s: %w", what, err)
}

// list writes faults on lines of their own, at most ten.
func list(faults []string) string {
	const few = 10
	if len(faults) > few {
		rest := fmt.Sprintf("and %d more", len(faults)-few)
		faults = append(faults[:few:few], rest)
	}
	return strings.Join(faults, "\n")
}

// The pause between two questions about routing: four times what the answer took, so that looking leaves the processors
// to the routers.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 2 * time.Second
)

// silence is how long routing may be without progress before the wait says what is missing.
const silence = 10 * time.Second

// Converged waits until every node runs and routing has settled, at most until the deadline of ctx. It gives up on
// nodes that do not come to run within StallTimeout.
func Converged(ctx context.Context, s Server, p *ui.Progress, name string) (*api.Convergence, error) {
	var last *api.Convergence
	progress := time.Now()
	told := false
	var nodes downNodes
	for {
		asked := time.Now()
		now, err := s.Convergence(ctx, name)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return last, notConverged(name, last)
		case err != nil:
			return last, fmt.Errorf("ask %s about convergence: %w", name, err)
		case now.Converged:
			return now, unjudged(name, now)
		}
		if last == nil || now.Reached > last.Reached {
			progress, told = time.Now(), false
		}
		last = now
		if nodes.see(now.Down, time.Now()) >= StallTimeout {
			return last, notRunning(name, now.Down)
		}
		if time.Since(progress) >= silence && !told {
			told = true
			tellMissing(p, now)
		}
		if len(now.Down) > 0 {
			p.Step("waiting for nodes of "+name+" to run", 0, 0)
		} else {
			p.Step("waiting for routing in "+name+" to converge", now.Reached, now.Pairs)
		}
		select {
		case <-time.After(min(mostPause, max(leastPause, 4*time.Since(asked)))):
		case <-ctx.Done():
		}
	}
}

// downNodes remembers since when nodes do not run. A node that is started again and again does not run.
type downNodes struct{ since, seen map[string]time.Time }

// soundAfter is how long a node must not have been seen down to count as one that runs.
const soundAfter = 5 * time.Second

// see notes which nodes are down, each in a text that begins with its name, and gives for how long the one is that has
// been down longest.
func (d *downNodes) see(down []string, now time.Time) (longest time.Duration) {
	if d.since == nil {
		d.since, d.seen = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, text := range down {
		node, _, _ := strings.Cut(text, " ")
		node = strings.TrimSuffix(node, ":")
		if now.Sub(d.seen[node]) > soundAfter {
			d.since[node] = now
		}
		d.seen[node] = now
		longest = max(longest, now.Sub(d.since[node]))
	}
	return longest
}

// unjudged is the error of a network in which no routing could be judged, though there is some.
func unjudged(name string, c *api.Convergence) error {
	if c.Routers > 0 || len(c.Unjudged) == 0 {
		return nil
	}
	err := fmt.Errorf("%s: whether routing has converged cannot be judged", name)
	return ui.WithCode(ui.Advise(err, "%s", list(c.Unjudged)), ui.ExitNothing)
}

// tellMissing says what a wait without progress waits for.
func tellMissing(p *ui.Progress, c *api.Convergence) {
	const few = 3
	missing := slices.Concat(c.Down, c.Missing)
	for _, m := range missing[:min(few, len(missing))] {
		p.Note("still waiting: %s", m)
	}
	if more := len(missing) - few; more > 0 {
		p.Note("still waiting: and %d more", more)
	}
}

// notRunning is the error of a network that has nodes which do not run though they should.
func notRunning(name string, faults []string) error {
	return ui.Advise(notReached("%s: %s not running", name, countBe(len(faults))),
		"%s\nlook into them with `pergola logs NODE`", list(faults))
}

func notConverged(name string, last *api.Convergence) error {
	switch {
	case last == nil:
		return notReached("%s: routing has not converged in time", name)
	case len(last.Down) > 0:
		return notRunning(name, last.Down)
	}
	return ui.Advise(notReached("%s: routing has not converged in time: %d of %s reached", name, last.Reached,
		wording.Count(last.Pairs, "destination")), "%s", list(last.Missing))
}
