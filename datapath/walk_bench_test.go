package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// again is a program that writes the same header into its frame each time, and goes on with another program, if there
// is one: a frame that was walked would not be walked again.
func again(b *bench, xdp bool, header []byte, p *ebpf.Program) *ebpf.Program {
	value := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(header)),
		MaxEntries: 1}))
	defer func() { _ = value.Close() }()
	programs := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}))
	b.Cleanup(func() { _ = programs.Close() })
	if err := value.Put(uint32(0), header); err != nil {
		b.Error(err)
	}
	if p != nil {
		if err := programs.Put(uint32(0), p); err != nil {
			b.Error(err)
		}
	}
	spec, store := ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL"}, asm.FnSkbStoreBytes
	if xdp { // as the program that it goes on with: else the kernel refuses
		spec, store = ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP,
			Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "GPL"}, asm.FnXdpStoreBytes
	}
	spec.Instructions = asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, 0),
		asm.LoadMapValue(asm.R3, value.FD(), 0),
		asm.Mov.Imm(asm.R4, int32(len(header))),
		asm.Mov.Imm(asm.R5, 0),
		store.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, programs.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	return must(ebpf.NewProgram(&spec))
}

// BenchmarkWalk gives the programs' own time for a frame that passes routers, without what the kernel does then.
// "nothing" is what the measurement itself costs.
func BenchmarkWalk(b *testing.B) {
	for _, program := range []string{objectProgPortIngress, objectProgLinecard} {
		for _, v6 := range []bool{false, true} {
			for _, hops := range []int{-1, 0, 1, 4, 16} {
				name := fmt.Sprintf("%s/IPv6=%v/routers=%d", program, v6, hops)
				if hops < 0 {
					name = fmt.Sprintf("%s/IPv6=%v/nothing", program, v6)
				}
				b.Run(name, func(b *testing.B) { benchmarkWalk(b, program, v6, hops) })
			}
		}
	}
}

// xdpMD is struct xdp_md.
type xdpMD struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }

func benchmarkWalk(b *testing.B, name string, v6 bool, hops int) {
	b.Helper()
	inWorld(b, func(w *world) {
		p := packet{v6: v6}
		if hops <= 0 {
			p.to = macB
		}
		l := w.line(max(hops, 0))
		w.check(w.d.maps.Devices.Put(uint32(l.end), uint32(w.b)))
		xdp, program := name == objectProgLinecard, *w.d.byName()[name]
		var context any = &skbuff{Ifindex: uint32(w.a)}
		if xdp {
			context = &xdpMD{DataEnd: uint32(len(p.bytes())), IngressIfindex: uint32(w.a)}
			w.ip("link set pa up") // only then has it the queue that the context names
			w.check(w.d.AttachPortLineCard(w.a, true))
			defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		}
		if hops < 0 {
			program = nil
		}
		program = again(w.bench, xdp, p.bytes()[:34], program)
		defer func() { _ = program.Close() }()
		opts := ebpf.RunOptions{Data: p.bytes(), Context: context, Repeat: uint32(b.N)}
		b.ResetTimer()
		_, err := program.Run(&opts)
		w.check(err)
		b.StopTimer()
	})
}
