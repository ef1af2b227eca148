package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// layouts is what each ABI pins. A running network was made with one of them: a change of the last line without a new
// ABI would keep the next server from adopting it.
var layouts = map[int]string{
	2: `counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 dropped:Array/40@16}
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 pad:Array/2@18}
`,
}

func TestABIGrowsWithThePinnedMaps(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	if got := layout(t, spec); got != layouts[ABI] {
		t.Errorf("the pinned maps are not those of ABI %d: raise it and add the line\n%s\nABI %[1]d has\n%s", ABI, got, layouts[ABI])
	}
}

func layout(t *testing.T, spec *ebpf.CollectionSpec) string {
	t.Helper()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if m.Pinning != ebpf.PinByName {
			continue
		}
		fmt.Fprintf(&out, "%s %v %d flags=%d u%d -> %s\n", name, m.Type, m.MaxEntries, m.Flags, m.KeySize*8, members(t, m.Value))
	}
	return out.String()
}

func members(t *testing.T, value btf.Type) string {
	t.Helper()
	s, ok := value.(*btf.Struct)
	if !ok {
		t.Fatalf("value is a %T, not a struct", value)
	}
	var all []string
	for _, m := range s.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		kind := m.Type.TypeName()
		if kind == "" {
			kind = strings.TrimPrefix(fmt.Sprintf("%T", m.Type), "*btf.")
		}
		all = append(all, fmt.Sprintf("%s:%s/%d@%d", m.Name, kind, size, m.Offset.Bytes()))
	}
	return s.Name + "{" + strings.Join(all, " ") + "}"
}
