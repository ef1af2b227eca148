package program

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// helpers are the kernel's functions that programs may call. They read a clock or the program's own maps, and change
// nothing.
var helpers = []asm.BuiltinFunc{
	asm.FnMapLookupElem,
	asm.FnKtimeGetNs,
	asm.FnKtimeGetCoarseNs,
	asm.FnGetPrandomU32,
}

// reasons say more about helpers that people would like to call.
var adviceFor = map[asm.BuiltinFunc]string{
	asm.FnTailCall:        "put the code into parse and format, or into functions that they call",
	asm.FnLoop:            "write a loop with a constant bound",
	asm.FnRedirect:        "return PERGOLA_SEND and name the interface in packet->output",
	asm.FnRedirectMap:     "return PERGOLA_SEND and name the interface in packet->output",
	asm.FnCloneRedirect:   "return PERGOLA_FLOOD and name the interfaces in packet->flood",
	asm.FnTracePrintk:     "use PERGOLA_COUNTERS, or `pergola program test`, which shows key and result",
	asm.FnRingbufOutput:   "return PERGOLA_PUNT: the slow path gets the frame",
	asm.FnPerfEventOutput: "return PERGOLA_PUNT: the slow path gets the frame",
	asm.FnSpinLock:        "use the compiler's __sync functions",
	asm.FnMapUpdateElem:   "write to the element that pergola_memory(i) gives",
	asm.FnXdpAdjustHead:   "use pergola_grow() and pergola_shrink()",
	asm.FnSkbStoreBytes:   "write to the window",
	asm.FnSkbLoadBytes:    "read from the window",
}

// check looks at every instruction. What it lets pass is rebuilt from its bare fields: nothing that the object's
// reader attached to an instruction goes further, but for the reference and the source line that were looked at.
func (o *Object) check() error {
	if n := o.Instructions(); n > MaxInstructions {
		return refuse("do less for each frame", "has %d instructions, and may have %d", n, MaxInstructions)
	}
	for _, name := range o.order {
		if !isIdentifier(name) {
			return refuse("give it a shorter name", "has a function with a name that cannot be shown")
		}
	}
	for _, name := range o.order {
		f := o.functions[name]
		c := checker{object: o, function: f, starts: starts(f.instructions)}
		if err := c.run(); err != nil {
			err.Function = stageName(name)
			return err
		}
	}
	if err := o.checkCalls(); err != nil {
		return err
	}
	if err := o.leaks(); err != nil {
		return err
	}
	return nil
}

type checker struct {
	object   *Object
	function *function
	starts   map[int]bool // raw offsets at which an instruction begins
	line     *btf.Line    // of the instruction that is looked at, or the last one before it that has one
}

func starts(code asm.Instructions) map[int]bool {
	all, at := map[int]bool{}, 0
	for i := range code {
		all[at] = true
		at += int(code[i].Width())
	}
	return all
}

func (c *checker) run() *RefusedError {
	code := c.function.instructions
	clean := make(asm.Instructions, 0, len(code))
	at := 0
	for i := range code {
		if line, ok := code[i].Source().(*btf.Line); ok {
			c.line = line
		}
		err := c.instruction(&code[i], at)
		if err != nil {
			if c.line != nil {
				err.File, err.Line = fileName(c.line), int(c.line.LineNumber())
			}
			return err
		}
		clean = append(clean, bare(&code[i]))
		at += int(code[i].Width())
	}
	last := clean[len(clean)-1].OpCode
	if last.JumpOp() != asm.Exit && last.JumpOp() != asm.Ja {
		return refuse("", "does not end with a return")
	}
	c.function.instructions = clean
	return nil
}

// bare is an instruction with nothing but what has been checked.
func bare(ins *asm.Instruction) asm.Instruction {
	b := asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant}
	if s := ins.Symbol(); s != "" {
		b = b.WithSymbol(s)
	}
	if r := ins.Reference(); r != "" {
		b = b.WithReference(r)
	}
	if line, ok := ins.Source().(*btf.Line); ok {
		b = b.WithSource(line)
	}
	return b
}

func (c *checker) instruction(ins *asm.Instruction, at int) *RefusedError {
	const newer = "build it with -mcpu=v3, as `pergola program build` does"
	if btf.CORERelocationMetadata(ins) != nil {
		return refuse("leave out preserve_access_index: a program sees no structure of the kernel",
			"asks where a field of the kernel's is")
	}
	if ins.Dst > asm.R10 || ins.Src > asm.R10 {
		return refuse(newer, "uses a register that does not exist")
	}
	switch ins.OpCode.Class() {
	case asm.LdClass:
		return c.load(ins)
	case asm.LdXClass, asm.StClass, asm.StXClass:
		if !plainAccess(ins) {
			return refuse(newer, "has an access to memory that programs may not make (%v)", *ins)
		}
		if ins.Reference() != "" {
			return refuse("", "refers to %q where nothing can be referred to", ins.Reference())
		}
	case asm.ALUClass, asm.ALU64Class:
		if !plainArithmetic(ins) {
			return refuse(newer, "has an instruction that programs may not use (%v)", *ins)
		}
	case asm.JumpClass, asm.Jump32Class:
		return c.jump(ins, at)
	}
	return nil
}

// load is for constants of 64 bits and the addresses of the program's own memory.
func (c *checker) load(ins *asm.Instruction) *RefusedError {
	if !ins.OpCode.IsDWordLoad() || ins.Offset != 0 {
		return refuse("read from the window", "reads the frame by an instruction of classic BPF")
	}
	name := ins.Reference()
	switch {
	case ins.Src == 0 && name == "":
		return nil
	case ins.Src == asm.PseudoMapFD && (name == memoryMap && c.object.Memory.Count > 0 || name == countersMap &&
		len(c.object.Counters) > 0):
		ins.Constant = 0
		return nil
	case ins.Src == asm.PseudoMapValue:
		for _, g := range c.object.Globals {
			if g.Section == name && int64(uint64(ins.Constant)>>32) < int64(len(g.Contents)) {
				ins.Constant &^= 0xffffffff // offset in the upper half; below is the file descriptor
				return nil
			}
		}
	case ins.Src == asm.PseudoFunc:
		return refuse("call the function by its name", "takes the address of a function")
	}
	return refuse("use PERGOLA_MEMORY, PERGOLA_COUNTERS or global variables",
		"loads the address of something that is not its own")
}

// plainAccess is a load or store of 1 to 8 bytes, or an atomic operation of 4 or 8.
func plainAccess(ins *asm.Instruction) bool {
	op := ins.OpCode
	switch {
	case op.Mode() == asm.MemMode:
		return op.AtomicOp() == asm.InvalidAtomic
	case op.Mode() == asm.AtomicMode && op.Class() == asm.StXClass:
		return slices.Contains(atomics, op.AtomicOp()) && (op.Size() == asm.Word || op.Size() == asm.DWord)
	}
	return false
}

var atomics = []asm.AtomicOp{asm.AddAtomic, asm.FetchAdd, asm.AndAtomic, asm.FetchAnd, asm.OrAtomic, asm.FetchOr,
	asm.XorAtomic, asm.FetchXor, asm.Xchg, asm.CmpXchg}

// plainArithmetic leaves out what came after version 3 of the instruction set, and casts between address spaces.
func plainArithmetic(ins *asm.Instruction) bool {
	op := ins.OpCode
	if ins.Offset != 0 || ins.Reference() != "" {
		return false
	}
	switch op.ALUOp() {
	case asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Or, asm.And, asm.LSh, asm.RSh, asm.Neg, asm.Mod, asm.Xor,
		asm.Mov, asm.ArSh:
		return true
	case asm.Swap:
		return op.Class() == asm.ALUClass
	default:
		return false
	}
}

func (c *checker) jump(ins *asm.Instruction, at int) *RefusedError {
	op := ins.OpCode
	switch op.JumpOp() {
	case asm.Call:
		return c.call(ins)
	case asm.Exit:
		if op.Class() == asm.JumpClass {
			return nil
		}
	case asm.Ja:
		if op.Class() == asm.JumpClass && op.Source() == asm.ImmSource {
			return c.target(ins, at)
		}
	case asm.JEq, asm.JGT, asm.JGE, asm.JSet, asm.JNE, asm.JSGT, asm.JSGE, asm.JLT, asm.JLE, asm.JSLT, asm.JSLE:
		return c.target(ins, at)
	default: // may_goto (Linux 6.9), which loops millions of times
	}
	return refuse("build it with -mcpu=v3, as `pergola program build` does",
		"has a jump that programs may not use (%v)", *ins)
}

// target keeps jumps inside their function. Those backward are loops: the verifier counts their turns.
func (c *checker) target(ins *asm.Instruction, at int) *RefusedError {
	if ins.Reference() != "" || !c.starts[at+1+int(ins.Offset)] {
		return refuse("", "jumps out of the function")
	}
	return nil
}

func (c *checker) call(ins *asm.Instruction) *RefusedError {
	if ins.OpCode.Source() != asm.ImmSource || ins.OpCode.Class() != asm.JumpClass || ins.Offset != 0 {
		return refuse("call functions by their names", "calls what a register points to")
	}
	name := ins.Reference()
	switch {
	case ins.IsKfuncCall():
		return refuse("", "calls %q, a function of the kernel's", name)
	case ins.IsFunctionCall():
		if c.object.functions[name] == nil || ins.Constant != -1 {
			return refuse("define it in this file", "calls %q, which is not in the object", name)
		}
		if name == parseSymbol || name == formatSymbol {
			return refuse("put what both need into a function of its own", "calls %s", stageName(name))
		}
		if !slices.Contains(c.function.calls, name) {
			c.function.calls = append(c.function.calls, name)
		}
		return nil
	case ins.IsBuiltinCall() && name == "":
		f := asm.BuiltinFunc(ins.Constant)
		if slices.Contains(helpers, f) {
			return nil
		}
		return refuse(adviceFor[f], "calls %s, which programs may not", HelperName(f))
	}
	return refuse("", "has a call of an unknown kind (%v)", *ins)
}

// checkCalls refuses recursion, and calls so deep that the kernel would refuse them without a place.
func (o *Object) checkCalls() error {
	depths := map[string]int{}
	for _, stage := range []string{parseSymbol, formatSymbol} {
		if o.functions[stage] == nil {
			continue
		}
		depth, err := o.depth(stage, depths)
		if err == nil && depth > MaxCallDepth {
			err = refuse("make some of them inline", "calls functions %d deep, and may %d", depth,
				MaxCallDepth)
		}
		if err != nil {
			err.Function = stageName(stage)
			return err
		}
	}
	return nil
}

// depth is how many functions below this one are called at once. depths has those that are known; -1: at work.
func (o *Object) depth(name string, depths map[string]int) (int, *RefusedError) {
	const atWork = -1
	if known, ok := depths[name]; ok {
		if known == atWork {
			return 0, refuse("write a loop with a constant bound", "%s calls itself", name)
		}
		return known, nil
	}
	depths[name] = atWork
	deepest := 0
	for _, below := range o.functions[name].calls {
		d, err := o.depth(below, depths)
		if err != nil {
			return 0, err
		}
		deepest = max(deepest, d+1)
	}
	depths[name] = deepest
	return deepest, nil
}

// HelperName is the kernel's name of a helper: FnRedirectPeer is bpf_redirect_peer.
func HelperName(f asm.BuiltinFunc) string {
	var name strings.Builder
	name.WriteString("bpf")
	for _, r := range strings.TrimPrefix(f.String(), "Fn") {
		if unicode.IsUpper(r) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}

// fileName is that of a source, as a user knows it: without the folder in which it was compiled.
func fileName(line *btf.Line) string {
	name := filepath.Base(line.FileName())
	if !strconv.CanBackquote(name) {
		return strconv.Quote(name)
	}
	return name
}
