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
	3: `counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 dropped:Array/48@48}
devices DevMap 16384 flags=0 u32 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 pad:__u8/1@15}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 pad:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/168@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
sources Hash 262144 flags=1 u64 -> unsigned int
`,
	4: `counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 dropped:Array/48@48}
devices DevMap 16384 flags=0 u32 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 pad:__u8/1@15}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 pad:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/176@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
sources Hash 262144 flags=1 u64 -> unsigned int
`,
	5: `counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 dropped:Array/120@48}
devices DevMap 16384 flags=0 u32 -> unsigned int
encapsulations Array 16384 flags=0 u32 -> encapsulation{kind:__u8/1@0 v6:__u8/1@1 dscp:__u8/1@2 length:__u8/1@3 key:__u32/4@4 header:Array/56@8}
ends Hash 1024 flags=1 u160 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 pad:__u8/1@15}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 pad:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/176@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
sources Hash 262144 flags=1 u64 -> unsigned int
tunnels Hash 16384 flags=1 u320 -> unsigned int
underlays PerCPUArray 1 flags=0 u32 -> underlay{received:traffic/16@0 sent:traffic/16@16 dropped:Array/120@32}
uplinks Array 1 flags=0 u32 -> uplink{inside:__u32/4@0 outside:__u32/4@4}
`,
	6: `buckets Array 16384 flags=0 u32 -> unsigned long long
counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 emerged:traffic/16@48 dropped:Array/128@64}
devices DevMap 16384 flags=0 u32 -> unsigned int
encapsulations Array 16384 flags=0 u32 -> encapsulation{kind:__u8/1@0 v6:__u8/1@1 dscp:__u8/1@2 length:__u8/1@3 key:__u32/4@4 storm:__u32/4@8 header:Array/56@12}
ends Hash 1024 flags=1 u160 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 pad:__u8/1@15}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nics DevMapHash 128 flags=0 u32 -> unsigned int
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 pad:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/176@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
shortcuts Array 65536 flags=1024 u32 -> shortcut{to:adjacency/8@0 :Union/8@8}
sources Hash 262144 flags=1 u64 -> unsigned int
suspects Array 8192 flags=1024 u32 -> unsigned long long
tunnels Hash 16384 flags=1 u320 -> unsigned int
underlays PerCPUArray 1 flags=0 u32 -> underlay{received:traffic/16@0 sent:traffic/16@16 by_card:__u64/8@32 dropped:Array/128@40}
uplinks Array 1 flags=0 u32 -> uplink{inside:__u32/4@0 outside:__u32/4@4}
`,
	7: `buckets Array 16384 flags=0 u32 -> unsigned long long
counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 emerged:traffic/16@48 dropped:Array/136@64}
devices DevMap 16384 flags=0 u32 -> unsigned int
encapsulations Array 16384 flags=0 u32 -> encapsulation{kind:__u8/1@0 v6:__u8/1@1 dscp:__u8/1@2 length:__u8/1@3 key:__u32/4@4 storm:__u32/4@8 header:Array/56@12}
ends Hash 1024 flags=1 u160 -> unsigned int
exits DevMapHash 128 flags=0 u32 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 pad:__u8/1@15}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nics DevMapHash 128 flags=0 u32 -> unsigned int
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 pad:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/176@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
shortcuts Array 65536 flags=1024 u32 -> shortcut{to:adjacency/8@0 :Union/8@8}
sources Hash 262144 flags=1 u64 -> unsigned int
suspects Array 8192 flags=1024 u32 -> unsigned long long
tunnels Hash 16384 flags=1 u320 -> unsigned int
underlays PerCPUArray 1 flags=0 u32 -> underlay{received:traffic/16@0 sent:traffic/16@16 by_card:__u64/8@32 dropped:Array/136@40}
uplinks Array 1 flags=0 u32 -> uplink{inside:__u32/4@0 outside:__u32/4@4 bound:__u32/4@8}
`,
	8: `classifiers Hash 16384 flags=1 u32 -> classifier{number:__u64/8@0 rules:Array/1280@8}
counts PerCPUArray 16384 flags=0 u32 -> counters{handed:traffic/16@0 walked_in:traffic/16@16 walked_out:traffic/16@32 emerged:traffic/16@48 dropped:Array/136@64}
devices DevMap 16384 flags=0 u32 -> unsigned int
encapsulations Array 16384 flags=0 u32 -> encapsulation{kind:__u8/1@0 v6:__u8/1@1 dscp:__u8/1@2 length:__u8/1@3 key:__u32/4@4 storm:__u32/4@8 header:Array/56@12}
ends Hash 1024 flags=1 u160 -> unsigned int
exits DevMapHash 128 flags=0 u32 -> unsigned int
lease Array 1 flags=1024 u32 -> unsigned long long
legs Array 16384 flags=1024 u32 -> leg{router:__u32/4@0 mtu:__u32/4@4 mac:Array/6@8 flags:__u8/1@14 kind:__u8/1@15}
meters Array 32768 flags=0 u32 -> meter{per_frame:__u64/8@0 per_byte:__u64/8@8 depth:__u64/8@16 frames_full:__u64/8@24 bytes_full:__u64/8@32}
neighbours Hash 262144 flags=1 u160 -> adjacency{:Struct/8@0 word:__u64/8@0}
nexthops Array 65536 flags=1024 u32 -> nexthop{to:adjacency/8@0 port:__u32/4@8 pad:__u32/4@12}
nics DevMapHash 128 flags=0 u32 -> unsigned int
nodes ArrayOfMaps 2048 flags=0 u32 -> ?
nodes of Array 1024 flags=1024 u32 -> 1024 bytes
ports Array 16384 flags=0 u32 -> port{mode:mode/4@0 peer:__u32/4@4 mtu:__u32/4@8 mac:Array/6@12 external:__u8/1@18 classified:__u8/1@19}
punts PerCPUArray 4096 flags=0 u32 -> punted{frames:Array/176@0}
routers Array 4096 flags=1024 u32 -> router{root4:__u32/4@0 root6:__u32/4@4 slice:__u32/4@8 pad:__u32/4@12}
shortcuts Array 65536 flags=1024 u32 -> shortcut{to:adjacency/8@0 :Union/8@8}
sources Hash 262144 flags=1 u64 -> unsigned int
suspects Array 8192 flags=1024 u32 -> unsigned long long
tunnels Hash 16384 flags=1 u320 -> unsigned int
underlays PerCPUArray 1 flags=0 u32 -> underlay{received:traffic/16@0 sent:traffic/16@16 by_card:__u64/8@32 dropped:Array/136@40}
uplinks Array 1 flags=0 u32 -> uplink{inside:__u32/4@0 outside:__u32/4@4 bound:__u32/4@8}
`,
}

func TestABIGrowsWithThePinnedMaps(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	if got := layout(t, spec); got != layouts[ABI] {
		t.Errorf("the pinned maps are not those of ABI %d: raise it and add\n%s\nABI %[1]d has\n%[3]s", ABI, got, layouts[ABI])
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
		if m.InnerMap != nil {
			fmt.Fprintf(&out, "%s of %v %d flags=%d u%d -> %d bytes\n", name, m.InnerMap.Type, m.InnerMap.MaxEntries, m.InnerMap.Flags, m.InnerMap.KeySize*8, m.InnerMap.ValueSize)
		}
	}
	return out.String()
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
	return composite.TypeName() + "{" + strings.Join(list, " ") + "}"
}

func kind(t btf.Type) string {
	if name := t.TypeName(); name != "" {
		return name
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", t), "*btf.")
}
