// Package ident has the identifiers of I3 (Stoica et al., "Internet Indirection Infrastructure", SIGCOMM 2002) and the
// arithmetic of the ring on which they live. It is pure: values in, values out.
//
// An identifier has 256 bits. Its first 128 bits, the key, must be equal in a packet and in a trigger for these to
// match; the key is also the point of the Chord ring that decides which server is responsible, so all identifiers that
// can match are at one server. The other 128 bits choose among the triggers of that key: the longest common prefix
// wins (anycast).
package ident

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Lengths of an identifier.
const (
	Bits  = 256 // of an identifier (m in the paper)
	Exact = 128 // of its prefix that has to match exactly (k in the paper)
	Size  = Bits / 8
)

// ID is an identifier, in network byte order.
type ID [Size]byte

// FromName gives the identifier of a name that people agreed on: its SHA-256 (FIPS 180-4).
func FromName(name string) ID { return sha256.Sum256([]byte(name)) }

// Parse reads an identifier: 64 hexadecimal digits, or else a name, for FromName. The empty string is an error.
func Parse(text string) (ID, error) {
	if text == "" {
		return ID{}, fmt.Errorf("read an identifier: the text is empty")
	}
	var id ID
	if len(text) == 2*Size {
		if _, err := hex.Decode(id[:], []byte(text)); err == nil {
			return id, nil
		}
	}
	return FromName(text), nil
}

// String gives the 64 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Short gives the first 8 hexadecimal digits, for logs.
func (id ID) Short() string { return hex.EncodeToString(id[:4]) }

// MarshalText gives the same as String, for JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Key gives the first 128 bits.
func (id ID) Key() Key { return KeyFrom([KeySize]byte(id[:KeySize])) }

// WithKey gives the identifier that has another key and the same last 128 bits.
func (id ID) WithKey(k Key) ID {
	b := k.Bytes()
	copy(id[:], b[:])
	return id
}

// Compare orders identifiers as numbers.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// Common gives the number of leading bits, 0 to 256, that two identifiers have in common.
func Common(a, b ID) int {
	for i := range a {
		if different := a[i] ^ b[i]; different != 0 {
			return 8*i + bits.LeadingZeros8(different)
		}
	}
	return Bits
}

// Prefix is a set of identifiers: those that have the first Bits bits of ID. The other bits of ID are 0.
type Prefix struct {
	ID   ID
	Bits int // 0 to 256
}

// PrefixOf gives the first n bits of an identifier, 0 <= n <= 256.
func PrefixOf(id ID, n int) Prefix {
	whole := n / 8
	if whole < Size {
		id[whole] &= ^byte(0xff >> (n % 8))
		clear(id[whole+1:])
	}
	return Prefix{ID: id, Bits: n}
}

// Contains reports whether id has the prefix.
func (p Prefix) Contains(id ID) bool { return Common(p.ID, id) >= p.Bits }

// String gives the identifier's digits and the length, as 0123...ef/130.
func (p Prefix) String() string { return fmt.Sprintf("%s/%d", p.ID, p.Bits) }
