package datapath

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bucket is when a tunnel's bucket will be full.
func (w *world) bucket(port int) (full uint64) {
	w.Helper()
	var m objectMeter
	w.check(w.d.maps.Meters.Lookup(uint32(port), &m))
	return m.FramesFull
}

func (w *world) setBucket(port int, full uint64) {
	w.Helper()
	var m objectMeter
	w.check(w.d.maps.Meters.Lookup(uint32(port), &m))
	m.FramesFull = full
	w.check(w.d.maps.Meters.Put(uint32(port), m))
}

// coarseNow is the time as programs see it.
func (w *world) coarseNow() uint64 {
	var now unix.Timespec
	w.check(unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return uint64(now.Nano())
}

func TestStormControlBoundsFramesToGroups(t *testing.T) {
	const rate, gap = 10, uint64(time.Second / 10)
	inUplinkedWorld(t, func(w *world) {
		tunnel := sorts[0]
		tunnel.StormControl = rate
		port := w.tunnelled(w.port(macB), tunnel)
		w.check(w.d.Set(w.a, Port{Mode: Tunnelled, Peer: port, MTU: 9000})) // as behind a bridge
		send := func(to [6]byte, ctx skbuff) outcome {
			have := w.send(packet{to: to, payload: 3000}.bytes(), ctx)
			return outcome{have.Verdict, nil, merge(have.Counted, w.takeAll())}
		}
		passes := func(have outcome) {
			w.Helper()
			w.expect(have, verdictRedirect, nil, map[string]uint64{Sent: 1})
		}
		groups := map[string][6]byte{"broadcast": broadcast, "multicast": {1, 0, 0x5e, 0, 0, 5}}

		for name, to := range groups {
			w.name = name + ", the bucket is full"
			w.setBucket(port, 0)
			before := w.coarseNow()
			passes(send(to, skbuff{}))
			if full, after := w.bucket(port), w.coarseNow(); full < before+gap || full > after+gap {
				w.Errorf("sent between %d and %d, it is full again at %d", before, after, full)
			}
			w.name = name + ", the bucket is empty"
			w.setBucket(port, math.MaxInt64)
			w.expect(send(to, skbuff{}), verdictShot, nil,
				map[string]uint64{fmt.Sprintf("storm %d", w.a): 1})
		}
		w.name = "one station"
		passes(send(macB, skbuff{}))
		if full := w.bucket(port); full != math.MaxInt64 {
			w.Errorf("it is full at %d", full)
		}
		w.name = "a tunnel that is set anew"
		w.check(w.d.SetTunnel(port, tunnel))
		passes(send(broadcast, skbuff{}))
		w.name = "a super-frame"
		w.check(w.d.SetTunnel(port, tunnel))
		before := w.coarseNow()
		send(broadcast, skbuff{GSOSize: 1000})
		if full := w.bucket(port); full < before+3*gap || full > w.coarseNow()+3*gap {
			w.Errorf("of three frames: sent after %d, it is full again at %d", before, full)
		}
		w.name = "no storm control"
		tunnel.StormControl = 0
		w.check(w.d.SetTunnel(port, tunnel))
		w.setBucket(port, math.MaxInt64)
		passes(send(broadcast, skbuff{}))
	})
}
