package program

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// The C include path holds asm/ on Debian's multiarch layout.
//go:generate sh -c "go tool bpf2go -no-global-types -go-package program -output-stem builtin -output-suffix _test -target bpfel -type builtin_frame builtin testdata/builtin.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -fno-strict-aliasing -I/usr/include/$(uname -m)-linux-gnu"

// builtIn loads the program of the platform's own, with the filters of p.
func builtIn(t testing.TB, p *Program, forwards uint32) *ebpf.Collection {
	t.Helper()
	spec, err := loadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]*ebpf.Map{}
	for _, name := range filterMaps {
		shared[name] = p.maps[name]
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	if err := spec.Variables["forwards"].Set(forwards); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// BenchmarkMediation measures what it costs that the code of ipv4.c is a slice's: it forwards a frame by one filter, as
// a packet program and as a program of the platform's own. Both less what it takes to make the frame anew; the medians
// of runs in turn. "ns/stage" is the difference for each of the two stages, parse and format.
func BenchmarkMediation(b *testing.B) {
	o := example(b, "ipv4.c")
	load := func(v variant) *Program {
		p, err := o.loadVariant(v)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = p.Close() })
		return p
	}
	none, whole := load(variant{0, 1}), load(variant{5, 1})
	f := Filter{Key: []byte{198, 51, 100}, Mask: []byte{255, 255, 255}, Result: Result{Verdict: Send, Interface: 2}}
	copy(f.Result.Arguments[:], append(slices.Clone(macC), macB...))
	if err := whole.SetFilters([]Filter{f}); err != nil {
		b.Fatal(err)
	}
	frame := Frame{Data: udp4(b, "198.51.100.7", 9, 64), Interface: 1}
	value := builtinBuiltinFrame{Length: uint64(len(frame.Data))}
	copy(value.Bytes[:], frame.Data)
	var own [2]*ebpf.Program
	for forwards := range own {
		c := builtIn(b, whole, uint32(forwards))
		if err := c.Maps["builtin_frames"].Put(uint32(0), value); err != nil {
			b.Fatal(err)
		}
		own[forwards] = c.Programs["builtin_xdp"]
	}
	sameFrames(b, whole, own[1], frame)
	const repeat = 20000
	times := make([][]time.Duration, 4)
	err := OnOneCPU(func(cpu int) error {
		for b.Loop() {
			for i, p := range []*Program{none, whole} {
				d, err := p.time(cpu, frame, repeat)
				if err != nil {
					return err
				}
				times[i] = append(times[i], d)
			}
			for i, p := range own {
				_, d, err := p.Benchmark(frame.Data, repeat, nil)
				if err != nil {
					return err
				}
				times[2+i] = append(times[2+i], d)
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])/2].Nanoseconds())
	}
	sliced, builtin := median(1)-median(0), median(3)-median(2)
	b.ReportMetric(sliced, "ns/program")
	b.ReportMetric(builtin, "ns/built-in")
	b.ReportMetric((sliced-builtin)/2, "ns/stage")
	b.ReportMetric(0, "ns/op")
}

// sameFrames makes sure that both do the same.
func sameFrames(b *testing.B, p *Program, own *ebpf.Program, f Frame) {
	b.Helper()
	opts := ebpf.RunOptions{Data: f.Data, DataOut: make([]byte, len(f.Data)+headroom)}
	if _, err := own.Run(&opts); err != nil {
		b.Fatal(err)
	}
	err := OnOneCPU(func(cpu int) error {
		if _, err := p.time(cpu, f, 1); err != nil {
			return err
		}
		o, err := p.Run(XDP, cpu, f)
		if err == nil && (!o.Leaves() || !slices.Equal(o.Data, opts.DataOut)) {
			b.Errorf("a packet program sends %x, and one that is built in %x", o.Data, opts.DataOut)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}
