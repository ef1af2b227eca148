package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Names in an object, which pergola/program.h gives.
const (
	parseSymbol     = "pergola_parse"
	formatSymbol    = "pergola_format"
	memoryMap       = "pergola_memory_map"
	countersMap     = "pergola_counters_map"
	versionSection  = ".pergola.version"
	keySection      = ".pergola.key"
	scratchArgument = 1 // of parse
)

// Version is the one of pergola/program.h, and of objects that were compiled against it.
const Version = 1

// Object is a packet program that the compiler made, after all checks that need no kernel.
type Object struct {
	Name     string   // for messages: the file's base name
	Counters []string // names, in their order
	Memory   Memory
	Scratch  int     // bytes
	Key      []Field // as PERGOLA_KEY has it; nil without
	KeyBytes int     // that filters compare: its size
	Globals  []Global

	reach     reach
	functions map[string]*function
	order     []string // of functions: parse, format, and those that they call
}

// Memory is a slice's memory: an array.
type Memory struct {
	Element int `json:"element"` // bytes
	Count   int `json:"count"`
}

// Size is in bytes, as it is mapped: elements are padded to eight.
func (m Memory) Size() int { return (m.Element + 7) / 8 * 8 * m.Count }

// Global is a section of global variables.
type Global struct {
	Section  string // .bss, .data..., .rodata...
	Contents []byte
}

// Constant says that nothing may write them.
func (g Global) Constant() bool { return strings.HasPrefix(g.Section, ".rodata") }

// function is the code of one function, without whatever else the object says of it.
type function struct {
	name         string
	instructions asm.Instructions
	calls        []string
}

// HasFormat reports whether the program has a format stage of its own.
func (o *Object) HasFormat() bool { return o.functions[formatSymbol] != nil }

// Instructions counts the code.
func (o *Object) Instructions() int {
	n := 0
	for _, f := range o.functions {
		n += len(f.instructions)
	}
	return n
}

// Read takes an object file apart and checks it. The error is a *RefusedError.
func Read(name string, file []byte) (*Object, error) {
	o := &Object{Name: filepath.Base(name), functions: map[string]*function{}}
	err := o.read(file)
	if err == nil {
		return o, nil
	}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = refuse("build it with `pergola program build`", "cannot be read: %v", err)
	}
	refused.Object = o.Name
	return nil, refused
}

func (o *Object) read(file []byte) error {
	if err := preflight(file); err != nil {
		return err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	if err := o.collect(spec); err != nil {
		return err
	}
	if err := o.readMaps(spec); err != nil {
		return err
	}
	if err := o.readTypes(spec); err != nil {
		return err
	}
	return o.check()
}

// collect takes the functions out of the two programs, parse and format: clang puts all others behind them.
func (o *Object) collect(spec *ebpf.CollectionSpec) error {
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		if name != parseSymbol && name != formatSymbol {
			return refuse("leave it to PERGOLA_PARSE and PERGOLA_FORMAT to name sections",
				"function %s is in section %s: a program has no functions of its own there", name,
				spec.Programs[name].SectionName)
		}
	}
	for _, name := range []string{parseSymbol, formatSymbol} {
		p := spec.Programs[name]
		if p == nil {
			continue
		}
		if want := "pergola/" + stageName(name); p.SectionName != want {
			return refuse("write it with the macros of pergola/program.h",
				"%s is in section %q and not in %q", name, p.SectionName, want)
		}
		if err := o.split(p.Instructions); err != nil {
			return err
		}
	}
	if o.functions[parseSymbol] == nil {
		return refuse("write PERGOLA_PARSE(packet) { ... }", "has no parse stage")
	}
	return nil
}

// split cuts a program where its functions begin.
func (o *Object) split(code asm.Instructions) error {
	var f *function
	for i := range code {
		ins := code[i]
		if name := ins.Symbol(); name != "" {
			if o.functions[name] != nil { // parse and format both call it
				f = nil
				continue
			}
			f = &function{name: name}
			o.functions[name] = f
			o.order = append(o.order, name)
		} else if i == 0 {
			return refuse("", "begins without a function")
		}
		if f != nil {
			f.instructions = append(f.instructions, ins)
		}
	}
	return nil
}

// preflight refuses what is no object of ours, or would cost much to read, before anything is read of it.
func preflight(file []byte) error {
	const build = "build it with `pergola program build`, which takes C"
	if len(file) > MaxObject {
		return refuse("leave out what the fast path does not need, and large constants",
			"has %d bytes, and may have %d", len(file), MaxObject)
	}
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return refuse(build, "is no object file: %v", err)
	}
	if f.Machine != elf.EM_BPF || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_REL {
		return refuse(build, "is no BPF object (it is for %s)", f.Machine)
	}
	if one := []byte{1, 0}; f.ByteOrder.Uint16(one) != nativeOrder.Uint16(one) {
		return refuse("build it on a machine of the same byte order",
			"has another byte order than this machine")
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(s.Name, ".zdebug") {
			return refuse("build it without -gz", "section %s is compressed", s.Name)
		}
		if s.Type == elf.SHT_NOBITS && s.Size > MaxGlobals {
			return refuse("use PERGOLA_MEMORY for large tables",
				"global variables take %d bytes, and may take %d", s.Size, MaxGlobals)
		}
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL && (s.Size > uint64(len(file)) ||
			s.Offset > uint64(len(file))-s.Size) {
			return refuse(build, "is cut off: section %s ends behind the file's end", s.Name)
		}
	}
	if err := checkVersion(f); err != nil {
		return err
	}
	if f.Section("pergola/"+parseStage) == nil {
		return refuse("write PERGOLA_PARSE(packet) { ... }", "has no parse stage")
	}
	if f.Section(".BTF") == nil || f.Section(".BTF.ext") == nil {
		return refuse("build it with -g, as `pergola program build` does: errors name the line by it",
			"has no debugging information")
	}
	return checkSymbols(f)
}

func checkVersion(f *elf.File) error {
	s := f.Section(versionSection)
	if s == nil || s.Type != elf.SHT_PROGBITS || s.Size != 4 {
		return refuse("include pergola/program.h",
			"does not say which version of pergola/program.h it was compiled against")
	}
	data, err := s.Data()
	if err != nil {
		return refuse("", "version cannot be read: %v", err)
	}
	if v := f.ByteOrder.Uint32(data); v != Version {
		return refuse("build it again with this version of pergola",
			"was compiled against version %d of pergola/program.h, and this is version %d", v, Version)
	}
	return nil
}

// checkSymbols refuses what the object takes from elsewhere: the kernel's functions and variables, other objects.
func checkSymbols(f *elf.File) error {
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("read symbols: %w", err)
	}
	for i := range symbols {
		s := &symbols[i]
		if s.Section == elf.SHN_UNDEF && s.Name != "" {
			return refuse("define it in this file: a program has no library, and calls no function of the "+
				"kernel by name",
				"uses %s, which is not defined", s.Name)
		}
	}
	return nil
}

// readTypes takes from the object's types what user space is told.
func (o *Object) readTypes(spec *ebpf.CollectionSpec) error {
	var f *btf.Func
	if err := spec.Types.TypeByName(parseSymbol, &f); err != nil {
		return fmt.Errorf("read the type of %s: %w", parseSymbol, err)
	}
	size, err := scratchSize(f)
	if err != nil {
		return err
	}
	o.Scratch = size
	o.Key, o.KeyBytes, err = readKey(spec.Types)
	return err
}

// scratchSize is that of what parse's second argument points to; 0 for void.
func scratchSize(f *btf.Func) (int, error) {
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok || len(proto.Params) != scratchArgument+1 {
		return 0, refuse("write PERGOLA_PARSE(packet) or PERGOLA_PARSE(packet, scratch)",
			"parse has other arguments than it is given")
	}
	pointer, ok := btf.As[*btf.Pointer](proto.Params[scratchArgument].Type)
	if !ok {
		return 0, refuse("write PERGOLA_PARSE(packet, scratch)", "parse's second argument is no pointer")
	}
	if _, void := btf.UnderlyingType(pointer.Target).(*btf.Void); void {
		return 0, nil
	}
	size, err := btf.Sizeof(pointer.Target)
	if err != nil {
		return 0, refuse("declare it: PERGOLA_SCRATCH { ... };", "scratch memory has no size: %v", err)
	}
	if size > scratchLimit {
		return 0, refuse("leave less from parse to format, or keep it in PERGOLA_MEMORY",
			"scratch memory has %d bytes, and may have %d", size, scratchLimit)
	}
	return size, nil
}
