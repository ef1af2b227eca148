package rsvp

import (
	"fmt"
	"maps"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// gracefully has some routers, or all, restart with their entries in quiet time. It says what has changed by it: of
// LSPs that are up, nothing may, but that one is pre-empted by another one that was not up, or replaced as is still
// asked for.
func (w *world) gracefully() string {
	before, up, number := w.snapshot(), map[Key]bool{}, map[message.Session]int{}
	for i, n := range w.routers {
		for k := range n.wanted {
			_, up[k] = before[i][k]
			number[k.Session]++
		}
	}
	for _, n := range w.routers { // what is repaired does not last over a restart of a router of its bypass
		for k, s := range n.lsps {
			if s.repair != nil {
				delete(up, k)
			}
		}
	}
	w.restartSome()
	for _, n := range w.routers {
		for _, e := range n.events {
			if e.Kind == Replaced || e.Kind == Failed && e.Error.Code == message.PolicyFailure {
				maps.DeleteFunc(up, func(k Key, _ bool) bool { return k.Session == e.Key.Session })
			}
		}
	}
	for i, n := range w.routers {
		for _, k := range sortedKeys(before[i]) {
			old, fresh := before[i][k], n.installed[k]
			if number[k.Session] > 1 { // what LSPs share depends on how far each of them has come
				old.Bandwidth, fresh.Bandwidth = 0, 0
			}
			if up[k] && old != fresh {
				return fmt.Sprintf("router %d, before a restart: %+v, after: %+v", i, old, fresh)
			}
		}
		for _, e := range n.events {
			if e.Kind == Down && up[e.Key] {
				return fmt.Sprintf("router %d, after a restart: %s was down", i, e.Key)
			}
		}
	}
	return w.inconsistent()
}

func (w *world) restartSome() {
	for i := range w.routers {
		if w.random.IntN(2) == 0 {
			w.crash(i)
			w.run(time.Duration(w.random.IntN(2)) * time.Second)
		}
	}
	for i, n := range w.routers {
		if n.dead {
			w.resume(i, false)
			w.run(time.Duration(w.random.IntN(2)) * time.Second)
		}
	}
	w.run(2 * testRecovery)
}
