package datapath

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/kernel/netns"
)

// FuzzWalk sends bytes into a line of routers: whatever they are, they are counted once, at ports and routers of that
// line, and nothing but what routers change is changed. That they reach no other slice, by the line card either, is
// shown with devices: FuzzSlice.
func FuzzWalk(f *testing.F) {
	for _, c := range slices.Concat(headerPunts, statePunts) {
		f.Add(c.packet.bytes(), uint16(0))
	}
	inWorld(f, func(w *world) {
		w.line(3)
		here, err := os.Open("/proc/thread-self/ns/net")
		w.check(err)
		defer func() { _ = here.Close() }()
		f.Fuzz(func(t *testing.T, frame []byte, segment uint16) {
			err := netns.In(here, func() error {
				w.fuzz(t, frame, uint32(segment))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
}

func (w *world) fuzz(t *testing.T, frame []byte, segment uint32) {
	t.Helper()
	if len(frame) > 3000 {
		return
	}
	b := *w.bench
	b.TB = t
	w = &world{bench: &b, d: w.d, routers: w.routers}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256),
		Context: &skbuff{Ifindex: uint32(w.a), GSOSize: segment}}
	verdict, err := w.d.programs.PortIngress.Run(&opts)
	if err != nil {
		return // the kernel would not make a frame of it
	}
	counted := w.take()
	walked, punts := 0, 0
	for what := range maps.Keys(counted) {
		if strings.HasPrefix(what, "walked in") {
			walked++
		}
		if strings.Contains(what, ": router") {
			punts++
		}
	}
	if (verdict != verdictRedirect && verdict != verdictShot) || punts > 1 {
		t.Errorf("verdict %d, counted %v", verdict, counted)
	}
	want := bytes.Clone(frame)
	if walked > 0 {
		copy(want, opts.DataOut[:12])
		if frame[12] == 8 { // IPv4: TTL, and the checksum for it
			want[22] -= byte(walked)
			resum(want)
		} else {
			want[21] -= byte(walked)
		}
	}
	if !bytes.Equal(want, opts.DataOut) {
		t.Errorf("counted %v\nwant %x\nhave %x", counted, want, opts.DataOut)
	}
}
