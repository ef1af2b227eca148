package program

import (
	"github.com/cilium/ebpf/asm"
)

// What registers and stack may hold, and what instructions make of it: the machine of the analysis in leak.go.

// kind is what is known of a value.
type kind uint8

const (
	isNumber kind = iota
	isZero        // a number; it may also stand for an address that is NULL
	isAddress
	isStack   // the address of a known byte of a frame of the stack
	isNeither // a number or an address
)

type value struct {
	kind   kind
	frame  uint8  // isStack
	packet packet // isAddress
	offset int16  // isStack: from the frame's end; negative. ofPacket: from its beginning
}

// packet says whether an address is one in the packet (reach.go).
type packet uint8

const (
	notPacket packet = iota
	ofPacket         // of a known byte
	maybePacket
)

func (v value) numeric() bool { return v.kind == isNumber || v.kind == isZero }

// meet is what holds where both may.
func meet(a, b value) value {
	switch {
	case a == b:
		return a
	case a.numeric() && b.numeric():
		return value{}
	case a.kind == isAddress && b.kind == isZero:
		return a
	case a.kind == isZero && b.kind == isAddress:
		return b
	case a.kind == isAddress && b.kind == isAddress: // in different places, or not both in the packet
		return value{kind: isAddress, packet: maybePacket}
	}
	return value{kind: isNeither}
}

const (
	stackSize = 512
	stackSlot = 8
	maxFrames = MaxCallDepth + 1
)

// stackFrame is what a function keeps on the stack. A slot whose eight bytes are an address holds that; the bytes of
// all others are numbers, where they have been written.
type stackFrame struct {
	slots   [stackSize / stackSlot]value
	written [stackSize / 64]uint64
}

// machine is what may hold at one place of the code.
type machine struct {
	registers [11]value
	frames    [maxFrames]stackFrame
}

// join adds what holds where another way comes to the same place.
func (m *machine) join(o *machine) (changed bool) {
	join := func(a *value, b value) {
		met := meet(*a, b)
		changed = changed || met != *a
		*a = met
	}
	for i := range m.registers {
		join(&m.registers[i], o.registers[i])
	}
	for f := range m.frames {
		a, b := &m.frames[f], &o.frames[f]
		for i := range a.slots {
			join(&a.slots[i], b.slots[i])
		}
		for i := range a.written {
			both := a.written[i] & b.written[i]
			changed = changed || both != a.written[i]
			a.written[i] = both
		}
	}
	return changed
}

func mixed() *RefusedError {
	return refuse("use one variable for numbers and another one for pointers",
		"uses what is an address on one way and a number on another")
}

func constant(n int64) value {
	if n == 0 {
		return value{kind: isZero}
	}
	return value{}
}

// forCallee leaves out what the function that is called cannot see, so that ways of calling it are the same.
func (m *machine) forCallee() machine {
	c := *m
	for _, r := range []asm.Register{asm.R0, asm.R6, asm.R7, asm.R8, asm.R9} {
		c.registers[r] = value{}
	}
	return c
}

// compute is arithmetic. Of addresses, only the sum with a number is an address; nothing else is computed with them.
func (m *machine) compute(ins *asm.Instruction) *RefusedError {
	op, wide := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	left, right := m.registers[ins.Dst], value{}
	byRegister := ins.OpCode.Source() == asm.RegSource
	if byRegister {
		right = m.registers[ins.Src]
	}
	if op == asm.Mov {
		left = value{}
		if !byRegister {
			right = constant(ins.Constant)
		}
		if wide || right.numeric() {
			m.registers[ins.Dst] = right
			return nil
		}
	}
	switch {
	case left.kind == isNeither || right.kind == isNeither:
		return mixed()
	case left.numeric() && right.numeric():
		m.registers[ins.Dst] = value{}
		return nil
	case !wide || op != asm.Add && op != asm.Sub || !right.numeric() && (op == asm.Sub || !left.numeric()):
		return refuse("store offsets, not pointers", "computes with an address")
	}
	if left.numeric() {
		left = right
		byRegister = true
	}
	if left.kind == isStack {
		if byRegister {
			return refuse("keep it in PERGOLA_SCRATCH, or make the index a constant",
				"indexes a local variable with a number that is computed")
		}
		by := ins.Constant
		if op == asm.Sub {
			by = -by
		}
		if by < -stackSize || by > stackSize || int64(left.offset)+by < -stackSize ||
			int64(left.offset)+by > 0 {
			return refuse("", "computes the address of something beyond its local variables")
		}
		left.offset += int16(by)
	}
	if left.packet == ofPacket {
		left = left.moved(ins, byRegister)
	}
	m.registers[ins.Dst] = left
	return nil
}

func (m *machine) storeRegister(ins *asm.Instruction) *RefusedError {
	base, size := m.registers[ins.Dst], ins.OpCode.Size().Sizeof()
	stored := m.registers[ins.Src]
	if ins.OpCode.Mode() != asm.AtomicMode {
		return m.store(base, int(ins.Offset), size, stored)
	}
	was, err := m.load(base, int(ins.Offset), size)
	if err != nil {
		return err
	}
	op := ins.OpCode.AtomicOp()
	if !was.numeric() || !stored.numeric() || op == asm.CmpXchg && !m.registers[asm.R0].numeric() {
		return refuse("store offsets, not pointers", "changes an address by an atomic operation, or stores one")
	}
	switch op {
	case asm.CmpXchg:
		m.registers[asm.R0] = value{}
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		m.registers[ins.Src] = value{}
	default: // gives nothing back
	}
	return nil
}

// bytes gives the place of an access to the stack.
func (v value) bytes(offset, size int) (first int, err *RefusedError) {
	first = stackSize + int(v.offset) + offset
	if first < 0 || first+size > stackSize {
		return 0, refuse("", "reads or writes beyond its local variables")
	}
	return first, nil
}

// load is what is read. Memory other than the stack holds numbers.
func (m *machine) load(base value, offset, size int) (value, *RefusedError) {
	switch base.kind {
	case isNeither:
		return value{}, mixed()
	case isStack:
	default: // the verifier refuses numbers as addresses
		return value{}, nil
	}
	first, err := base.bytes(offset, size)
	if err != nil {
		return value{}, err
	}
	f := &m.frames[base.frame]
	for b := first; b < first+size; b++ {
		if f.written[b/64]>>(b%64)&1 == 0 {
			return value{}, refuse("give it a value when you declare it: = {}; that covers padding, too",
				"reads bytes of a local variable that were not set")
		}
	}
	for s := first / stackSlot; s <= (first+size-1)/stackSlot; s++ {
		switch {
		case f.slots[s].kind == isNumber || f.slots[s].kind == isZero:
		case f.slots[s].kind == isNeither:
			return value{}, mixed()
		case size == stackSlot && first%stackSlot == 0:
			return f.slots[s], nil
		default:
			return value{}, refuse("store offsets, not pointers", "reads a part of an address")
		}
	}
	return value{}, nil
}

func (m *machine) store(base value, offset, size int, stored value) *RefusedError {
	switch {
	case base.kind == isNeither || stored.kind == isNeither && base.kind != isStack:
		return mixed()
	case base.kind != isStack && !stored.numeric():
		return refuse("store offsets, not pointers: what a program writes leaves the host", "stores an address")
	case base.kind != isStack:
		return nil
	}
	first, err := base.bytes(offset, size)
	if err != nil {
		return err
	}
	whole := size == stackSlot && first%stackSlot == 0
	if !stored.numeric() && !whole {
		return refuse("", "stores a part of an address")
	}
	f := &m.frames[base.frame]
	for b := first; b < first+size; b++ {
		f.written[b/64] |= 1 << (b % 64)
	}
	for s := first / stackSlot; s <= (first+size-1)/stackSlot; s++ {
		if whole {
			f.slots[s] = stored
		} else if f.slots[s].numeric() {
			f.slots[s] = value{}
		} else {
			f.slots[s] = value{kind: isNeither} // what is left of an address
		}
	}
	return nil
}
