package message

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // RFC 2747 has it; stronger ones are by key
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// HandshakeFlag is set by a sender that answers challenges (RFC 2747, section 4.3).
const HandshakeFlag = 1

// Integrity authenticates a message by a key. It is the first object.
type Integrity struct {
	Flags    uint8
	KeyID    uint64 // of 48 bits
	Sequence uint64
	Digest   []byte // a multiple of four bytes
}

const (
	keyIDBytes      = 6
	maxKeyID        = 1<<48 - 1
	integrityHeader = 16 // before the digest
)

func readIntegrity(r *reader) Object {
	i := Integrity{Flags: r.u8()}
	r.skip(1)
	id := r.take(keyIDBytes)
	i.KeyID = uint64(binary.BigEndian.Uint16(id))<<32 | uint64(binary.BigEndian.Uint32(id[2:]))
	i.Sequence = r.u64()
	if i.Digest = r.rest(); len(i.Digest) == 0 {
		r.fail("no digest")
	}
	return i
}
func (Integrity) kind() Kind { return Kind{classIntegrity, 1} }
func (i Integrity) write(w *writer) {
	if i.KeyID > maxKeyID || len(i.Digest) == 0 {
		w.fail("key %d, digest of %d bytes", i.KeyID, len(i.Digest))
	}
	w.u8(i.Flags)
	w.u8(0)
	w.u16(uint16(i.KeyID >> 32))
	w.u32(uint32(i.KeyID))
	w.u64(i.Sequence)
	w.bytes(i.Digest)
}

// Algorithm is how a key makes a digest.
type Algorithm uint8

// The algorithms. MD5 is RFC 2747's; both ends have to agree on another one.
const (
	MD5 Algorithm = iota
	SHA1
	SHA256
)

func (a Algorithm) hash() (func() hash.Hash, error) {
	switch a {
	case MD5:
		return md5.New, nil
	case SHA1:
		return sha1.New, nil
	case SHA256:
		return sha256.New, nil
	}
	return nil, fmt.Errorf("algorithm %d is not known", a)
}

// Key is a secret that two neighbours share.
type Key struct {
	ID        uint64
	Algorithm Algorithm
	Secret    []byte
}

// Sign encodes a message with an Integrity object before its others. The sequence number has to be higher than those of
// earlier messages of the same sender by the same key.
func (m Message) Sign(k Key, sequence uint64, flags uint8) ([]byte, error) {
	h, err := k.Algorithm.hash()
	if err != nil {
		return nil, err
	}
	if _, ok := Of[Integrity](m); ok {
		return nil, errors.New("the message has an INTEGRITY object already")
	}
	i := Integrity{Flags: flags, KeyID: k.ID, Sequence: sequence, Digest: make([]byte, h().Size())}
	m.Objects = append([]Object{i}, m.Objects...)
	b, err := m.encode()
	if err != nil {
		return nil, err
	}
	mac := hmac.New(h, k.Secret)
	mac.Write(b) // with checksum and digest zero
	copy(b[headerLength+objectHeader+integrityHeader:], mac.Sum(nil))
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b, nil
}

// ErrForged is the error of a message whose digest is wrong or missing.
var ErrForged = errors.New("message is not authentic")

// Verify decodes a message that has to be signed by one of the keys. Replays are the caller's to find, by the sequence
// number of the Integrity object.
func Verify(b []byte, keys ...Key) (Message, error) {
	m, err := Decode(b)
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Code == 0) {
		return Message{}, err
	}
	if len(m.Objects) == 0 {
		return Message{}, fmt.Errorf("%w: no INTEGRITY object", ErrForged)
	}
	i, ok := m.Objects[0].(Integrity)
	if !ok {
		return Message{}, fmt.Errorf("%w: its first object is no INTEGRITY", ErrForged)
	}
	for _, k := range keys {
		if k.ID != i.KeyID {
			continue
		}
		h, hashErr := k.Algorithm.hash()
		if hashErr != nil {
			return Message{}, hashErr
		}
		mac := hmac.New(h, k.Secret)
		mac.Write(unsigned(b, len(i.Digest)))
		if !hmac.Equal(mac.Sum(nil), i.Digest) {
			return Message{}, fmt.Errorf("%w: wrong digest by key %d", ErrForged, k.ID)
		}
		return m, err
	}
	return Message{}, fmt.Errorf("%w: key %d is not known", ErrForged, i.KeyID)
}

// unsigned is a message with checksum and digest zero. NULL objects before the INTEGRITY are not allowed for.
func unsigned(b []byte, digest int) []byte {
	c := append([]byte(nil), b...)
	clear(c[2:4])
	start := headerLength + objectHeader + integrityHeader
	clear(c[start:min(start+digest, len(c))])
	return c
}
