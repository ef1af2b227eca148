package program

import (
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A program is loaded with the rights of the agent, and of such programs the verifier does not ask that they keep
// addresses to themselves, nor, since Linux 6.3, that they read no byte of their stack that they did not write: there
// may be addresses of the kernel's, or what another program left. This is looked for here, in code that is otherwise
// the verifier's to judge: whether an access lies in bounds is not asked.
//
// Each function is followed with what registers and stack may hold, for each way in which it is called, until nothing
// new comes up. Where two ways meet, a register that is a number on one and an address on the other is neither, and
// may not be used. So memory holds numbers alone, and what is loaded from it is one.

// leaks follows parse and format.
func (o *Object) leaks() *RefusedError {
	a := &analysis{object: o, known: map[entry]*machine{}}
	for _, stage := range []string{parseSymbol, formatSymbol} {
		if o.functions[stage] == nil {
			continue
		}
		var m machine
		arguments := []asm.Register{asm.R1, asm.R2}
		if stage == formatSymbol {
			arguments = append(arguments, asm.R3)
		}
		for _, r := range arguments {
			m.registers[r] = value{kind: isAddress}
		}
		m.registers[asm.R1].packet = ofPacket
		end, err := a.follow(stage, 0, m)
		if err != nil {
			return err
		}
		if end != nil && !end.registers[asm.R0].numeric() {
			err := refuse("return an enum pergola_verdict", "returns an address")
			err.Function = stageName(stage)
			return err
		}
	}
	o.setReach(a.reach)
	return nil
}

const maxSteps = 1 << 20 // of the analysis

// entry is one way in which a function is called.
type entry struct {
	function string
	depth    int
	with     machine
}

type analysis struct {
	object *Object
	known  map[entry]*machine // how functions end; nil: they do not
	steps  int
	reach  reach
}

// follow goes through a function from its beginning, and gives what holds where it ends.
func (a *analysis) follow(name string, depth int, with machine) (*machine, *RefusedError) {
	with.registers[asm.R10] = value{kind: isStack, frame: uint8(depth)}
	with.frames[depth] = stackFrame{}
	way := entry{name, depth, with}
	if end, ok := a.known[way]; ok {
		return end, nil
	}
	w := &walker{analysis: a, code: a.object.functions[name].instructions, depth: depth, before: map[int]*machine{}}
	w.index = indexes(w.code)
	w.reach(0, &with)
	for len(w.pending) > 0 {
		at := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		if failed, err := w.block(at); err != nil {
			return nil, w.blame(err, name, failed)
		}
	}
	a.known[way] = w.end
	return w.end, nil
}

// walker goes through one function. Places are raw offsets, by which jumps count.
type walker struct {
	*analysis
	code    asm.Instructions
	index   map[int]int // of instructions, by raw offset
	depth   int
	before  map[int]*machine // what holds where blocks begin
	pending []int
	end     *machine
}

func indexes(code asm.Instructions) map[int]int {
	all, at := map[int]int{}, 0
	for i := range code {
		all[at] = i
		at += int(code[i].Width())
	}
	return all
}

// blame names the line of an instruction: its own, or the last one before it.
func (w *walker) blame(err *RefusedError, function string, at int) *RefusedError {
	if err.Function != "" { // of a function that is called from here
		return err
	}
	err.Function = stageName(function)
	for i := w.index[at]; i >= 0; i-- {
		if line, ok := w.code[i].Source().(*btf.Line); ok {
			err.File, err.Line = fileName(line), int(line.LineNumber())
			break
		}
	}
	return err
}

// reach notes that a block is entered so.
func (w *walker) reach(at int, m *machine) {
	known, ok := w.before[at]
	if !ok {
		c := *m
		w.before[at] = &c
	} else if !known.join(m) {
		return
	}
	if !slices.Contains(w.pending, at) {
		w.pending = append(w.pending, at)
	}
}

// block goes on to the next jump. If it fails, it says where.
func (w *walker) block(at int) (int, *RefusedError) {
	m := *w.before[at]
	for {
		if w.steps++; w.steps > maxSteps {
			return at, refuse("use fewer functions and branches",
				"cannot be followed: it has too many ways")
		}
		i, ok := w.index[at]
		if !ok {
			return at, refuse("", "runs out of its function")
		}
		ins := &w.code[i]
		next := at + int(ins.Width())
		if ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() != asm.Call {
			return at, w.jump(&m, ins, next)
		}
		ends, err := w.step(&m, ins)
		if err != nil || ends {
			return at, err
		}
		at = next
	}
}

func (w *walker) jump(m *machine, ins *asm.Instruction, next int) *RefusedError {
	target := next + int(ins.Offset)
	op := ins.OpCode.JumpOp()
	switch op {
	case asm.Exit:
		if w.end == nil {
			c := *m
			w.end = &c
		} else {
			w.end.join(m)
		}
		return nil
	case asm.Ja:
		w.reach(target, m)
		return nil
	default:
	}
	left, right := m.registers[ins.Dst], value{}
	if ins.OpCode.Source() == asm.RegSource {
		right = m.registers[ins.Src]
	}
	equality := (op == asm.JEq || op == asm.JNE) && ins.OpCode.Class() == asm.JumpClass
	withZero := ins.OpCode.Source() == asm.ImmSource && ins.Constant == 0 || right.kind == isZero
	switch {
	case left.kind == isNeither || right.kind == isNeither:
		return mixed()
	case left.numeric() && right.numeric():
	case equality && withZero && left.kind == isAddress: // a test for NULL: there it is the number 0
		null := *m
		null.registers[ins.Dst] = value{kind: isZero}
		if op == asm.JEq {
			w.reach(target, &null)
			w.reach(next, m)
		} else {
			w.reach(target, m)
			w.reach(next, &null)
		}
		return nil
	case equality && !left.numeric() && !right.numeric():
	default:
		return refuse("compare offsets, not pointers", "compares an address with a number, or by size")
	}
	w.reach(target, m)
	w.reach(next, m)
	return nil
}

// step is one instruction that is no jump. ends: the function that it calls never returns.
func (w *walker) step(m *machine, ins *asm.Instruction) (ends bool, err *RefusedError) {
	switch ins.OpCode.Class() {
	case asm.LdClass:
		m.registers[ins.Dst] = constant(ins.Constant)
		if ins.Src != 0 {
			m.registers[ins.Dst] = value{kind: isAddress}
		}
	case asm.LdXClass:
		w.touch(m.registers[ins.Src], int(ins.Offset), ins.OpCode.Size().Sizeof())
		v, err := m.load(m.registers[ins.Src], int(ins.Offset), ins.OpCode.Size().Sizeof())
		m.registers[ins.Dst] = v
		return false, err
	case asm.StClass:
		w.touch(m.registers[ins.Dst], int(ins.Offset), ins.OpCode.Size().Sizeof())
		return false, m.store(m.registers[ins.Dst], int(ins.Offset), ins.OpCode.Size().Sizeof(), value{})
	case asm.StXClass:
		w.touch(m.registers[ins.Dst], int(ins.Offset), ins.OpCode.Size().Sizeof())
		return false, m.storeRegister(ins)
	case asm.ALUClass, asm.ALU64Class:
		return false, m.compute(ins)
	case asm.JumpClass, asm.Jump32Class:
		return w.call(m, ins)
	}
	return false, nil
}

func (w *walker) call(m *machine, ins *asm.Instruction) (ends bool, err *RefusedError) {
	var result value
	if ins.IsFunctionCall() {
		if w.depth+1 >= maxFrames {
			return false, refuse("make some functions inline", "calls functions too deep")
		}
		end, err := w.follow(ins.Reference(), w.depth+1, m.forCallee())
		if err != nil || end == nil {
			return true, err
		}
		result = end.registers[asm.R0]
		m.frames = end.frames
		m.frames[w.depth+1] = stackFrame{}
	} else if asm.BuiltinFunc(ins.Constant) == asm.FnMapLookupElem {
		const size = 4
		w.touch(m.registers[asm.R2], 0, size)
		if _, err := m.load(m.registers[asm.R2], 0, size); err != nil {
			return false, err
		}
		result = value{kind: isAddress}
	}
	m.registers[asm.R0] = result
	for r := asm.R1; r <= asm.R5; r++ { // the verifier lets nobody read them now
		m.registers[r] = value{}
	}
	return false, nil
}
