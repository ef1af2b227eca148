package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// again is a program that writes the same header into its frame each time, and goes on with another program, if there is one: a
// frame that was walked would not be walked again.
func again(b *bench, header []byte, p *ebpf.Program) *ebpf.Program {
	value := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(header)), MaxEntries: 1}))
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
	return must(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.Mov.Imm(asm.R2, 0),
			asm.LoadMapValue(asm.R3, value.FD(), 0),
			asm.Mov.Imm(asm.R4, int32(len(header))),
			asm.Mov.Imm(asm.R5, 0),
			asm.FnSkbStoreBytes.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, programs.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	}))
}

// BenchmarkWalk gives the program's own time for a frame that passes routers, without what the kernel does then. "nothing" is
// what the measurement itself costs.
func BenchmarkWalk(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, hops := range []int{-1, 0, 1, 4, 16} {
			name := fmt.Sprintf("IPv6=%v/routers=%d", v6, hops)
			if hops < 0 {
				name = fmt.Sprintf("IPv6=%v/nothing", v6)
			}
			b.Run(name, func(b *testing.B) {
				inWorld(b, func(w *world) {
					p := packet{v6: v6}
					if hops <= 0 {
						p.to = macB
					}
					w.line(max(hops, 0))
					program := w.d.programs.PortIngress
					if hops < 0 {
						program = nil
					}
					program = again(w.bench, p.bytes()[:34], program)
					defer func() { _ = program.Close() }()
					opts := ebpf.RunOptions{Data: p.bytes(), Context: &skbuff{Ifindex: uint32(w.a)}, Repeat: uint32(b.N)}
					b.ResetTimer()
					_, err := program.Run(&opts)
					w.check(err)
					b.StopTimer()
				})
			})
		}
	}
}
