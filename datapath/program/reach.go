package program

import (
	"math"
	"unsafe"

	"github.com/cilium/ebpf/asm"
)

// How far a program reads and writes the window and the key is found by the analysis of leak.go, which follows
// addresses. The platform loads, zeroes and stores no more than that. If it were too little, the program would see
// bytes of earlier frames of its own slice, and of nobody else's.

// reach is in bytes.
type reach struct {
	window int // behind the place where the frame begins in it
	key    int
}

// all is the reach of an address that is computed.
var all = reach{window: windowSize, key: keySize}

const (
	windowSize   = 256 // PERGOLA_WINDOW
	headroom     = 128 // PERGOLA_HEADROOM
	shortest     = 14  // an Ethernet header
	keyAt        = int(unsafe.Offsetof(stagesPergolaPacket{}.Key))
	windowAt     = int(unsafe.Offsetof(stagesPergolaPacket{}.Window))
	frameAt      = windowAt + headroom
	startAt      = int(unsafe.Offsetof(stagesPergolaPacket{}.Start))
	startSize    = int(unsafe.Sizeof(stagesPergolaPacket{}.Start))
	packetOffset = math.MaxInt16 // addresses further away are not followed
)

// moved is the address of a byte of the packet after something was added or subtracted.
func (v value) moved(ins *asm.Instruction, byRegister bool) value {
	by := ins.Constant
	if ins.OpCode.ALUOp() == asm.Sub {
		by = -by
	}
	if at := int64(v.offset) + by; !byRegister && at >= -packetOffset && at <= packetOffset {
		v.offset = int16(at)
		return v
	}
	return value{kind: isAddress, packet: maybePacket}
}

// touch notes an access.
func (a *analysis) touch(base value, offset, size int) {
	switch base.packet {
	case maybePacket:
		a.reach = all
	case ofPacket:
		first := int(base.offset) + offset
		end := first + size
		if first < keyAt+keySize && end > keyAt {
			a.reach.key = max(a.reach.key, min(end-keyAt, keySize))
		}
		if first < startAt+startSize && end > startAt {
			// The frame may begin elsewhere. Where tc shortens it, its first bytes are written anew,
			// wherever they come from.
			a.reach.window = windowSize
		}
		if end > frameAt {
			a.reach.window = max(a.reach.window, min(end-frameAt, windowSize))
		}
	default:
	}
}

// setReach keeps what the analysis found. A lookup compares whole words, as many as package filter hashes.
func (o *Object) setReach(found reach) {
	const short, middle = 16, 32
	looked := keySize
	switch {
	case o.KeyBytes <= short:
		looked = short
	case o.KeyBytes <= middle:
		looked = middle
	}
	o.reach = reach{window: found.window, key: max(found.key, looked)}
	if found.window > 0 {
		o.reach.window = max(found.window, shortest)
	}
}
