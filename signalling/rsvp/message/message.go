// Package message is the wire format of RSVP (RFC 2205) and of its extensions for traffic engineering (RFC 3209).
//
// Decode is strict: lengths, counts and values that a later reader would have to check again are refused with the
// object, the offset and the reason. Reserved fields are ignored, as the RFCs ask for, and are zero in what is encoded.
// Objects have one type for IPv4 and IPv6; the addresses in them say which C-Type they are.
//
// Not here: Notify (RFC 3473), the objects of multicast (RFC 2205's SCOPE is), ATM and Frame Relay labels,
// generalized label requests, IF_ID hops, and the source lists of RFC 2961 for multicast sessions.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Type is the type of a message.
type Type uint8

// The types of messages.
const (
	Path     Type = 1
	Resv     Type = 2
	PathErr  Type = 3
	ResvErr  Type = 4
	PathTear Type = 5
	ResvTear Type = 6
	ResvConf Type = 7
	Bundle   Type = 12
	Ack      Type = 13
	Srefresh Type = 15
	Hello    Type = 20
)

var typeNames = map[Type]string{Path: "Path", Resv: "Resv", PathErr: "PathErr", ResvErr: "ResvErr",
	PathTear: "PathTear", ResvTear: "ResvTear", ResvConf: "ResvConf", Bundle: "Bundle", Ack: "Ack",
	Srefresh: "Srefresh", Hello: "Hello"}

func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// RefreshReduction is the flag of a sender that takes Srefresh, bundles and acknowledgements (RFC 2961, section 2).
const RefreshReduction = 1

// Message is an RSVP message.
type Message struct {
	Type  Type
	Flags uint8 // of four bits
	TTL   uint8 // the IP TTL with which the message was sent
	// Objects are in the order of the wire.
	Objects []Object
	// Bundled are the messages of a Bundle, none of which is a Bundle.
	Bundled []Message
	// Encoded are messages of a Bundle that is to be encoded, as Encode gives them, behind those of Bundled.
	Encoded [][]byte
}

const (
	headerLength = 8
	version      = 1
	maxLength    = 65535
)

// Error says what is wrong with a message.
type Error struct {
	Object string // "" for the header
	Offset int    // of the wrong byte, from the beginning of the message
	Reason string
	// Code and Value are those of the error message that RFC 2205 (section 3.10) asks for; Code 0: none.
	Code  ErrorCode
	Value uint16
}

func (e *Error) Error() string {
	object := e.Object
	if object == "" {
		object = "header"
	}
	return fmt.Sprintf("%s at byte %d: %s", object, e.Offset, e.Reason)
}

// Decode reads a message. An Error with a Code comes together with the message, less the object that is not known, so
// that its sender can be told.
func Decode(b []byte) (Message, error) { return decode(b, 0, false) }

func decode(b []byte, base int, bundled bool) (Message, error) {
	wrong := func(at int, format string, args ...any) error {
		return &Error{Offset: base + at, Reason: fmt.Sprintf(format, args...)}
	}
	if len(b) < headerLength {
		return Message{}, wrong(len(b), "%d bytes are less than a header's %d", len(b), headerLength)
	}
	if v := b[0] >> 4; v != version {
		return Message{}, wrong(0, "version %d, want %d", v, version)
	}
	m := Message{Type: Type(b[1]), Flags: b[0] & 0xf, TTL: b[4]}
	if _, ok := typeNames[m.Type]; !ok {
		return Message{}, wrong(1, "message type %d is not known", m.Type)
	}
	if bundled && m.Type == Bundle {
		return Message{}, wrong(1, "a Bundle in a Bundle")
	}
	if n := int(binary.BigEndian.Uint16(b[6:])); n != len(b) {
		return Message{}, wrong(6, "length %d of a message of %d bytes", n, len(b))
	}
	if binary.BigEndian.Uint16(b[2:]) != 0 && checksum(b) != 0 {
		return Message{}, wrong(2, "wrong checksum")
	}
	return m.body(b, base)
}

// body reads what follows the header.
func (m Message) body(b []byte, base int) (Message, error) {
	var unknown error
	for at := headerLength; at < len(b); {
		if m.Type == Bundle && b[at]>>4 != 0 {
			n, err := nestedLength(b[at:], base+at)
			if err != nil {
				return Message{}, err
			}
			inner, err := decode(b[at:at+n], base+at, true)
			if err != nil {
				return Message{}, err
			}
			m.Bundled = append(m.Bundled, inner)
			at += n
			continue
		}
		if len(m.Bundled) > 0 {
			return Message{}, &Error{Offset: base + at, Reason: "an object after a bundled message"}
		}
		o, n, err := decodeObject(b[at:], base+at)
		var e *Error
		switch {
		case errors.As(err, &e) && e.Code != 0:
			unknown = err
		case err != nil:
			return Message{}, err
		case o != nil:
			m.Objects = append(m.Objects, o)
		}
		at += n
	}
	return m, unknown
}

func nestedLength(b []byte, base int) (int, error) {
	if len(b) < headerLength {
		return 0, &Error{Offset: base, Reason: "a bundled message is cut off"}
	}
	n := int(binary.BigEndian.Uint16(b[6:]))
	if n < headerLength || n > len(b) {
		return 0, &Error{Offset: base + 6, Reason: fmt.Sprintf("bundled length %d, of %d bytes left", n,
			len(b))}
	}
	return n, nil
}

// Encode gives the bytes of a message, with its checksum.
func (m Message) Encode() ([]byte, error) {
	b, err := m.encode()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Type, err)
	}
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b, nil
}

// encode leaves the checksum 0.
func (m Message) encode() ([]byte, error) {
	if m.Flags > 0xf {
		return nil, fmt.Errorf("flags %#x have more than four bits", m.Flags)
	}
	size := headerLength + 24*len(m.Objects) // of most
	for _, nested := range m.Encoded {
		size += len(nested)
	}
	b := append(make([]byte, 0, size), version<<4|m.Flags, byte(m.Type), 0, 0, m.TTL, 0, 0, 0)
	var err error
	for _, o := range m.Objects {
		if b, err = appendObject(b, o); err != nil {
			return nil, err
		}
	}
	if len(m.Bundled)+len(m.Encoded) > 0 && m.Type != Bundle {
		return nil, errors.New("only a Bundle has messages in it")
	}
	for _, inner := range m.Bundled {
		if inner.Type == Bundle {
			return nil, errors.New("a Bundle in a Bundle")
		}
		nested, err := inner.Encode()
		if err != nil {
			return nil, err
		}
		b = append(b, nested...)
	}
	for _, nested := range m.Encoded {
		b = append(b, nested...)
	}
	if len(b) > maxLength {
		return nil, fmt.Errorf("%d bytes, at most %d", len(b), maxLength)
	}
	binary.BigEndian.PutUint16(b[6:], uint16(len(b)))
	return b, nil
}

// checksum is the one of IP, over the whole message; 0 for bytes that hold their checksum.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
