package datapath

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// layouts is what each ABI pins, by map. testdata/layouts.txt says what each has changed: a change of the last one
// without a new ABI would keep the next server from adopting a running network.
var layouts = sync.OnceValue(func() map[int]map[string]string {
	all := map[int]map[string]string{}
	abi, name := 0, ""
	for line := range strings.Lines(string(must(os.ReadFile("testdata/layouts.txt")))) {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case first == "" || first == "#":
		case first == "ABI":
			before := all[abi]
			abi = must(strconv.Atoi(rest))
			all[abi] = maps.Clone(before)
			if before == nil {
				all[abi] = map[string]string{}
			}
		case line[0] == '\t': // members
			all[abi][name] += " " + strings.TrimSpace(line)
		case rest == "gone":
			delete(all[abi], first)
		case strings.HasPrefix(rest, "of "): // an inner map belongs to the outer one
			all[abi][first] += "; " + rest
		default:
			name = first
			all[abi][name] = rest
		}
	}
	return all
})

func TestABIGrowsWithThePinnedMaps(t *testing.T) {
	have, want := layout(t, must(loadObject())), layouts()[ABI]
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the pinned maps are not those of ABI %d: raise it, and say in testdata/layouts.txt what it "+
			"changes\n%s", ABI, diff)
	}
}

// layout describes the pinned maps.
func layout(t *testing.T, spec *ebpf.CollectionSpec) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			continue
		}
		all[name] = fmt.Sprintf("%v %d flags=%d u%d -> %s", m.Type, m.MaxEntries, m.Flags, m.KeySize*8,
			members(t, m.Value))
		if i := m.InnerMap; i != nil {
			all[name] += fmt.Sprintf("; of %v %d flags=%d u%d -> %d bytes", i.Type, i.MaxEntries, i.Flags,
				i.KeySize*8, i.ValueSize)
		}
	}
	return all
}

func members(t *testing.T, value btf.Type) string {
	t.Helper()
	if value == nil { // an inner map's, or plain bytes
		return "?"
	}
	value = btf.UnderlyingType(value)
	composite, ok := value.(interface{ TypeName() string })
	if !ok {
		t.Fatalf("value is a %T", value)
	}
	var all []btf.Member
	switch v := value.(type) {
	case *btf.Struct:
		all = v.Members
	case *btf.Union:
		all = v.Members
	default:
		return kind(value)
	}
	var list []string
	for _, m := range all {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s:%s/%d@%d", m.Name, kind(m.Type), size, m.Offset.Bytes()))
	}
	return composite.TypeName() + " " + strings.Join(list, " ")
}

func kind(t btf.Type) string {
	if name := t.TypeName(); name != "" {
		return name
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", t), "*btf.")
}
