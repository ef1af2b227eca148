package wire

import (
	"encoding/binary"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
)

// Messages of the ring, of the types from Find on, have a stack of depth 0 and this payload. The packet's hop limit is
// Message.Hops.
//
//	offset  size  field
//	0       8     nonce: an answer has that of its request
//	8       34    sender: key (16), address (16), port (2); 0: not a server of the ring
//	42      1     flags: 1 notify, 2 done, 4 recursive
//	43      1     number of peers, 0 to 17
//	44      16    key
//	60      18    origin: address, port; or 0
//	78      34p   peers, each as the sender
//	78+34p  16    tag
//
// What they mean is with chord.Message.
const (
	ringSize = 78
	peerSize = ident.KeySize + addressSize

	flagNotify    = 1
	flagDone      = 2
	flagRecursive = 4
)

// Ring builds the packet of a message of the ring.
func Ring(m chord.Message, key RingKey) Packet {
	b := make([]byte, 0, ringSize+len(m.Peers)*peerSize+tagSize)
	b = binary.BigEndian.AppendUint64(b, m.Nonce)
	b = appendPeer(b, m.From)
	b = append(b, flag(m.Notify, flagNotify)|flag(m.Done, flagDone)|flag(m.Recursive, flagRecursive))
	b = append(b, byte(len(m.Peers)))
	k := m.Key.Bytes()
	b = appendAddress(append(b, k[:]...), m.Origin)
	for _, p := range m.Peers {
		b = appendPeer(b, p)
	}
	p := New(Find+Type(m.Kind), nil, append(b, make([]byte, tagSize)...))
	p.SetHopLimit(int(m.Hops))
	return key.sign(p)
}

// ParseRing reads a message of the ring. Members says whether it has the tag of the ring's key; a message without may
// be that of a client.
func ParseRing(p Packet, key RingKey) (m chord.Message, member bool, err error) {
	b := p.Payload()
	if p.Type() < Find || len(b) < ringSize+tagSize || int(b[43]) > chord.MaxPeers ||
		len(b) != ringSize+int(b[43])*peerSize+tagSize || b[42] >= 2*flagRecursive {
		return m, false, ErrPayload
	}
	m = chord.Message{
		Kind:      chord.Kind(p.Type() - Find),
		Nonce:     binary.BigEndian.Uint64(b),
		Notify:    b[42]&flagNotify != 0,
		Done:      b[42]&flagDone != 0,
		Recursive: b[42]&flagRecursive != 0,
		Hops:      uint8(p.HopLimit()),
		Key:       ident.KeyFrom([ident.KeySize]byte(b[44:])),
	}
	if m.From, err = parsePeer(b[8:]); err != nil {
		return m, false, err
	}
	if m.Origin, err = parseOptional(b[60:]); err != nil || m.Recursive != m.Origin.IsValid() {
		return m, false, ErrPayload
	}
	for i := range int(b[43]) {
		peer, err := parsePeer(b[ringSize+i*peerSize:])
		if err != nil {
			return m, false, err
		}
		m.Peers = append(m.Peers, peer)
	}
	return m, key.verify(p), nil
}

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

func appendPeer(b []byte, p chord.Peer) []byte {
	k := p.Key.Bytes()
	return appendAddress(append(b, k[:]...), p.Addr)
}

// parsePeer reads a peer; no address and no key is the zero peer.
func parsePeer(b []byte) (chord.Peer, error) {
	p := chord.Peer{Key: ident.KeyFrom([ident.KeySize]byte(b))}
	var err error
	if p.Addr, err = parseOptional(b[ident.KeySize:]); err != nil || !p.Addr.IsValid() && p.Key != (ident.Key{}) {
		return chord.Peer{}, ErrPayload
	}
	return p, nil
}
