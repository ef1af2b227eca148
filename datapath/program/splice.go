package program

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Sizes that the platform's program has.
const (
	keySize      = 64  // PERGOLA_KEY_SIZE
	scratchLimit = 256 // PERGOLA_SCRATCH_SIZE
	prefix       = "slice_"
)

var nativeOrder = binary.NativeEndian

// splice puts the object's code into a copy of the platform's programs. Its functions and maps get names that no
// function or map of the platform has, and are known to the kernel by prototypes that are written here: what the
// object says of types goes no further.
func (o *Object) splice(platform *ebpf.CollectionSpec) (*ebpf.CollectionSpec, error) {
	spec := platform.Copy()
	size := (o.Scratch + 7) / 8 * 8
	if err := setConstants(spec, size, o.reach); err != nil {
		return nil, err
	}
	for name, m := range o.mapSpecs() {
		spec.Maps[prefix+name] = m
	}
	for name, p := range spec.Programs {
		code, err := o.replaceStages(p.Instructions, size)
		if err != nil {
			return nil, fmt.Errorf("splice into %s: %w", name, err)
		}
		p.Instructions = code
	}
	return spec, nil
}

// setConstants writes what a frame pays for.
func setConstants(spec *ebpf.CollectionSpec, scratch int, r reach) error {
	for name, n := range map[string]int{
		stagesVarScratchSize: scratch, stagesVarWindowReach: r.window, stagesVarKeyReach: r.key,
	} {
		if err := spec.Variables[name].Set(uint32(n)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// mapSpecs are the maps of the slice's memory. They have no types, so nothing in them means anything to the kernel.
func (o *Object) mapSpecs() map[string]*ebpf.MapSpec {
	all := map[string]*ebpf.MapSpec{}
	if o.Memory.Count > 0 {
		all[memoryMap] = &ebpf.MapSpec{Name: "memory", Type: ebpf.Array, KeySize: 4,
			ValueSize:  uint32(o.Memory.Element),
			MaxEntries: uint32(o.Memory.Count), Flags: unix.BPF_F_MMAPABLE}
	}
	if n := len(o.Counters); n > 0 {
		all[countersMap] = &ebpf.MapSpec{Name: "counters", Type: ebpf.PerCPUArray, KeySize: 4,
			ValueSize: uint32(8 * n), MaxEntries: 1}
	}
	for _, g := range o.Globals {
		m := &ebpf.MapSpec{Name: "globals", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(g.Contents)),
			MaxEntries: 1,
			Flags:      unix.BPF_F_MMAPABLE, Contents: []ebpf.MapKV{{Key: uint32(0), Value: g.Contents}}}
		if g.Constant() {
			m.Name, m.Flags = ".rodata.slice", unix.BPF_F_RDONLY_PROG // by its name it is frozen, too
		}
		all[g.Section] = m
	}
	return all
}

// replaceStages cuts a program where its functions begin, leaves out the default stages for which the object has its
// own, and appends the object's functions.
func (o *Object) replaceStages(code asm.Instructions, scratch int) (asm.Instructions, error) {
	var all asm.Instructions
	defaults := map[string]*btf.Func{}
	dropping := false
	for _, ins := range code {
		if name := ins.Symbol(); name != "" {
			dropping = o.functions[name] != nil && (name == parseSymbol || name == formatSymbol)
			if name == parseSymbol || name == formatSymbol {
				defaults[name] = btf.FuncMetadata(&ins)
			}
		}
		if !dropping {
			all = append(all, ins)
		}
	}
	for _, name := range []string{parseSymbol, formatSymbol} {
		if defaults[name] == nil {
			return nil, fmt.Errorf("the platform's program has no %s", name)
		}
		if o.functions[name] == nil {
			continue
		}
		proto, err := prototype(defaults[name], scratch)
		if err != nil {
			return nil, err
		}
		all = append(all, o.functions[name].renamed(proto)...)
	}
	for _, name := range o.order {
		if name != parseSymbol && name != formatSymbol {
			all = append(all, o.functions[name].renamed(static(name))...)
		}
	}
	return all, nil
}

// renamed is the function's code as it stands in the platform's program.
func (f *function) renamed(proto *btf.Func) asm.Instructions {
	code := slices.Clone(f.instructions)
	for i := range code {
		if r := code[i].Reference(); r != "" {
			code[i] = code[i].WithReference(prefix + r)
		}
	}
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(proto.Name), proto)
	if code[0].Source() == nil { // the kernel wants a line for the beginning of each function
		code[0] = code[0].WithSource(asm.Comment(f.name))
	}
	return code
}

// prototype is that of a stage, as the platform has it, but with scratch memory of the size that the slice declared.
// The verifier holds the code to it.
func prototype(platform *btf.Func, scratch int) (*btf.Func, error) {
	was, ok := platform.Type.(*btf.FuncProto)
	if !ok || len(was.Params) < 2 {
		return nil, fmt.Errorf("%s has no prototype", platform.Name)
	}
	size := uint32(max(scratch, 8))
	octet := &btf.Int{Name: "unsigned char", Size: 1}
	proto := &btf.FuncProto{Return: was.Return, Params: slices.Clone(was.Params)}
	proto.Params[len(proto.Params)-1].Type = &btf.Pointer{Target: &btf.Array{Index: &btf.Int{Name: "unsigned int",
		Size: 4}, Type: octet, Nelems: size}}
	return &btf.Func{Name: platform.Name, Type: proto, Linkage: btf.GlobalFunc}, nil
}

// static is the prototype of a function that the verifier checks at each call, whatever its arguments are there.
func static(name string) *btf.Func {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	return &btf.Func{Name: prefix + name, Type: &btf.FuncProto{Return: number}, Linkage: btf.StaticFunc}
}

// isSlices reports whether a function of a spliced program is the slice's, and what it is called in the source.
func (o *Object) isSlices(symbol string) (name string, ok bool) {
	name = strings.TrimPrefix(symbol, prefix)
	return name, o.functions[name] != nil && (name != symbol || name == parseSymbol || name == formatSymbol)
}
