package mirror

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// numbers notes what the mirror tells of the numbers under which routers are counted.
type numbers struct {
	mu    sync.Mutex
	live  map[uint32]string
	wrong []string
	had   int
}

func (n *numbers) config(cfg *Config) {
	n.live = map[uint32]string{}
	cfg.Live = func(name string, number uint32) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.live[number] != "" {
			n.wrong = append(n.wrong, fmt.Sprintf("%d is %s's and %s's", number, n.live[number], name))
		}
		n.live[number] = name
		n.had++
	}
	cfg.Gone = func(name string, number uint32) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.live[number] != name {
			n.wrong = append(n.wrong, fmt.Sprintf("%d was not %s's", number, name))
		}
		delete(n.live, number)
	}
}

func (n *numbers) check(t *testing.T, live, had int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.live) != live || n.had != had || n.wrong != nil {
		t.Errorf(
			"routers have the numbers %v, after %d in all; want %d, %d; wrong: %q",
			n.live,
			n.had,
			live,
			had,
			n.wrong,
		)
	}
}

func TestCountersGoOnWhenARouterIsReadAgain(t *testing.T) {
	var n numbers
	l := newLab(t, n.config)
	var last Counters
	count := func(when string, resyncs, left int) {
		t.Helper()
		testkit.Eventually(t, func() error {
			s, err := l.mirror.Status(l.name)
			if err != nil {
				return err
			}
			c := s.Counters
			if c.Resyncs < last.Resyncs || c.Left[0] < last.Left[0] || c.Left[1] < last.Left[1] ||
				c.Events < last.Events {
				t.Fatalf("%s: counters go back from %+v to %+v", when, last, c)
			}
			last = c
			if c.Resyncs != resyncs || c.Left != [2]int{left, left} || !s.IPv4.FastPath ||
				!s.IPv6.FastPath {
				return fmt.Errorf("%+v", s)
			}
			return nil
		}, 10*time.Second, fmt.Sprintf("%s: the router on the fast path, read %d times again, left %d "+
			"times", when,
			resyncs, left))
	}
	count("at first", 0, 0)
	n.check(t, 1, 1)

	node, err := l.mirror.node(l.name)
	if err != nil {
		t.Fatal(err)
	}
	node.startOver("the test says so")
	count("after an audit found a difference", 1, 1)
	n.check(t, 1, 2)

	l.set(Router{Off: true})
	testkit.Eventually(t, func() error {
		if s, err := l.mirror.Status(l.name); err != nil || s.IPv4.FastPath || s.IPv6.FastPath {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 10*time.Second, "the router to be off")
	l.set(Router{})
	count("after a capture", 1, 2)
	n.check(t, 1, 2)

	for index := range l.legs { // one leg fewer
		delete(l.legs, index)
		break
	}
	l.set(Router{})
	count("after a change of legs", 2, 3)
	n.check(t, 1, 3)
	<-l.mirror.Remove(l.name)
	n.check(t, 0, 3)
}
