package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// While one router's session works, for however long, callers that ask about it or deal with others do not wait.
func TestNobodyWaitsForAnothersWork(t *testing.T) {
	l := newLab(t)
	calm := l.another()
	l.synced()
	calm.synced()
	s := l.session()
	s.mu.Lock() // it works
	removed := l.mirror.Remove(l.name)
	if names := l.mirror.Names(); len(names) != 1 {
		t.Errorf("mirrored are %v", names)
	}
	done := make(chan error, 1)
	go func() { done <- calm.goAndReturn() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the other router waits")
	}
	select {
	case <-removed:
		t.Error("the router is said to be gone while it is in the maps")
	default:
	}
	s.mu.Unlock()
	<-removed
}

// goAndReturn is for goroutines other than the test's.
func (l *lab) goAndReturn() error {
	is := func(what string, ok func(Status) bool) error {
		return testkit.Poll(func() error {
			s, err := l.mirror.Status(l.name)
			if err != nil || !ok(s) {
				return fmt.Errorf("not %s: %+v, %w", what, s, err)
			}
			return nil
		}, 10*time.Second)
	}
	<-l.mirror.Remove(l.name)
	if err := l.trySet(Router{}); err != nil {
		return err
	}
	if err := is("synchronised", func(s Status) bool { return s.Synchronised }); err != nil {
		return err
	}
	if found, err := l.mirror.Verify(context.Background(), l.name); err != nil || len(found) > 0 {
		return fmt.Errorf("%v differ: %w", found, err)
	}
	if err := l.trySet(Router{Off: true}); err != nil {
		return err
	}
	return is("switched off", func(s Status) bool { return !s.IPv4.FastPath && !s.IPv6.FastPath })
}

func TestStatusDoesNotWait(t *testing.T) {
	l := newLab(t)
	l.fastPath(true, true, "")
	s := l.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := make(chan Status, 1)
	go func() {
		st, err := l.mirror.Status(l.name)
		if err != nil {
			t.Error(err)
		}
		answered <- st
	}()
	select {
	case st := <-answered:
		if !st.IPv4.FastPath || st.IPv4.Routes == 0 {
			t.Errorf("%+v", st)
		}
	case <-time.After(20 * time.Second):
		t.Error("Status waits")
	}
}

// A router that is set again while what it was before is being removed begins when that is out of the maps.
func TestSetWhileItIsRemoved(t *testing.T) {
	l := newLab(t)
	l.synced()
	s := l.session()
	s.mu.Lock()
	removed := l.mirror.Remove(l.name)
	was, err := l.mirror.Set(l.name, Router{Slice: 1, NetNS: l.ns, Legs: l.legs})
	if err != nil {
		t.Error(err) // no Fatal: s.mu is held
	}
	again := l.mirror.Remove(l.name)
	if _, err := l.mirror.Set(l.name, Router{Slice: 1, NetNS: l.ns, Legs: l.legs}); err != nil {
		t.Error(err) // no Fatal: s.mu is held
	}
	for name, gone := range map[string]<-chan struct{}{"removed": removed, "replaced": was,
		"removed again": again} {
		select {
		case <-gone:
			t.Errorf("what is %s is said to be gone while it is in the maps", name)
		default:
		}
	}
	s.mu.Unlock()
	<-again
	for name, gone := range map[string]<-chan struct{}{"removed": removed, "replaced": was} {
		select {
		case <-gone:
		default:
			t.Errorf("what is %s is not gone, and what came later is", name)
		}
	}
	l.synced()
	l.leads("10.0.0.7", "link@100")
}

// The maps' memory may go as soon as the mirror is closed, also while it is verified.
func TestCloseWaitsForVerify(t *testing.T) {
	l := newLab(t)
	l.batch(manyRoutes(5000))
	l.synced()
	begun := make(chan struct{}, 4)
	var group sync.WaitGroup
	for range cap(begun) {
		group.Go(func() {
			for first := true; ; first = false {
				_, err := l.mirror.Verify(context.Background(), l.name)
				if first {
					begun <- struct{}{}
				}
				if errors.Is(err, ErrUnknown) || errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil && !errors.Is(err, errNoSession) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	l.mirror.Close()
	if err := l.fib.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
}
