package follow

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// story is a server that sends fixed progress, then nothing.
type story struct {
	messages []api.Progress
	every    time.Duration // between messages
	routing  []api.Convergence
	asked    int
}

func (s *story) Progress(ctx context.Context, _ string, each func(api.Progress) bool) error {
	for _, m := range s.messages {
		if each(m) {
			return nil
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *story) Convergence(ctx context.Context, _ string) (*api.Convergence, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.asked++
	c := s.routing[min(s.asked, len(s.routing))-1]
	return &c, nil
}

func show() (*ui.Progress, *bytes.Buffer) {
	var errs bytes.Buffer
	return ui.New(strings.NewReader(""), &bytes.Buffer{}, &errs).Progress(), &errs
}

func status(generation int64, done, total int, settled bool, errs ...string) api.Progress {
	return api.Progress{Status: slice.Status{Generation: generation, Done: done, Total: total, Settled: settled,
		Errors: errs}}
}

// running adds a node that runs.
func running(m api.Progress, node string) api.Progress {
	m.Status.Nodes = map[string]slice.NodeStatus{node: {Phase: slice.Running}}
	return m
}

func TestSettledWaitsForTheGenerationThatWasApplied(t *testing.T) {
	p, _ := show()
	s := &story{messages: []api.Progress{
		status(1, 9, 9, true), // the version before
		status(2, 0, 3, false), status(2, 3, 3, true),
	}}
	st, err := Settled(t.Context(), s, p, "lab", 2)
	if err != nil || st.Generation != 2 || st.Done != 3 {
		t.Errorf("got generation %d, %d done, %v", st.Generation, st.Done, err)
	}
}

func TestSettledNamesTheNodesThatDoNotRun(t *testing.T) {
	p, _ := show()
	m := status(1, 1, 1, true)
	m.Status.Nodes = map[string]slice.NodeStatus{"a": {Phase: slice.Running},
		"b": {Phase: slice.Exited, Message: "status 1"}}
	_, err := Settled(t.Context(), &story{messages: []api.Progress{m}}, p, "lab", 1)
	var advice *ui.Error
	if !errors.As(err, &advice) || err.Error() != "lab: 1 node is not running" ||
		!strings.Contains(advice.Do, "b exited: status 1") {
		t.Errorf("got %v, %+v", err, advice)
	}
}

func TestSettledGivesUpWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, errs := show()
		began := time.Now()
		const fault = "make x: no space"
		s := &story{every: time.Second, messages: []api.Progress{status(1, 0, 3, false),
			status(1, 1, 3, false, fault)}}
		for retry := range 30 { // each is an action that was carried out, and none is progress
			s.messages = append(s.messages, running(status(1, 2+retry, 3+retry, false, fault), "a"))
		}
		_, err := Settled(t.Context(), s, p, "lab", 1)
		p.Close()
		if err == nil || !strings.Contains(err.Error(), "no progress for 15 s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 2*time.Second+StallTimeout {
			t.Errorf("gave up after %s, %s after the last progress", took, took-2*time.Second)
		}
		if n := strings.Count(errs.String(), "make x"); n != 1 {
			t.Errorf("the error was told %d times:\n%s", n, errs)
		}
	})
}

func TestSettledGivesUpOnAHostThatRepeatsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := show()
		defer p.Close()
		s := &story{every: 100 * time.Millisecond}
		for i := range 1000 {
			s.messages = append(s.messages, running(status(1, i, i+1, false), "a"))
		}
		_, err := Settled(t.Context(), s, p, "lab", 1)
		if err == nil || !strings.Contains(err.Error(), "no progress for 15 s") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWaitsNameHostsThatAreLost(t *testing.T) {
	lost := status(1, 3, 3, false)
	lost.Status.Nodes = map[string]slice.NodeStatus{"a": {Phase: slice.Running, Host: "h1"},
		"b": {Phase: slice.Lost, Host: "h2"}, "c": {Phase: slice.Lost, Host: "h2"}}
	synctest.Test(t, func(t *testing.T) {
		p, _ := show()
		defer p.Close()
		s := &story{messages: []api.Progress{lost}}
		for _, generation := range []int64{1, 2} {
			_, err := Settled(t.Context(), s, p, "lab", generation)
			var advice *ui.Error
			if !errors.As(err, &advice) || strings.Count(advice.Do, "host h2 does not answer") != 1 ||
				!strings.Contains(advice.Do, "pergola host rm h2") {
				t.Errorf("generation %d: %v", generation, err)
			}
		}
		err := Gone(t.Context(), s, p, "lab")
		var advice *ui.Error
		if !errors.As(err, &advice) || !strings.Contains(advice.Do, "pergola host rm h2") {
			t.Errorf("down: %v", err)
		}
	})
}

func TestGoneEndsWithTheLastMessage(t *testing.T) {
	p, _ := show()
	s := &story{messages: []api.Progress{status(1, 1, 2, false), {Gone: true}}}
	if err := Gone(t.Context(), s, p, "lab"); err != nil {
		t.Error(err)
	}
}

func TestSettledNoticesThatItIsTakenDown(t *testing.T) {
	p, _ := show()
	_, err := Settled(t.Context(), &story{messages: []api.Progress{{Deleting: true}}}, p, "lab", 1)
	if err == nil || !strings.Contains(err.Error(), "another user took it down") {
		t.Errorf("got %v", err)
	}
}

func TestConvergedCountsRouters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := show()
		defer p.Close()
		s := &story{routing: []api.Convergence{{Pairs: 2}, {Pairs: 2, Reached: 1},
			{Pairs: 2, Reached: 2, Converged: true}}}
		c, err := Converged(t.Context(), s, p, "lab")
		if err != nil || c.Reached != 2 {
			t.Errorf("got %+v, %v", c, err)
		}
	})
}

func TestNotConvergedSaysWhoWaitsForWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := show()
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := &story{routing: []api.Convergence{{Pairs: 2, Reached: 1, Missing: []string{"b: no route to a"}}}}
		_, err := Converged(ctx, s, p, "lab")
		var advice *ui.Error
		var late *NotReached
		if !errors.As(err, &late) || !errors.As(err, &advice) || advice.Do != "b: no route to a" {
			t.Errorf("got %v", err)
		}
	})
}

func TestConvergedGivesUpOnNodesThatDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told := show()
		began := time.Now()
		s := &story{routing: []api.Convergence{{Down: []string{"a is not started yet", "b: ended"}},
			{Down: []string{"b: ended"}}}}
		_, err := Converged(t.Context(), s, p, "lab")
		p.Close()
		var advice *ui.Error
		var late *NotReached
		if !errors.As(err, &late) || !errors.As(err, &advice) || !strings.HasPrefix(advice.Do, "b: ended") ||
			late.Error() != "lab: 1 node is not running" {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < StallTimeout || took > StallTimeout+2*mostPause {
			t.Errorf("it took %v", took)
		}
		if want := "still waiting: b: ended"; strings.Count(told.String(), want) != 1 {
			t.Errorf("%q is not told once:\n%s", want, told)
		}
	})
}

func TestConvergedSaysWhatIsMissingWhenNothingProgresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told := show()
		ctx, cancel := context.WithTimeout(t.Context(), 3*silence)
		defer cancel()
		s := &story{routing: []api.Convergence{{Pairs: 5, Reached: 1, Missing: []string{"1", "2", "3", "4"}}}}
		_, err := Converged(ctx, s, p, "lab")
		p.Close()
		if want := "still waiting: 3\nstill waiting: and 1 more\n"; strings.Count(told.String(), want) != 1 ||
			strings.Contains(told.String(), "waiting: 4") {
			t.Errorf("told:\n%s", told)
		}
		if !errors.As(err, new(*NotReached)) {
			t.Errorf("got %v", err)
		}
	})
}

// A node that is down for a moment, while routing takes its time, is no node that does not run; one that ends again and
// again is.
func TestConvergedTellsRestartsFromNodesThatDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := show()
		defer p.Close()
		var slow []api.Convergence
		for range 100 {
			slow = append(slow, api.Convergence{Pairs: 2})
		}
		slow = append(slow, api.Convergence{Pairs: 2, Down: []string{"b is not started yet"}},
			api.Convergence{Pairs: 2, Reached: 2, Converged: true})
		if _, err := Converged(t.Context(), &story{routing: slow}, p, "lab"); err != nil {
			t.Errorf("one restart: %v", err)
		}
		var loop []api.Convergence
		for range 200 {
			ended := []string{"b: its first process ended"}
			loop = append(loop, api.Convergence{Down: ended}, api.Convergence{})
		}
		_, err := Converged(t.Context(), &story{routing: loop}, p, "lab")
		if !errors.As(err, new(*NotReached)) {
			t.Errorf("a node that ends again and again: %v", err)
		}
	})
}
