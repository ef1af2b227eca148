package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
)

// Handle is what its owner knows a trigger by, and nobody else: an insertion with the same identifier and handle
// replaces the trigger, and a removal with them removes it.
type Handle [16]byte

// Nonce is what a server wants back from a receiver before it stores a trigger.
type Nonce [16]byte

// Trigger is the payload of Insert and Handover; the identifier is the first of the packet's stack.
//
//	offset  size  field
//	0       16    handle
//	16      16    nonce of the challenge that this answers; else 0
//	32      16    secret that a constrained identifier of a trigger to an address is made of; else 0
//	48      16    receiver: IPv6 address, or IPv4 address as ::ffff:a.b.c.d
//	64      2     receiver: UDP port
//	66      2     lifetime in seconds
//	68      1     depth of the stack to which the trigger leads; 0: it leads to the receiver
//	69      3     0
//	72      8     sequence number
//	80      32d   that stack
//	              Handover only: 16 bytes of tag
type Trigger struct {
	ID       ident.ID
	Handle   Handle
	Nonce    Nonce
	Secret   ident.Key
	Receiver netip.AddrPort // answers challenges; gets the packets, if the stack is empty
	Lifetime time.Duration  // 0 to 65535 s
	// Sequence orders insertions and removals with the same identifier and handle: one that is lower than that of
	// the trigger changes nothing. So a receiver that has moved does not lose its trigger to what its old self
	// sends.
	Sequence uint64
	Stack    []ident.ID
}

// ErrPayload says that a payload is not what the packet's type asks for.
var ErrPayload = errors.New("the packet's payload is malformed")

const triggerSize = 80

// Insertion builds the packet that inserts or refreshes a trigger.
func (t *Trigger) Insertion() Packet { return New(Insert, []ident.ID{t.ID}, t.append(nil)) }

func (t *Trigger) append(b []byte) []byte {
	secret := t.Secret.Bytes()
	b = append(b, t.Handle[:]...)
	b = append(b, t.Nonce[:]...)
	b = append(b, secret[:]...)
	b = appendAddress(b, t.Receiver)
	b = binary.BigEndian.AppendUint16(b, seconds(t.Lifetime))
	b = append(b, byte(len(t.Stack)), 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, t.Sequence)
	for i := range t.Stack {
		b = append(b, t.Stack[i][:]...)
	}
	return b
}

// seconds rounds a lifetime up, so that one that is not over does not become 0.
func seconds(d time.Duration) uint16 {
	return uint16(min(max((d+time.Second-1)/time.Second, 0), 65535))
}

// ParseTrigger reads the trigger that an Insert asks for.
func ParseTrigger(p Packet) (Trigger, error) { return parseTrigger(p.ID(0), p.Payload()) }

func parseTrigger(id ident.ID, b []byte) (Trigger, error) {
	if len(b) < triggerSize || b[69] != 0 || b[70] != 0 || b[71] != 0 {
		return Trigger{}, ErrPayload
	}
	depth := int(b[68])
	if depth > MaxDepth || len(b) != triggerSize+depth*ident.Size {
		return Trigger{}, ErrPayload
	}
	receiver, err := parseAddress(b[48:])
	if err != nil {
		return Trigger{}, err
	}
	t := Trigger{
		ID:       id,
		Handle:   Handle(b),
		Nonce:    Nonce(b[16:]),
		Secret:   ident.KeyFrom([ident.KeySize]byte(b[32:])),
		Receiver: receiver,
		Lifetime: time.Duration(binary.BigEndian.Uint16(b[66:])) * time.Second,
		Sequence: binary.BigEndian.Uint64(b[72:]),
	}
	for i := range depth {
		t.Stack = append(t.Stack, ident.ID(b[triggerSize+i*ident.Size:]))
	}
	return t, nil
}

// Handover builds the packet by which a server gives a trigger to another server of its ring.
func (t *Trigger) Handover(key RingKey) Packet {
	return key.sign(New(Handover, []ident.ID{t.ID}, append(t.append(nil), make([]byte, tagSize)...)))
}

// ParseHandover reads the trigger of a Handover, if its tag is that of the ring's key.
func ParseHandover(p Packet, key RingKey) (Trigger, error) {
	b := p.Payload()
	if len(b) < tagSize {
		return Trigger{}, ErrPayload
	}
	if !key.verify(p) {
		return Trigger{}, ErrTag
	}
	return parseTrigger(p.ID(0), b[:len(b)-tagSize])
}

// Removal is the payload of Remove.
//
//	offset  size  field
//	0       16    handle
//	16      8     sequence number, as in Trigger
//	24      18    where the Ack goes: address and UDP port, as in Trigger
//	42      16    0: so the Ack is not longer
type Removal struct {
	ID       ident.ID
	Handle   Handle
	Sequence uint64
	Reply    netip.AddrPort
}

// Packet builds the packet.
func (r Removal) Packet() Packet {
	b := binary.BigEndian.AppendUint64(r.Handle[:], r.Sequence)
	return New(Remove, []ident.ID{r.ID}, append(appendAddress(b, r.Reply), make([]byte, len(Nonce{}))...))
}

// ParseRemoval reads a Remove.
func ParseRemoval(p Packet) (Removal, error) {
	b := p.Payload()
	if len(b) != 58 || Nonce(b[42:]) != (Nonce{}) {
		return Removal{}, ErrPayload
	}
	reply, err := parseAddress(b[24:])
	return Removal{ID: p.ID(0), Handle: Handle(b), Sequence: binary.BigEndian.Uint64(b[16:]), Reply: reply}, err
}

// Challenged is the payload of Challenge. It is shorter than that of Insert: a forged Insert makes a server send less
// to the receiver that it names than the forger sent to the server.
//
//	offset  size  field
//	0       16    handle
//	16      16    nonce: the receiver sends its Insert once more, with this
type Challenged struct {
	ID     ident.ID
	Handle Handle
	Nonce  Nonce
}

// Packet builds the packet.
func (c Challenged) Packet() Packet {
	return New(Challenge, []ident.ID{c.ID}, append(c.Handle[:], c.Nonce[:]...))
}

// ParseChallenge reads a Challenge.
func ParseChallenge(p Packet) (Challenged, error) {
	b := p.Payload()
	if len(b) != 32 {
		return Challenged{}, ErrPayload
	}
	return Challenged{ID: p.ID(0), Handle: Handle(b), Nonce: Nonce(b[16:])}, nil
}

// Acknowledgement is the payload of Ack.
//
//	offset  size  field
//	0       16    handle
//	16      2     lifetime in seconds that the trigger now has; 0: it is removed
//	18      18    the server that has it: address and UDP port, as in Trigger
//	36      16    nonce for the next refresh, which so needs no challenge; 0 if the trigger is removed
type Acknowledgement struct {
	ID       ident.ID
	Handle   Handle
	Lifetime time.Duration
	Server   netip.AddrPort
	Nonce    Nonce
}

// Packet builds the packet.
func (a Acknowledgement) Packet() Packet {
	b := binary.BigEndian.AppendUint16(a.Handle[:], seconds(a.Lifetime))
	return New(Ack, []ident.ID{a.ID}, append(appendAddress(b, a.Server), a.Nonce[:]...))
}

// ParseAck reads an Ack.
func ParseAck(p Packet) (Acknowledgement, error) {
	b := p.Payload()
	if len(b) != 52 {
		return Acknowledgement{}, ErrPayload
	}
	server, err := parseAddress(b[18:])
	return Acknowledgement{ID: p.ID(0), Handle: Handle(b), Server: server, Nonce: Nonce(b[36:]),
		Lifetime: time.Duration(binary.BigEndian.Uint16(b[16:])) * time.Second}, err
}

// Reason says why a trigger is not stored.
type Reason uint8

// The reasons.
const (
	ServerFull     Reason = 1 // the server has as many triggers as it may have
	IdentifierFull Reason = 2 // the identifier or its key has as many triggers as it may have
	ReceiverFull   Reason = 3 // the receiver's address has as many triggers as it may have
	Unconstrained  Reason = 4 // the server wants constrained identifiers, and this one is not
	Superseded     Reason = 5 // there is a trigger with the same handle and a higher sequence number
)

func (r Reason) String() string {
	switch r {
	case ServerFull:
		return "the server has no room for more triggers"
	case IdentifierFull:
		return "the identifier has as many triggers as it may have"
	case ReceiverFull:
		return "the receiver has as many triggers as it may have"
	case Unconstrained:
		return "the server accepts constrained identifiers only"
	case Superseded:
		return "another receiver with the same handle has it now"
	}
	return "for a reason that this version does not know"
}

// Refused is the payload of Refusal.
//
//	offset  size  field
//	0       16    handle
//	16      1     reason
//	17      3     0
type Refused struct {
	ID     ident.ID
	Handle Handle
	Reason Reason
}

// Packet builds the packet.
func (r Refused) Packet() Packet {
	return New(Refusal, []ident.ID{r.ID}, append(r.Handle[:], byte(r.Reason), 0, 0, 0))
}

// ParseRefusal reads a Refusal.
func ParseRefusal(p Packet) (Refused, error) {
	b := p.Payload()
	if len(b) != 20 || b[17] != 0 || b[18] != 0 || b[19] != 0 {
		return Refused{}, ErrPayload
	}
	return Refused{ID: p.ID(0), Handle: Handle(b), Reason: Reason(b[16])}, nil
}
