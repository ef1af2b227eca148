package ident

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// KeySize is the size of a key in bytes.
const KeySize = Exact / 8

// Key is a point on the Chord ring: a number modulo 2^128.
type Key struct{ high, low uint64 }

// KeyFrom reads a key in network byte order.
func KeyFrom(b [KeySize]byte) Key {
	return Key{high: binary.BigEndian.Uint64(b[:8]), low: binary.BigEndian.Uint64(b[8:])}
}

// Bytes gives the key in network byte order.
func (k Key) Bytes() (b [KeySize]byte) {
	binary.BigEndian.PutUint64(b[:8], k.high)
	binary.BigEndian.PutUint64(b[8:], k.low)
	return b
}

// String gives the 32 hexadecimal digits.
func (k Key) String() string { return fmt.Sprintf("%016x%016x", k.high, k.low) }

// MarshalText gives the same as String, for JSON.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ID gives the identifier that has this key and otherwise zeros.
func (k Key) ID() ID { return ID{}.WithKey(k) }

// Compare orders keys as numbers.
func (k Key) Compare(other Key) int {
	switch {
	case k == other:
		return 0
	case k.high < other.high || k.high == other.high && k.low < other.low:
		return -1
	}
	return 1
}

// Plus gives k + 2^n modulo 2^128, where 0 <= n < 128: the start of the ring's n-th finger.
func (k Key) Plus(n int) Key {
	var carry uint64
	if n < 64 {
		k.low, carry = bits.Add64(k.low, 1<<n, 0)
		k.high += carry
		return k
	}
	k.high += 1 << (n - 64)
	return k
}

// From gives the distance from other to k, clockwise: k - other modulo 2^128.
func (k Key) From(other Key) Key {
	low, borrow := bits.Sub64(k.low, other.low, 0)
	high, _ := bits.Sub64(k.high, other.high, borrow)
	return Key{high: high, low: low}
}

// In reports whether k lies in (from, to], clockwise. If from equals to, that is the whole ring.
func (k Key) In(from, to Key) bool {
	return from == to || k != from && k.From(from).Compare(to.From(from)) <= 0
}

// Between reports whether k lies in (from, to), clockwise. If from equals to, that is all but this one key.
func (k Key) Between(from, to Key) bool { return k != to && k.In(from, to) }
