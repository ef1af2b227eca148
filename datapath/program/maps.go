package program

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// readMaps takes the sizes of the slice's memory, counters and global variables. Nothing else may be a map, and of
// these nothing but sizes and initial values is used: flags, pinning and types are the platform's.
func (o *Object) readMaps(spec *ebpf.CollectionSpec) error {
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		var err error
		switch {
		case name == memoryMap:
			err = o.readMemory(m)
		case name == countersMap:
			err = o.readCounters(m)
		case isGlobals(name):
			err = o.readGlobals(name, m)
		default:
			err = refuse("use PERGOLA_MEMORY, PERGOLA_COUNTERS or global variables",
				"declares map %s (%s): a program has no maps of its own", name, m.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isGlobals(section string) bool {
	return section == ".bss" || strings.HasPrefix(section, ".data") || strings.HasPrefix(section, ".rodata")
}

func (o *Object) readMemory(m *ebpf.MapSpec) error {
	size := uint64(m.ValueSize) * uint64(m.MaxEntries)
	switch {
	case m.Type != ebpf.Array || m.KeySize != 4 || m.InnerMap != nil:
		return refuse("use PERGOLA_MEMORY", "memory is declared as %s and not as an array", m.Type)
	case size == 0:
		return refuse("", "memory has no elements, or empty ones")
	case m.ValueSize > MaxElement:
		return refuse("declare an array of smaller elements",
			"an element of memory has %d bytes, and may have %d", m.ValueSize, MaxElement)
	case uint64(m.ValueSize+7)/8*8*uint64(m.MaxEntries) > MaxMemory:
		return refuse("declare less", "memory takes %d bytes, and may take %d", size, MaxMemory)
	}
	o.Memory = Memory{Element: int(m.ValueSize), Count: int(m.MaxEntries)}
	return nil
}

func (o *Object) readCounters(m *ebpf.MapSpec) error {
	const declare = "declare them with PERGOLA_COUNTERS { uint64_t name, ...; };"
	if m.Type != ebpf.PerCPUArray || m.KeySize != 4 || m.MaxEntries != 1 || m.InnerMap != nil {
		return refuse(declare, "counters are declared as %s", m.Type)
	}
	all, ok := btf.UnderlyingType(m.Value).(*btf.Struct)
	if !ok {
		return refuse(declare, "counters are no struct")
	}
	if len(all.Members) == 0 || len(all.Members) > MaxCounters || int(m.ValueSize) != 8*len(all.Members) {
		return refuse(declare, "has %d counters in %d bytes; there may be 1 to %d of 8 bytes",
			len(all.Members), m.ValueSize, MaxCounters)
	}
	for i, c := range all.Members {
		number, ok := btf.UnderlyingType(c.Type).(*btf.Int)
		if !ok || number.Size != 8 || c.Offset.Bytes() != uint32(8*i) || c.BitfieldSize != 0 {
			return refuse(declare, "counter %q is no uint64_t", c.Name)
		}
		if !isIdentifier(c.Name) || slices.Contains(o.Counters, c.Name) {
			return refuse(declare, "counter %d has no name of its own", i)
		}
		o.Counters = append(o.Counters, c.Name)
	}
	return nil
}

func (o *Object) readGlobals(section string, m *ebpf.MapSpec) error {
	if m.Type != ebpf.Array || m.KeySize != 4 || m.MaxEntries != 1 || len(m.Contents) != 1 {
		return refuse("", "section %s is no section of global variables", section)
	}
	contents, ok := m.Contents[0].Value.([]byte)
	if !ok || len(contents) != int(m.ValueSize) || len(contents) == 0 || len(contents) > MaxGlobals {
		return refuse("use PERGOLA_MEMORY for large tables", "section %s has %d bytes, and may have %d",
			section, m.ValueSize, MaxGlobals)
	}
	if len(o.Globals) == maxGlobalSections {
		return refuse("name no sections", "has more than %d sections of global variables", maxGlobalSections)
	}
	o.Globals = append(o.Globals, Global{Section: section, Contents: contents})
	return nil
}

// maxGlobalSections is more than clang makes: .bss, .data, .rodata, .rodata.str1.1, .rodata.cst16, ...
const maxGlobalSections = 8

// Field is one field of the key that a program builds.
type Field struct {
	Name   string `json:"name"`
	Offset int    `json:"offset"` // bytes from the key's beginning
	Size   int    `json:"size"`   // bytes
}

// readKey takes the fields of PERGOLA_KEY, those of structs in it with a name of both: header.type; and its size.
func readKey(types *btf.Spec) (fields []Field, size int, err error) {
	var section *btf.Datasec
	if types.TypeByName(keySection, &section) != nil || len(section.Vars) != 1 {
		return nil, keySize, nil //nolint:nilerr // a program need not declare its key
	}
	v, ok := section.Vars[0].Type.(*btf.Var)
	if !ok {
		return nil, keySize, nil
	}
	pointer, ok := btf.As[*btf.Pointer](v.Type)
	if !ok {
		return nil, keySize, nil
	}
	key, ok := btf.UnderlyingType(pointer.Target).(*btf.Struct)
	if !ok || key.Size == 0 {
		return nil, 0, refuse("define it: PERGOLA_KEY { ... };", "the key has no fields")
	}
	if key.Size > keySize {
		return nil, 0, refuse("use fewer bits, or hash some", "the key has %d bytes, and may have %d", key.Size,
			keySize)
	}
	if fields, err = listFields(key, "", 0, 0); err != nil {
		return nil, 0, err
	}
	return fields, int(key.Size), nil
}

// listFields leaves bit fields and members of unions out: filters cannot name them.
func listFields(s *btf.Struct, prefix string, at, depth int) ([]Field, error) {
	const maxDepth, maxFields = 4, keySize
	var all []Field
	for _, m := range s.Members {
		offset := at + int(m.Offset.Bytes())
		if m.BitfieldSize != 0 || !isIdentifier(m.Name) {
			continue
		}
		if inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok && depth < maxDepth {
			below, err := listFields(inner, prefix+m.Name+".", offset, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil || size <= 0 || offset+size > keySize {
			return nil, refuse("", "field %s%s of the key has no size, or lies outside", prefix, m.Name)
		}
		all = append(all, Field{Name: prefix + m.Name, Offset: offset, Size: size})
		if len(all) > maxFields {
			return nil, refuse("", "the key has more than %d fields", maxFields)
		}
	}
	return all, nil
}

// isIdentifier reports whether a name can be shown and given back: letters, digits, underscores.
func isIdentifier(name string) bool {
	const longest = 64
	if name == "" || len(name) > longest {
		return false
	}
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9' || i == 0) {
			return false
		}
	}
	return true
}

// String is element size and count.
func (m Memory) String() string { return fmt.Sprintf("%d elements of %d bytes", m.Count, m.Element) }
