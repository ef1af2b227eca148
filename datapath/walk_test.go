package datapath

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func inWorld(t testing.TB, f func(w *world)) {
	t.Helper()
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { _ = d.Close() }()
		w := newWorld(b, d)
		defer w.close()
		f(w)
	})
}

// passed is what is counted when a frame has passed routers.
func (l line) passed(routers int, more ...string) map[string]uint64 {
	all := map[string]uint64{}
	for i := range routers {
		all[fmt.Sprintf("walked in %d", l.in[i])] = 1
		all[fmt.Sprintf("walked out %d", l.out[i])] = 1
	}
	for _, m := range more {
		all[m] = 1
	}
	return all
}

func (w *world) expect(have outcome, verdict uint32, frame []byte, counted map[string]uint64) {
	w.Helper()
	if diff := cmp.Diff(outcome{verdict, frame, counted}, have); diff != "" {
		w.Errorf("outcome (-want +have):\n%s", diff)
	}
}

func TestWalkPassesRouters(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, hops := range []int{1, 2, 16, 63} {
			l := w.line(hops)
			for _, v6 := range []bool{false, true} {
				w.name = fmt.Sprintf("%d routers, IPv6: %v", hops, v6)
				p := packet{v6: v6}
				w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(2*hops-1), hops),
					l.passed(hops, fmt.Sprintf("handed %d", l.end)))
			}
		}
	})
}

