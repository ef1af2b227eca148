package ident

import "crypto/sha256"

// Constrained identifiers (Adkins, Lakshminarayanan, Perrig, Stoica: "Towards a More Functional and Secure Network
// Infrastructure", UC Berkeley, technical report CSD-03-1242, 2003): a trigger from x to y is allowed only if the key
// of x is Left of the key of y, or the key of y is Right of the key of x. So nobody can hang a trigger of his own below
// an identifier whose key he knows but did not make, or point one at a key of his choice, and a cycle of triggers would
// be a cycle of the hash functions. In the report the key is bits 64 to 191 of an identifier; here it is the 128 bits
// that have to match exactly.

// Left gives the key that an identifier must have to lead to the key or secret k.
func Left(k Key) Key { return hash("i3 left", k) }

// Right gives the key to which an identifier with key k may lead.
func Right(k Key) Key { return hash("i3 right", k) }

// MayLead reports whether a trigger may lead from key x to key y. For a trigger to an address, y is a secret that the
// trigger's owner shows.
func MayLead(x, y Key) bool { return x == Left(y) || y == Right(x) }

func hash(label string, k Key) Key {
	b := k.Bytes()
	sum := sha256.Sum256(append([]byte(label), b[:]...))
	return KeyFrom([KeySize]byte(sum[:KeySize]))
}
