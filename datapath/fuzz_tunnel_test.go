package datapath

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/kernel/netns"
)

// FuzzTunnel sends bytes in by the uplink, and to the line card. Two slices have the same addresses, and tunnels from
// the same machine: whatever comes, nothing is counted at two slices, nothing but what routers and tunnels change is
// changed, and where the line card does something, it is what the programs of tc do.
func FuzzTunnel(f *testing.F) {
	for _, t := range sorts {
		for _, frame := range odd(mac(0)) {
			f.Add(t.turned().outer(frame, around{to: macHere, from: macThere, class: byte(len(frame)) & 3}))
		}
	}
	inRoutedWorld(f, func(w *world) {
		w.asked(never)
		owner := map[string]int{} // of ports and routers: their slice
		for n := range 2 {
			for i, t := range sorts {
				t.Key += uint32(n)
				l := w.line(2)
				ports := slices.Concat(l.in, l.out, []int{l.end, w.tunnelled(l.in[0], t)})
				w.check(w.d.AllowXDPToPort(l.end, w.b))
				if i%2 == 1 { // and out by another tunnel
					t.Kind, t.Peer = VXLAN, third4
					t.Local = here4
					t.Key += uint32(1000 * i)
					ports = append(ports, w.tunnelled(l.out[1], t))
				}
				for _, port := range ports {
					owner[strconv.Itoa(port)] = 2*i + n
				}
				for _, id := range l.routers {
					owner["router "+strconv.Itoa(int(id))] = 2*i + n
				}
			}
		}
		here, err := os.Open("/proc/thread-self/ns/net")
		w.check(err)
		defer func() { _ = here.Close() }()
		f.Fuzz(func(t *testing.T, packet []byte) {
			err := netns.In(here, func() error {
				w.fuzzTunnel(t, packet, owner)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
}

func (w *world) fuzzTunnel(t *testing.T, packet []byte, owner map[string]int) {
	t.Helper()
	if len(packet) < 14 || len(packet) > 3000 {
		return
	}
	b := *w.bench
	b.TB = t
	w = &world{bench: &b, d: w.d, routers: w.routers}
	opts := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256),
		Context: &skbuff{Ifindex: uint32(w.b)}}
	verdict, err := w.d.programs.UplinkIngress.Run(&opts)
	if err != nil {
		return // the kernel would not make a frame of it
	}
	slow := outcome{verdict, opts.DataOut, w.takeAll()}
	whose := map[int]bool{}
	for what, n := range slow.Counted {
		if what == Received || what == Sent {
			continue
		}
		words := strings.SplitAfterN(what, ": ", 2)
		name := words[len(words)-1]
		if fields := strings.Fields(what); len(words) == 1 {
			name = fields[len(fields)-1]
		}
		if who, ok := owner[name]; ok {
			whose[who] = true
		}
		if n != 1 {
			t.Errorf("counted %d times: %s", n, what)
		}
	}
	if len(whose) > 1 || (verdict != verdictRedirect && verdict != verdictShot) {
		t.Errorf("verdict %d, counted %v", verdict, slow.Counted)
	}
	if verdict == verdictRedirect && slow.Counted[Sent] == 0 && !bytes.Contains(packet, tail(slow.Frame)) {
		t.Errorf("came %x\nwent %x", packet, slow.Frame)
	}
	w.fuzzCard(t, packet, slow)
}

// tail is what nobody changes on the way: the frame behind its headers.
func tail(frame []byte) []byte { return frame[min(len(frame), 14+40):] }

func (w *world) fuzzCard(t *testing.T, packet []byte, slow outcome) {
	t.Helper()
	fast := w.card(packet)
	if fast.Verdict == xdpPass {
		if !bytes.Equal(fast.Frame, packet) || len(fast.Counted) > 0 {
			t.Errorf("passed, and changed: %v\ncame %x\nwent %x", fast.Counted, packet, fast.Frame)
		}
		return
	}
	if fast.Verdict == xdpTX {
		copy(fast.Frame, make([]byte, 12)) // addresses are the egress's business
	}
	if (fast.Verdict != xdpTX && fast.Verdict != xdpRedirect) || slow.Verdict != verdictRedirect ||
		!bytes.Equal(fast.Frame, slow.Frame) {
		t.Errorf("came %x\nby tc  %d %x\nby XDP %d %x", packet, slow.Verdict, slow.Frame, fast.Verdict,
			fast.Frame)
	}
}
