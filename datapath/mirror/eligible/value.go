package eligible

import (
	"math/bits"

	"golang.org/x/net/bpf"
)

// value is what is known of a 32-bit number that nobody has seen: some of its bits, and bounds. It stands for every
// number that agrees with all of it; the analysis may forget what it knew, but never know too much.
type value struct {
	known  uint32 // which bits are known
	bits   uint32 // their values; 0 where a bit is not known
	lo, hi uint32 // both included
}

var anything = value{hi: ^uint32(0)}

// octet is any byte.
var octet = between(0, 0xff)

func exactly(k uint32) value { return value{known: ^uint32(0), bits: k, lo: k, hi: k} }

func between(lo, hi uint32) value {
	v, _ := value{lo: lo, hi: hi}.tighten()
	return v
}

// tighten draws from the bits what they say of the bounds, and the reverse. False: there is no such number.
func (v value) tighten() (value, bool) {
	v.lo, v.hi = max(v.lo, v.bits), min(v.hi, v.bits|^v.known)
	if v.lo > v.hi {
		return v, false
	}
	// Bits above the highest one in which the bounds differ are those of the bounds.
	above := ^(uint32(1)<<bits.Len32(v.lo^v.hi) - 1)
	if (v.bits^v.lo)&above&v.known != 0 {
		return v, false
	}
	v.known |= above
	v.bits = v.bits&^above | v.lo&above
	return v, true
}

func (v value) exact() (uint32, bool) { return v.lo, v.lo == v.hi }

func (v value) has(k uint32) bool { return v.lo <= k && k <= v.hi && (k^v.bits)&v.known == 0 }

// or stands for all numbers of both.
func (v value) or(o value) value {
	agree := v.known & o.known &^ (v.bits ^ o.bits)
	return value{known: agree, bits: v.bits & agree, lo: min(v.lo, o.lo), hi: max(v.hi, o.hi)}
}

// given is what is known once a test of the number against k came out true. False: it cannot.
func (v value) given(test bpf.JumpTest, k uint32) (value, bool) {
	switch test {
	case bpf.JumpEqual:
		return exactly(k), v.has(k)
	case bpf.JumpNotEqual:
		if v.lo == v.hi && v.lo == k {
			return v, false
		}
		if v.lo == k {
			v.lo++
		} else if v.hi == k {
			v.hi--
		}
	case bpf.JumpGreaterThan:
		if k == ^uint32(0) {
			return v, false
		}
		v.lo = max(v.lo, k+1)
	case bpf.JumpGreaterOrEqual:
		v.lo = max(v.lo, k)
	case bpf.JumpLessThan:
		if k == 0 {
			return v, false
		}
		v.hi = min(v.hi, k-1)
	case bpf.JumpLessOrEqual:
		v.hi = min(v.hi, k)
	case bpf.JumpBitsSet:
		if (v.bits|^v.known)&k == 0 {
			return v, false
		}
		if bits.OnesCount32(k) == 1 {
			v.known, v.bits = v.known|k, v.bits|k
		}
	case bpf.JumpBitsNotSet:
		if v.bits&k != 0 {
			return v, false
		}
		v.known |= k
	}
	return v.tighten()
}

// opposite is the test that comes out true where the other does not.
var opposite = map[bpf.JumpTest]bpf.JumpTest{
	bpf.JumpEqual:          bpf.JumpNotEqual,
	bpf.JumpNotEqual:       bpf.JumpEqual,
	bpf.JumpGreaterThan:    bpf.JumpLessOrEqual,
	bpf.JumpLessOrEqual:    bpf.JumpGreaterThan,
	bpf.JumpLessThan:       bpf.JumpGreaterOrEqual,
	bpf.JumpGreaterOrEqual: bpf.JumpLessThan,
	bpf.JumpBitsSet:        bpf.JumpBitsNotSet,
	bpf.JumpBitsNotSet:     bpf.JumpBitsSet,
}

// compute gives what is known of v op o. Arithmetic of numbers that are not known exactly is forgotten, but for the bit
// operations that filters use on header fields.
func compute(op bpf.ALUOp, v, o value) value {
	a, aExact := v.exact()
	b, bExact := o.exact()
	if aExact && bExact {
		return calculate(op, a, b)
	}
	r := value{hi: ^uint32(0)}
	switch {
	case op == bpf.ALUOpAnd:
		r.hi = min(v.hi, o.hi)
		r.known = v.known&o.known | v.known&^v.bits | o.known&^o.bits // a zero on either side decides
		r.bits = v.bits & o.bits
	case op == bpf.ALUOpOr:
		r.known = v.known&o.known | v.bits | o.bits
		r.bits = v.bits | o.bits
	case op == bpf.ALUOpXor:
		r.known = v.known & o.known
		r.bits = (v.bits ^ o.bits) & r.known
	case op == bpf.ALUOpShiftLeft && bExact && b < 32:
		r.known = v.known<<b | (1<<b - 1)
		r.bits = v.bits << b
	case op == bpf.ALUOpShiftRight && bExact && b < 32:
		r.known = v.known>>b | ^(^uint32(0) >> b)
		r.bits = v.bits >> b
		r.lo, r.hi = v.lo>>b, v.hi>>b
	default:
		return anything
	}
	r, _ = r.tighten()
	return r
}

// calculate is compute for two numbers. Where kernels and their compilers differ, nothing is known: shifts by more
// than 31. A division by zero ends the program without accepting the frame.
func calculate(op bpf.ALUOp, a, b uint32) value {
	switch op {
	case bpf.ALUOpAdd:
		return exactly(a + b)
	case bpf.ALUOpSub:
		return exactly(a - b)
	case bpf.ALUOpMul:
		return exactly(a * b)
	case bpf.ALUOpAnd:
		return exactly(a & b)
	case bpf.ALUOpOr:
		return exactly(a | b)
	case bpf.ALUOpXor:
		return exactly(a ^ b)
	case bpf.ALUOpDiv:
		if b != 0 {
			return exactly(a / b)
		}
	case bpf.ALUOpMod:
		if b != 0 {
			return exactly(a % b)
		}
	case bpf.ALUOpShiftLeft:
		if b < 32 {
			return exactly(a << b)
		}
	case bpf.ALUOpShiftRight:
		if b < 32 {
			return exactly(a >> b)
		}
	}
	return anything
}
