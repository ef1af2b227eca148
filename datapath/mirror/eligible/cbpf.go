package eligible

import "golang.org/x/net/bpf"

// registers is what is known of a classic BPF machine before an instruction, whichever way led there.
type registers struct {
	reached bool
	a, x    value
	scratch [16]value
}

// meet adds another way that leads to the same instruction.
func (r *registers) meet(o registers) {
	if !r.reached {
		*r = o
		return
	}
	r.a, r.x = r.a.or(o.a), r.x.or(o.x)
	for i := range r.scratch {
		r.scratch[i] = r.scratch[i].or(o.scratch[i])
	}
}

// accepts reports whether a socket filter may let one of the frames through. No is a proof; yes is the answer in
// doubt. start is where the filter's offset 0 is in the frame: the Ethernet header for SOCK_RAW, the IP header for
// SOCK_DGRAM.
//
// Classic BPF jumps forward only. So one pass in the order of the program, which keeps for each instruction what all
// ways to it have in common, sees every way.
func accepts(filter []bpf.RawInstruction, frames []frame, start int) bool {
	program, all := bpf.Disassemble(filter)
	if !all || len(program) == 0 {
		return true
	}
	states := make([]registers, len(program))
	for _, f := range frames {
		clear(states)
		if mayAccept(program, states, f, start) {
			return true
		}
	}
	return false
}

// mayAccept goes through the program with one kind of frame. states, all zero, are for its use: one for each
// instruction.
func mayAccept(program []bpf.Instruction, states []registers, f frame, start int) bool {
	states[0] = registers{reached: true, a: exactly(0), x: exactly(0)}
	for i := range states[0].scratch {
		states[0].scratch[i] = exactly(0)
	}
	for at, instruction := range program {
		r := states[at]
		if !r.reached {
			continue
		}
		if accept, end := returns(instruction, r); accept {
			return true
		} else if end {
			continue
		}
		known := true
		goTo := func(skip uint32, r registers) {
			next := uint64(at) + 1 + uint64(skip)
			if next >= uint64(len(program)) {
				known = false // no kernel takes such a program
				return
			}
			states[next].meet(r)
		}
		if !jump(instruction, r, goTo) {
			known = step(instruction, &r, f, start)
			goTo(0, r)
		}
		if !known {
			return true
		}
	}
	return false
}

// returns reports whether the program ends here, and whether it may do so with the frame accepted.
func returns(instruction bpf.Instruction, r registers) (accept, end bool) {
	switch i := instruction.(type) {
	case bpf.RetA:
		_, accept = r.a.given(bpf.JumpNotEqual, 0)
		return accept, true
	case bpf.RetConstant:
		return i.Val != 0, true
	}
	return false, false
}

// jump goes all ways that a jump may take. False: the instruction is no jump.
func jump(instruction bpf.Instruction, r registers, goTo func(skip uint32, r registers)) bool {
	var test bpf.JumpTest
	var against value
	var skipTrue, skipFalse uint8
	switch i := instruction.(type) {
	case bpf.Jump:
		goTo(i.Skip, r)
		return true
	case bpf.JumpIf:
		test, against, skipTrue, skipFalse = i.Cond, exactly(i.Val), i.SkipTrue, i.SkipFalse
	case bpf.JumpIfX:
		test, against, skipTrue, skipFalse = i.Cond, r.x, i.SkipTrue, i.SkipFalse
	default:
		return false
	}
	k, exact := against.exact()
	if !exact {
		goTo(uint32(skipTrue), r)
		goTo(uint32(skipFalse), r)
		return true
	}
	if a, ok := r.a.given(test, k); ok {
		taken := r
		taken.a = a
		goTo(uint32(skipTrue), taken)
	}
	if a, ok := r.a.given(opposite[test], k); ok {
		r.a = a
		goTo(uint32(skipFalse), r)
	}
	return true
}

// step does what an instruction that is no jump does. A load beyond the frame's end refuses the frame in the kernel;
// here the frame is always long enough. False: the instruction is unknown.
func step(instruction bpf.Instruction, r *registers, f frame, start int) bool {
	switch i := instruction.(type) {
	case bpf.LoadConstant:
		*r.register(i.Dst) = exactly(i.Val)
	case bpf.LoadScratch:
		*r.register(i.Dst) = r.scratch[i.N&15]
	case bpf.StoreScratch:
		r.scratch[i.N&15] = *r.register(i.Src)
	case bpf.LoadAbsolute:
		r.a = f.load(i.Off, i.Size, start)
	case bpf.LoadIndirect:
		r.a = between(0, 1<<(8*i.Size)-1)
		if x, ok := r.x.exact(); ok {
			r.a = f.load(x+i.Off, i.Size, start)
		}
	case bpf.LoadMemShift:
		low := compute(bpf.ALUOpAnd, f.load(i.Off, 1, start), exactly(0x0f))
		r.x = compute(bpf.ALUOpShiftLeft, low, exactly(2))
	case bpf.LoadExtension:
		r.a = f.extension(i.Num)
	case bpf.ALUOpConstant:
		r.a = compute(i.Op, r.a, exactly(i.Val))
	case bpf.ALUOpX:
		r.a = compute(i.Op, r.a, r.x)
	case bpf.NegateA:
		r.a = compute(bpf.ALUOpSub, exactly(0), r.a)
	case bpf.TAX:
		r.x = r.a
	case bpf.TXA:
		r.a = r.x
	default:
		return false
	}
	return true
}

func (r *registers) register(name bpf.Register) *value {
	if name == bpf.RegX {
		return &r.x
	}
	return &r.a
}
