// Package wire has the packets of I3 as bytes. It is pure: it reads and writes memory, nothing else.
//
// A packet is the payload of one UDP datagram. All numbers are in network byte order. Every packet has the same header,
// so that a program without loops can forward it: what decides where it goes stands at fixed offsets.
//
//	offset  size  field
//	0       1     version: 1
//	1       1     type
//	2       1     hop limit: how many servers may still send it on
//	3       1     depth: number of identifiers in the stack, 0 to 8
//	4       2     copies: how many copies servers may make of it in all; above 1024 counts as 1024
//	6       2     length of the payload in bytes
//	8       32    first identifier of the stack; a routed packet goes to the server that is responsible for it
//	40      32    second identifier, ...
//	8+32d         payload, of which the type decides what it is
//
// Bytes after the payload are ignored: some links pad short frames.
//
// The original implementation of I3 has a header of the same parts, but with options of varying length before the
// payload. It has neither hop limit nor copies.
package wire

import (
	"encoding/binary"
	"errors"

	"github.com/pergola-net/pergola/i3/ident"
)

// Port is the UDP port of servers, where no other is given.
const Port = 5610

// Version is the first byte of a packet.
const Version = 1

// Bounds of the protocol.
const (
	MaxDepth  = 8    // identifiers in a stack
	MaxCopies = 1024 // copies that servers make of one packet
	MaxSize   = HeaderSize + MaxDepth*ident.Size + MaxPayload
	// MaxPayload fits, with the longest stack and the headers of UDP and IPv6, into the largest datagram.
	MaxPayload = 65535 - 48 - HeaderSize - MaxDepth*ident.Size
)

// HeaderSize is the size in bytes of what stands before the stack.
const HeaderSize = 8

// Offsets of fields.
const (
	atVersion  = 0
	atType     = 1
	atHopLimit = 2
	atDepth    = 3
	atCopies   = 4
	atLength   = 6
	atStack    = HeaderSize
)

// DefaultHopLimit is that of packets whose sender does not choose one: enough for any path that Chord finds among
// a thousand servers, five times over.
const DefaultHopLimit = 64

// Type says what a packet is.
type Type uint8

// Types below 16 are routed: each server passes them on to the one that is responsible for the first identifier. The
// others are for the one to whom they were sent.
const (
	Data   Type = 1 // payload: the user's
	Insert Type = 2 // a trigger is inserted or refreshed; payload: Trigger
	Remove Type = 3 // a trigger is removed; payload: Removal

	Delivery  Type = 16 // data at its receiver; the first identifier is that by which it came
	Challenge Type = 17 // a server asks a receiver whether it wants a trigger; payload: Challenged
	Ack       Type = 18 // a trigger is stored, or removed if its lifetime is 0; payload: Acknowledgement
	Refusal   Type = 19 // a trigger is not stored; payload: Refused

	Handover Type = 32 // a server gives a trigger to another one; payload: Trigger and tag
	Find     Type = 33 // messages of the ring; payload: see Ring
	Found    Type = 34
	Query    Type = 35
	State    Type = 36
	Ping     Type = 37
	Pong     Type = 38
	Leave    Type = 39
)

// Routed reports whether servers pass packets of this type on.
func (t Type) Routed() bool { return t < Delivery }

// Why Parse refuses bytes.
var (
	ErrShort   = errors.New("the packet ends before its header says")
	ErrVersion = errors.New("the packet is not of version 1")
	ErrType    = errors.New("the packet's type is unknown")
	ErrDepth   = errors.New("the packet's stack has a wrong depth")
)

// Packet is one packet whose header was checked: Parse or one of the functions that build packets made it.
type Packet []byte

// Parse checks the header, and cuts off what follows the payload. The packet shares memory with b.
func Parse(b []byte) (Packet, error) {
	if len(b) < HeaderSize {
		return nil, ErrShort
	}
	if b[atVersion] != Version {
		return nil, ErrVersion
	}
	wanted, ok := Type(b[atType]).depth()
	if !ok {
		return nil, ErrType
	}
	depth := int(b[atDepth])
	if wanted == anyDepth && (depth < 1 || depth > MaxDepth) || wanted != anyDepth && depth != wanted {
		return nil, ErrDepth
	}
	size := HeaderSize + depth*ident.Size + int(binary.BigEndian.Uint16(b[atLength:]))
	if len(b) < size {
		return nil, ErrShort
	}
	return b[:size], nil
}

const anyDepth = -1

// depth gives the depth that the stack of a packet of this type must have.
func (t Type) depth() (depth int, ok bool) {
	switch t {
	case Data, Delivery:
		return anyDepth, true
	case Insert, Remove, Challenge, Ack, Refusal, Handover:
		return 1, true
	case Find, Found, Query, State, Ping, Pong, Leave:
		return 0, true
	}
	return 0, false
}

// New builds a packet. The stack has at most 8 identifiers and the payload at most MaxPayload bytes: the caller sees to
// that. Hop limit and copies are the defaults: 64, and the most that servers make.
func New(t Type, stack []ident.ID, payload []byte) Packet {
	p := make(Packet, 0, HeaderSize+len(stack)*ident.Size+len(payload))
	p = append(p, Version, byte(t), DefaultHopLimit, byte(len(stack)))
	p = binary.BigEndian.AppendUint16(p, MaxCopies)
	p = binary.BigEndian.AppendUint16(p, uint16(len(payload)))
	for i := range stack {
		p = append(p, stack[i][:]...)
	}
	return append(p, payload...)
}

// Type gives the type.
func (p Packet) Type() Type { return Type(p[atType]) }

// SetType makes data a delivery.
func (p Packet) SetType(t Type) { p[atType] = byte(t) }

// HopLimit gives how many servers may still send the packet on.
func (p Packet) HopLimit() int { return int(p[atHopLimit]) }

// SetHopLimit sets it, 0 to 255.
func (p Packet) SetHopLimit(n int) { p[atHopLimit] = byte(n) }

// Copies gives how many copies servers may make of the packet in all.
func (p Packet) Copies() int { return min(int(binary.BigEndian.Uint16(p[atCopies:])), MaxCopies) }

// SetCopies sets it, 0 to 1024.
func (p Packet) SetCopies(n int) { binary.BigEndian.PutUint16(p[atCopies:], uint16(n)) }

// Depth gives the number of identifiers in the stack.
func (p Packet) Depth() int { return int(p[atDepth]) }

// ID gives the i-th identifier of the stack, from 0.
func (p Packet) ID(i int) ident.ID { return ident.ID(p[atStack+i*ident.Size:]) }

// Stack gives all identifiers.
func (p Packet) Stack() []ident.ID {
	stack := make([]ident.ID, p.Depth())
	for i := range stack {
		stack[i] = p.ID(i)
	}
	return stack
}

// Payload gives what stands behind the stack. It shares memory with the packet.
func (p Packet) Payload() []byte { return p[atStack+p.Depth()*ident.Size:] }

// Redirect gives the packet with the first identifier replaced by others, as a trigger that leads to a stack wants
// it. It is ErrDepth if the stack would become deeper than 8. The result is new memory.
func (p Packet) Redirect(to []ident.ID) (Packet, error) {
	depth := p.Depth() - 1 + len(to)
	if len(to) == 0 || depth > MaxDepth {
		return nil, ErrDepth
	}
	redirected := make(Packet, 0, len(p)+(len(to)-1)*ident.Size)
	redirected = append(redirected, p[:atStack]...)
	redirected[atDepth] = byte(depth)
	for i := range to {
		redirected = append(redirected, to[i][:]...)
	}
	return append(redirected, p[atStack+ident.Size:]...), nil
}
