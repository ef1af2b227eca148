package datapath

import (
	"math/rand/v2"
)

// anyFrame is noise, or a frame that is nearly in order.
func anyFrame(r *rand.Rand) []byte {
	p := packet{v6: r.IntN(2) == 0, tcp: r.IntN(2) == 0, ttl: 1 + r.IntN(255), sport: uint16(1 + r.IntN(60000)),
		payload: 1 + r.IntN(1200), hop: r.IntN(20) == 0}
	p.hop = p.hop && p.v6
	p.to = mac(r.IntN(8))
	f := p.bytes()
	switch r.IntN(4) {
	case 0: // as it is
	case 1: // a few bytes are others
		for range 1 + r.IntN(4) {
			f[r.IntN(min(len(f), 60))] = byte(r.IntN(256))
		}
		if !p.v6 && r.IntN(2) == 0 {
			resum(f)
		}
	case 2: // cut
		f = f[:14+r.IntN(len(f)-14)]
	case 3:
		for i := 14; i < len(f); i++ {
			f[i] = byte(r.IntN(256))
		}
	}
	return f
}
