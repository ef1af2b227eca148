package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"testdata/hostile/m*.c", "../../examples/programs/*.c"} {
		all, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, source := range all {
			if file, err := Build(f.Context(), source, "-w"); err == nil {
				f.Add(file)
			}
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) { readAnything(t, file) })
}

// readAnything reads and splices what may be no object. Whatever it is, its code refers to nothing of the platform's.
// It gives nil where it was refused.
func readAnything(t *testing.T, file []byte) *Object {
	t.Helper()
	o, err := Read("x.o", file)
	if err != nil {
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("error is of another kind: %v", err)
		}
		return nil
	}
	platform, err := alone.read()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := o.splice(platform)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		own := false
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if symbol := ins.Symbol(); symbol != "" {
				_, own = o.isSlices(symbol)
			}
			if r := ins.Reference(); own && r != "" && !strings.HasPrefix(r, prefix) {
				t.Errorf("%s: refers to %q", name, r)
			}
			if own && ins.IsLoadFromMap() && (ins.Reference() == "" || spec.Maps[ins.Reference()] == nil) {
				t.Errorf("%s: loads map %q", name, ins.Reference())
			}
		}
	}
	return o
}

// mutable is an object whose parts can be changed.
type mutable struct {
	file     []byte
	sections []*elf.Section
	headers  int // offset of the section headers
}

const sectionHeader = 64 // bytes

func newMutable(t *testing.T, file []byte) mutable {
	t.Helper()
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	const headersAt = 40 // e_shoff
	return mutable{file, e.Sections, int(nativeOrder.Uint64(file[headersAt:]))}
}

// parts are where changes do most: types, line information, relocations, symbols, names, code, and the sizes and places
// of all of these.
func (m mutable) parts() map[string][][2]int {
	all := map[string][][2]int{
		"headers": {{m.headers, m.headers + sectionHeader*len(m.sections)}},
		"elf":     {{0, sectionHeader}},
	}
	for _, s := range m.sections {
		var kind string
		switch {
		case s.Type == elf.SHT_NOBITS || s.Size < 8:
			continue
		case s.Type == elf.SHT_REL:
			kind = "relocations"
		case s.Type == elf.SHT_SYMTAB:
			kind = "symbols"
		case s.Type == elf.SHT_STRTAB:
			kind = "names"
		case s.Flags&elf.SHF_EXECINSTR != 0:
			kind = "code"
		case strings.HasPrefix(s.Name, ".BTF"):
			kind = s.Name
		default:
			continue
		}
		all[kind] = append(all[kind], [2]int{int(s.Offset), int(s.Offset + s.Size)})
	}
	return all
}

// mutate changes a few words.
func (m mutable) mutate(random *rand.Rand) []byte {
	file := bytes.Clone(m.file)
	parts := m.parts()
	kinds := []string{"headers", "elf", "relocations", "symbols", "names", "code", ".BTF", ".BTF.ext"}
	for range 1 + random.IntN(3) {
		places := parts[kinds[random.IntN(len(kinds))]]
		if len(places) == 0 {
			continue
		}
		place := places[random.IntN(len(places))]
		at := place[0] + random.IntN((place[1]-place[0])/4)*4
		word := nativeOrder.Uint32(file[at:])
		switch random.IntN(6) {
		case 0:
			word ^= 1 << random.IntN(32)
		case 1:
			word = []uint32{0, 1, 2, 7, 0x7fffffff, 0x80000000, 0xffffffff, 0x01000000}[random.IntN(8)]
		case 2:
			word += uint32(random.IntN(65)) - 32
		case 3: // what stands elsewhere in the same part
			other := place[0] + random.IntN((place[1]-place[0])/4)*4
			word = nativeOrder.Uint32(file[other:])
		case 4:
			word = random.Uint32()
		case 5:
			word = word&^0xff | uint32(random.IntN(256))
		}
		nativeOrder.PutUint32(file[at:], word)
	}
	return file
}

// mutants gives objects that were changed at random.
func mutants(t *testing.T, seed uint64, count int, f func(file []byte)) {
	t.Helper()
	var all []mutable
	for _, source := range []string{"ipv4.c", "l2.c", "mpls.c", "delay.c"} {
		file, err := Build(t.Context(), filepath.Join(testkit.ModuleRoot(t), "examples", "programs", source))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, newMutable(t, file))
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for range count {
		f(all[random.IntN(len(all))].mutate(random))
	}
}

func TestMutatedObjectsAreRefusedOrWhole(t *testing.T) {
	read, refused := 0, 0
	mutants(t, 1, 4000, func(file []byte) {
		if readAnything(t, file) == nil {
			refused++
		} else {
			read++
		}
	})
	if read < 100 || refused < 100 {
		t.Errorf("%d were read and %d refused: the test tries little", read, refused)
	}
}

// What passes the checks of the object, the kernel takes, or it is refused with a reason; frames can be sent through
// it.
func TestMutatedObjectsAreLoadedOrRefused(t *testing.T) {
	testkit.Root(t)
	loaded, refused, tries := 0, 0, 100
	if testkit.InVM() { // an emulated processor
		tries = 10
	}
	mutants(t, 2, 10*tries, func(file []byte) {
		if loaded+refused == tries {
			return
		}
		o := readAnything(t, file)
		if o == nil {
			return
		}
		p, err := Load(o, nil)
		if err != nil {
			refused++
			var reason *RefusedError
			if !errors.As(err, &reason) {
				t.Errorf("error is of another kind: %v", err)
			}
			return
		}
		loaded++
		for _, hook := range Hooks {
			run(t, p, hook, Frame{Data: udp4(t, "198.51.100.7", 9, 100), Interface: 1, Interfaces: 2})
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if loaded == 0 {
		t.Errorf("none of %d was loaded: the test tries little", refused)
	}
}
