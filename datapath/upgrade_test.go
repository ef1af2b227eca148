package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

func TestEachPinnedMapSaysWhatBecomesOfItInAnUpgrade(t *testing.T) {
	lines := layouts()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(lines[ABI])), slices.Sorted(maps.Keys(upgrades))); diff != "" {
		t.Errorf("pinned maps (-) and what becomes of them (+):\n%s", diff)
	}
	for name, u := range upgrades {
		for abi := range lines {
			same := isSameLayout(lines[abi][name], lines[ABI][name])
			if abi >= u.since && !same {
				t.Errorf("%s would be shared with ABI %d, which has another layout", name, abi)
			}
		}
		together := slices.Contains([]int{mirrorSince, nodesSince, labelCellsSince}, u.since)
		if isSameLayout(lines[u.since-1][name], lines[ABI][name]) && !together {
			t.Errorf("%s has been the same since before ABI %d", name, u.since)
		}
	}
}

var memberName = regexp.MustCompile(`\w*:`)

// isSameLayout reports whether records mean the same. A member in the place of a pad, which was zero, means by zero
// what there was before.
func isSameLayout(old, now string) bool {
	if old == "" || memberName.ReplaceAllString(old, "") != memberName.ReplaceAllString(now, "") {
		return false
	}
	was, is := memberName.FindAllString(old, -1), memberName.FindAllString(now, -1)
	for i := range was {
		if was[i] != is[i] && was[i] != "pad:" {
			return false
		}
	}
	return true
}

func (b *bench) mapIDs(d *DataPath) map[string]ebpf.MapID {
	ids := map[string]ebpf.MapID{}
	for name := range upgrades {
		m, err := ebpf.LoadPinnedMap(fmt.Sprintf("%s/abi%d/%s", b.dir, d.version.abi, name), nil)
		if err != nil {
			b.Error(err)
			continue
		}
		info, err := m.Info()
		b.check(err)
		ids[name], _ = info.ID()
		b.check(m.Close())
	}
	return ids
}

// The next ABI goes on with the maps of the one before, but for those that it has changed.
func TestUpgradeSharesTheMapsThatAreTheSame(t *testing.T) {
	inBench(t, func(b *bench) {
		old, err := open(b.dir, byClsact{}, must(loadObject()), version{abi: ABI - 1, programs: "older"})
		b.check(err)
		want := Tunnel{
			Kind: VXLAN, Key: 7, Local: netip.MustParseAddr("192.0.2.1"),
			Peer: netip.MustParseAddr("192.0.2.2"),
			TTL:  64, StormControl: 10,
		}
		b.check(old.Add(b.a, Port{Mode: Peer, Peer: b.b, MTU: 1500}))
		b.check(old.Add(b.b, Port{Mode: Peer, Peer: b.a, MTU: 1500, External: true}))
		b.check(old.SetTunnel(b.b, want))
		b.check(old.SetUplink(b.b))
		b.check(old.BindUnderlay([]int{b.a}))
		b.check(old.QueueUplink(true))
		b.check(old.AllowXDPToPort(b.a, b.a))
		b.check(old.maps.Legs.Put(uint32(b.a), objectLeg{Router: 3}))
		before := b.mapIDs(old)
		b.check(old.Close())

		d := b.open()
		defer func() { b.check(d.Close()) }()
		after := b.mapIDs(d)
		for name, u := range upgrades {
			if same := before[name] == after[name]; same != (u.since < ABI) {
				b.Errorf("%s: map %d, and after the upgrade %d", name, before[name], after[name])
			}
		}
		if diff := cmp.Diff(map[int]Tunnel{b.b: want}, must(d.Tunnels()),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			b.Error(diff)
		}
		if bound, err := d.IsUnderlayBound(); !bound || err != nil {
			b.Errorf("the underlay is bound: %v, %v", bound, err)
		}
		if queued, err := d.IsUplinkQueued(); !queued || err != nil || d.needs&needCard == 0 {
			b.Errorf("packets wait at the uplink: %v, %v, with programs for %q", queued, err, d.needs)
		}
		var m objectMeter
		b.check(d.maps.Meters.Lookup(uint32(b.b), &m))
		if diff := cmp.Diff(meter{frames: 10, depth: 1e9}.record(), m); diff != "" {
			b.Errorf("storm control's meter: %s", diff)
		}
	})
}
