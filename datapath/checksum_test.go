package datapath

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// sumOf adds 16-bit words (RFC 1071).
func sumOf(parts ...[]byte) uint16 {
	var sum uint32
	for i, b := range slices.Concat(parts...) {
		if i%2 == 0 {
			sum += uint32(b) << 8
		} else {
			sum += uint32(b)
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// pseudoHeader is the pseudo header of a packet of UDP, and where UDP begins.
func pseudoHeader(t Tunnel, p []byte) (header []byte, at int) {
	at = 14 + 20
	header = p[26:34]
	if t.Local.Is6() {
		at = 14 + 40
		header = p[22:54]
	}
	return append(slices.Clone(header), 0, 17, 0, 0, p[at+4], p[at+5]), at
}

// summed gives a packet of VXLAN its checksum.
func summed(t Tunnel, p []byte) []byte {
	header, at := pseudoHeader(t, p)
	binary.BigEndian.PutUint16(p[at+6:], 0)
	binary.BigEndian.PutUint16(p[at+6:], ^sumOf(header, p[at:]))
	return p
}

// unfinished gives it what a sender leaves to its network card to finish.
func unfinished(t Tunnel, p []byte) []byte {
	header, at := pseudoHeader(t, p)
	binary.BigEndian.PutUint16(p[at+6:], sumOf(header))
	return p
}

// A checksum is verified over packets of any length, and any byte that is wrong is found.
func TestVXLANChecksumsAreVerified(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			if tunnel.Kind != VXLAN {
				continue
			}
			port := w.tunnelled(w.a, tunnel)
			from := tunnel.turned()
			for _, payload := range []int{1, 64, 70, 71, 127, 128, 129, 1000, 1390} {
				frame := packet{to: macA, payload: payload}.bytes()
				p := summed(from, from.outer(frame, around{sport: 50000}))
				w.name = fmt.Sprintf("%s, payload of %d", tunnel.named(), payload)
				w.expect(w.receive(slices.Clone(p)), verdictRedirect, frame,
					map[string]uint64{Received: 1, fmt.Sprintf("handed %d", w.a): 1})
				for _, at := range []int{len(p) - 1, len(p) - len(frame) + 20, len(p) - len(frame)/2} {
					bad := slices.Clone(p)
					bad[at] ^= 0x40
					w.name = fmt.Sprintf(
						"%s, payload of %d, byte %d wrong",
						tunnel.named(),
						payload,
						at,
					)
					w.expect(w.receive(slices.Clone(bad)), verdictShot, bad,
						map[string]uint64{fmt.Sprintf("checksum %d", port): 1})
				}
			}
			w.check(w.d.Forget(port))
		}
	})
}

// The line card leaves packets with checksums to tc, which can verify them.
func TestTunnelCardVerifiesNoChecksum(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			if tunnel.Kind != VXLAN {
				continue
			}
			w.name = tunnel.named()
			port := w.tunnelled(w.a, tunnel)
			p := summed(tunnel.turned(), tunnel.turned().outer(packet{to: macA}.bytes(),
				around{to: macHere, from: macThere}))
			w.expect(w.card(slices.Clone(p)), xdpPass, p, map[string]uint64{})
			w.check(w.d.Forget(port))
		}
	})
}

// A packet that ends within its tunnel's header is no business of the machine's stack.
func TestPacketsThatEndInATunnelsHeaderAreCounted(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		for _, tunnel := range sorts {
			port := w.tunnelled(w.a, tunnel)
			p := tunnel.turned().outer(nil, around{to: macHere, from: macThere})
			above := 14 + 20
			if tunnel.Local.Is6() {
				above = 14 + 40
			}
			for length := above; length < min(len(p), above+16); length++ {
				w.name = fmt.Sprintf("%s, %d bytes", tunnel.named(), length)
				verdict, counted := uint32(verdictShot), map[string]uint64{"malformed": 1}
				if length < above+4 {
					// nobody can tell whose it is
					verdict, counted = verdictNext, map[string]uint64{}
				}
				cut := slices.Clone(p[:length])
				w.expect(w.run(w.d.programs.UnderlayIngress, w.a, cut), verdict, cut, counted)
			}
			w.check(w.d.Forget(port))
		}
	})
}
