package program

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func ethernet(t testing.TB, to, from []byte, kind layers.EthernetType, payload ...byte) []byte {
	t.Helper()
	body := append(payload, make([]byte, max(46-len(payload), 0))...)
	return serialize(t, &layers.Ethernet{DstMAC: to, SrcMAC: from, EthernetType: kind}, gopacket.Payload(body))
}

const local = layers.EthernetType(0x88b5)

// word is a label stack entry.
func word(label uint32, bottom bool, ttl byte) []byte {
	b := []byte{byte(label >> 12), byte(label >> 4), byte(label << 4), ttl}
	if bottom {
		b[2] |= 1
	}
	return b
}

// mplsResult is a result's arguments for mpls.c.
func mplsResult(operation byte, label uint32) (r Result) {
	r = Result{Verdict: Send, Interface: 2}
	copy(r.Arguments[:], macC)
	copy(r.Arguments[6:], macB)
	r.Arguments[12] = operation
	copy(r.Arguments[16:], []byte{0, byte(label >> 16), byte(label >> 8), byte(label)})
	return r
}

func TestMPLSSwapsPopsAndPushes(t *testing.T) {
	p := load(t, example(t, "mpls.c"))
	label := func(n uint32) []byte { return []byte{0, byte(n >> 16), byte(n >> 8), byte(n)} }
	exact := []byte{255, 255, 255, 255}
	const swap, pop, push = 0, 1, 2
	err := p.SetFilters([]Filter{
		{Key: label(100), Mask: exact, Result: mplsResult(swap, 200)},
		{Key: label(101), Mask: exact, Result: mplsResult(pop, 0)},
		{Key: label(102), Mask: exact, Result: mplsResult(push, 300)},
		{Key: exact, Mask: exact, Result: mplsResult(push, 400)},
	})
	if err != nil {
		t.Fatal(err)
	}
	const mpls, ip4 = layers.EthernetTypeMPLSUnicast, layers.EthernetTypeIPv4
	packet := udp4(t, "198.51.100.7", 9, 80)[14:]
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		came []byte
		want []byte
	}{
		"swap": {ethernet(t, macB, macA, mpls, join(word(100, true, 9), packet)...), ethernet(t, macC,
			macB, mpls, join(word(200, true, 8), packet)...)},
		"pop": {ethernet(t, macB, macA, mpls, join(word(101, true, 9), packet)...), ethernet(t, macC,
			macB, ip4, packet...)},
		"pop of two": {ethernet(t, macB, macA, mpls, join(word(101, false, 9), word(7, true, 3), packet)...),
			ethernet(t, macC, macB, mpls, join(word(7, true, 8), packet)...)},
		"push": {ethernet(t, macB, macA, mpls, join(word(102, true, 9), packet)...), ethernet(t, macC,
			macB, mpls, join(word(300, false, 8), word(102, true, 9), packet)...)},
		"first push": {ethernet(t, macB, macA, ip4, packet...), ethernet(t, macC, macB, mpls, join(word(400,
			true, 8), packet)...)},
	} {
		for _, hook := range Hooks {
			o := run(t, p, hook, Frame{Data: c.came, Interface: 1})
			if diff := cmp.Diff(c.want, o.Data); diff != "" || o.Output != 2 {
				t.Errorf("%s, %s: %+v: %s", name, hook, o, diff)
			}
		}
	}
}

func TestL2LearnsAndFloods(t *testing.T) {
	p := load(t, example(t, "l2.c"))
	for i, c := range []struct {
		to, from []byte
		in       uint32
		want     Verdict
		flood    uint64
		out      uint32
	}{
		{macB, macA, 1, Flood, 1<<2 | 1<<3, 0},
		{macA, macB, 2, Send, 0, 1},
		{macB, macA, 1, Send, 0, 2},
		{macB, macA, 3, Send, 0, 2}, // a has moved
		{macA, macB, 2, Send, 0, 3}, //
		{macA, macC, 3, Drop, 0, 0}, // heard by a already
		{[]byte{255, 255, 255, 255, 255, 255}, macB, 2, Flood, 1<<1 | 1<<3, 0},
		{macA, []byte{3, 0, 0, 0, 0, 1}, 2, Drop, 0, 0}, // a group sends nothing
	} {
		o := run(t, p, Hooks[i%2], Frame{Data: ethernet(t, c.to, c.from, local), Interface: c.in,
			Interfaces: 1<<1 | 1<<2 | 1<<3})
		if o.Verdict != c.want || o.Flood != c.flood || o.Output != c.out {
			t.Errorf("frame %d: %+v", i, o)
		}
	}
}

func TestDelayIsMeasured(t *testing.T) {
	p := load(t, example(t, "delay.c"))
	frame := ethernet(t, macB, macA, local, 1, 2, 3)
	stamped := run(t, p, XDP, Frame{Data: frame, Interface: 1, Time: 5_000_000_000})
	if stamped.Output != 2 || len(stamped.Data) != len(frame)+12 || stamped.Start != -12 {
		t.Fatalf("%+v", stamped)
	}
	back := run(t, p, XDP, Frame{Data: stamped.Data, Interface: 2, Time: 5_000_300_000})
	if diff := cmp.Diff(frame, back.Data); diff != "" || back.Output != 1 {
		t.Errorf("%+v: %s", back, diff)
	}
	counters, err := p.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	var bucket uint64
	if err := p.maps[prefix+memoryMap].Lookup(uint32(18), &bucket); err != nil { // 2^18 to 2^19 ns
		t.Fatal(err)
	}
	if counters["total_ns"] != 300_000 || counters["measured"] != 1 || bucket != 1 {
		t.Errorf("counters %v, bucket %d", counters, bucket)
	}
}

func TestTrailIsFollowed(t *testing.T) {
	p := load(t, example(t, "trail.c"))
	frame := ethernet(t, macB, macA, local, 0x12, 0x34, 3, 0, 2, 4, 0, 'p', 'a', 'y')
	first := run(t, p, XDP, Frame{Data: frame})
	second := run(t, p, XDP, Frame{Data: first.Data})
	third := run(t, p, XDP, Frame{Data: second.Data})
	if first.Output != 2 || second.Output != 4 || third.Verdict != Punt {
		t.Errorf("outputs %d and %d, then %s", first.Output, second.Output, third.Verdict)
	}
	last := run(t, p, XDP, Frame{Data: ethernet(t, macB, macA, local, 0x12, 0x34, 1, 2, 4, 'p', 'a', 'y')})
	if want := append(append(bytes.Clone(macB), macA...), 0x12, 0x34, 'p', 'a', 'y'); !bytes.HasPrefix(last.Data,
		want) {
		t.Errorf("a frame at its trail's end: %x", last.Data)
	}
	if o := run(t, p, XDP, Frame{Data: ethernet(t, macB, macA, local, 0, 0, 200)}); o.Verdict != Drop {
		t.Errorf("a trail of 200 hops: %+v", o)
	}
}
