package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// RingKey is the secret that the servers of one ring share; empty: they have none, and anybody can act as one.
type RingKey []byte

// ErrTag says that a packet was not made by a server of the ring.
var ErrTag = errors.New("the packet has not the tag of the ring's key")

const tagSize = 16

// tag is an HMAC-SHA-256 (RFC 2104) over all that stands before it, cut to 16 bytes; without a key it is 0.
func (k RingKey) tag(b []byte) (tag [tagSize]byte) {
	if len(k) > 0 {
		mac := hmac.New(sha256.New, k)
		mac.Write(b)
		copy(tag[:], mac.Sum(nil))
	}
	return tag
}

// sign writes the tag over the last 16 bytes of the packet.
func (k RingKey) sign(p Packet) Packet {
	tag := k.tag(p[:len(p)-tagSize])
	copy(p[len(p)-tagSize:], tag[:])
	return p
}

func (k RingKey) verify(p Packet) bool {
	tag := k.tag(p[:len(p)-tagSize])
	return hmac.Equal(tag[:], p[len(p)-tagSize:])
}
