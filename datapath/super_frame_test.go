package datapath

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// Both sides of the greatest payload of segments that a link of an MTU takes that leads out of the machine: with
// Ethernet's header, and a tag's worth more. Within the machine all pass, as the kernel's own links let them.
func TestSuperFramesOfSegmentsThatDoNotFitAreDropped(t *testing.T) {
	const mtu, tag = 1500, 4
	options := []layers.IPv4Option{{OptionType: 1, OptionLength: 1}, {OptionType: 1, OptionLength: 1},
		{OptionType: 1, OptionLength: 1}, {OptionType: 0, OptionLength: 1}}
	inWorld(t, func(w *world) {
		w.check(w.d.Add(w.a, Port{MTU: mtu, MAC: macA}))
		to := w.port(macB)
		w.join(w.a, to)
		w.name = "within the machine"
		frame := packet{to: macB, tcp: true, payload: 3000}.bytes()
		w.expect(w.send(frame, skbuff{GSOSize: 1 << 15}), verdictRedirect, frame,
			map[string]uint64{fmt.Sprintf("handed %d", to): 1})
		w.change(to, func(p *Port) { p.External = true })
		for name, c := range map[string]struct {
			frame   []byte
			headers int
		}{
			"TCP":          {packet{to: macB, tcp: true, payload: 3000}.bytes(), 20 + 20},
			"TCP, IPv6":    {packet{to: macB, tcp: true, payload: 3000, v6: true}.bytes(), 40 + 20},
			"TCP, options": {packet{to: macB, tcp: true, payload: 3000, options: options}.bytes(), 24 + 20},
			"UDP":          {packet{to: macB, payload: 3000}.bytes(), 20 + 8},
			"UDP, IPv6":    {packet{to: macB, payload: 3000, v6: true}.bytes(), 40 + 8},
			"unknown":      {ethernet(macB, macA, 0x88b5, 3000), 20 + 8}, // at least
		} {
			w.name = name
			fits := mtu + tag - c.headers
			w.expect(w.send(c.frame, skbuff{GSOSize: uint32(fits)}), verdictRedirect, c.frame,
				map[string]uint64{})
			w.expect(w.send(c.frame, skbuff{GSOSize: uint32(fits + 1)}), verdictShot, c.frame,
				map[string]uint64{fmt.Sprintf("too big %d", w.a): 1})
		}
		frame = packet{to: macB, payload: 1400}.bytes()
		w.name = "a segment that is the frame"
		w.expect(w.send(frame, skbuff{GSOSize: 3000}), verdictRedirect, frame, map[string]uint64{})
	})
}

// Behind a router, too: the interface by which it sends may take more than the one at the other end.
func TestSuperFramesOfSegmentsThatDoNotFitBehindARouter(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		w.change(l.end, func(p *Port) { p.MTU, p.External = 1000, true })
		frame := packet{tcp: true, payload: 3000}.bytes()
		have := w.send(frame, skbuff{GSOSize: 1400})
		w.expect(have, verdictShot, have.Frame, l.passed(1, fmt.Sprintf("too big %d", l.out[0])))
		have = w.send(frame, skbuff{GSOSize: 900})
		w.expect(have, verdictRedirect, have.Frame, l.passed(1))
	})
}

// A packet socket with PACKET_VNET_HDR says itself how long segments are; the device's MTU does not bind it.
func TestLiveSuperFrameOfForgedSegmentsStaysHere(t *testing.T) {
	inTwoMachines(t, func(a, b *machine) {
		a.addTunnelPort(a.a, sorts[0])
		b.addTunnelPort(b.a, sorts[0].turned())
		a.superFrame(b, false) // of segments that fit
		tooBig := fmt.Sprintf("too big %d", a.a)
		a.take()
		for _, v6 := range []bool{false, true} {
			a.name = fmt.Sprintf("IPv6 %v", v6)
			frame := packet{to: macB, v6: v6, tcp: true, payload: 9000}.bytes()
			kind, above := byte(1), 34 // VIRTIO_NET_HDR_GSO_TCPV4
			if v6 {
				kind, above = 4, 54
			}
			header := []byte{1, kind} // the checksum is wanted
			for _, n := range []int{above + 20, 1700, above, 16} {
				header = binary.LittleEndian.AppendUint16(header, uint16(n))
			}
			a.check(a.stations[a.a].sendSuper(slices.Concat(header, frame)))
			plain := packet{to: macB, v6: v6}.bytes()
			a.check(a.say(a.a, plain))
			b.awaitsFrame(plain) // and nothing before it
			if have := a.take(); have[tooBig] != 1 {
				a.Errorf("counted %v, want %s", have, tooBig)
			}
		}
	})
}
