package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

var compareAll = cmp.Options{cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b ident.Key) bool { return a == b })}

func drawID(t *rapid.T) ident.ID {
	return ident.FromName(rapid.StringN(1, 8, -1).Draw(t, "name"))
}

func drawAddress(t *rapid.T) netip.AddrPort {
	port := rapid.Uint16Range(1, 65535).Draw(t, "port")
	if rapid.Bool().Draw(t, "IPv6") {
		return netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "host")}), port)
}

func drawHandle(t *rapid.T) (h wire.Handle) {
	copy(h[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "handle"))
	return h
}

func drawTrigger(t *rapid.T) wire.Trigger {
	return wire.Trigger{ID: drawID(t), Handle: drawHandle(t), Nonce: wire.Nonce(drawHandle(t)),
		Secret: drawID(t).Key(), Receiver: drawAddress(t),
		Lifetime: time.Duration(rapid.Uint16().Draw(t, "seconds")) * time.Second,
		Sequence: rapid.Uint64().Draw(t, "sequence"),
		Stack:    rapid.SliceOfN(rapid.Custom(drawID), 0, wire.MaxDepth).Draw(t, "stack")}
}

// reparsed gives what Parse makes of a packet to which padding was added.
func reparsed(t *rapid.T, p wire.Packet) wire.Packet {
	got, err := wire.Parse(append(bytes.Clone(p), 0, 0, 0))
	if err != nil || !bytes.Equal(got, p) {
		t.Fatalf("Parse makes %x, %v of %x", got, err, p)
	}
	return got
}

func TestPacketsAreReadAsTheyWereBuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trigger := drawTrigger(t)
		h, server := drawHandle(t), drawAddress(t)
		key := wire.RingKey(rapid.SampledFrom([]string{"", "secret"}).Draw(t, "key"))
		equal := func(got, want any, err error) {
			t.Helper()
			if d := cmp.Diff(want, got, compareAll); d != "" || err != nil {
				t.Fatalf("%v\n%s", err, d)
			}
		}
		if len(trigger.Stack) == 0 {
			trigger.Stack = nil
		}
		read, err := wire.ParseTrigger(reparsed(t, trigger.Insertion()))
		equal(read, trigger, err)
		read, err = wire.ParseHandover(reparsed(t, trigger.Handover(key)), key)
		equal(read, trigger, err)
		removal := wire.Removal{ID: trigger.ID, Handle: h, Sequence: trigger.Sequence, Reply: server}
		removed, err := wire.ParseRemoval(reparsed(t, removal.Packet()))
		equal(removed, removal, err)
		challenge := wire.Challenged{ID: trigger.ID, Handle: h, Nonce: trigger.Nonce}
		challenged, err := wire.ParseChallenge(reparsed(t, challenge.Packet()))
		equal(challenged, challenge, err)
		ack := wire.Acknowledgement{ID: trigger.ID, Handle: h, Lifetime: trigger.Lifetime, Server: server,
			Nonce: trigger.Nonce}
		acked, err := wire.ParseAck(reparsed(t, ack.Packet()))
		equal(acked, ack, err)
		refusal := wire.Refused{ID: trigger.ID, Handle: h, Reason: wire.ServerFull}
		refused, err := wire.ParseRefusal(reparsed(t, refusal.Packet()))
		equal(refused, refusal, err)

		if len(ack.Packet()) > len(removal.Packet()) {
			t.Fatal("the answer to a removal is longer than it")
		}
		for _, answer := range []wire.Packet{challenge.Packet(), ack.Packet(), refusal.Packet()} {
			if len(answer) >= len(trigger.Insertion()) {
				t.Fatalf("an answer to an insertion, of type %d, is not shorter than it", answer.Type())
			}
		}
	})
}

func TestRingMessagesAreReadAsTheyWereBuilt(t *testing.T) {
	peer := rapid.Custom(func(t *rapid.T) chord.Peer {
		if rapid.Bool().Draw(t, "none") {
			return chord.Peer{}
		}
		return chord.Peer{Key: drawID(t).Key(), Addr: drawAddress(t)}
	})
	rapid.Check(t, func(t *rapid.T) {
		m := chord.Message{
			Kind:      chord.Kind(rapid.IntRange(0, int(chord.Leave)).Draw(t, "kind")),
			Nonce:     rapid.Uint64().Draw(t, "nonce"),
			From:      peer.Draw(t, "from"),
			Notify:    rapid.Bool().Draw(t, "notify"),
			Done:      rapid.Bool().Draw(t, "done"),
			Recursive: rapid.Bool().Draw(t, "recursive"),
			Hops:      rapid.Byte().Draw(t, "hops"),
			Key:       drawID(t).Key(),
		}
		if n := rapid.IntRange(0, chord.MaxPeers).Draw(t, "peers"); n > 0 {
			m.Peers = rapid.SliceOfN(peer, n, n).Draw(t, "peers")
		}
		if m.Recursive {
			m.Origin = drawAddress(t)
		}
		for _, key := range []wire.RingKey{nil, wire.RingKey("secret")} {
			p := reparsed(t, wire.Ring(m, key))
			got, member, err := wire.ParseRing(p, key)
			if d := cmp.Diff(m, got, compareAll); d != "" || !member || err != nil {
				t.Fatalf("%t, %v\n%s", member, err, d)
			}
			if _, member, _ := wire.ParseRing(p, wire.RingKey("other")); member {
				t.Fatal("a message with another key's tag counts as a member's")
			}
		}
	})
}

func TestTagsCoverTheWholePacket(t *testing.T) {
	key := wire.RingKey("secret")
	trigger := wire.Trigger{ID: ident.FromName("a"), Receiver: netip.MustParseAddrPort("192.0.2.1:9")}
	p := trigger.Handover(key)
	for i := range p {
		forged := bytes.Clone(p)
		forged[i] ^= 1
		parsed, err := wire.Parse(forged)
		if err != nil || parsed.Type() != wire.Handover {
			continue
		}
		if got, err := wire.ParseHandover(parsed, key); err == nil {
			t.Errorf("with byte %d changed it is accepted: %+v", i, got)
		}
	}
}

// The table in docs/i3.md, and fast paths, rely on these bytes.
func TestDataHasTheDocumentedBytes(t *testing.T) {
	a, b := ident.ID{0: 0xaa, 31: 0x0a}, ident.ID{0: 0xbb, 31: 0x0b}
	p := wire.New(wire.Data, []ident.ID{a, b}, []byte("hi"))
	p.SetHopLimit(3)
	p.SetCopies(0x0102)
	zeros := strings.Repeat("00", 30)
	want := "01" + "01" + "03" + "02" + "0102" + "0002" + "aa" + zeros + "0a" + "bb" + zeros + "0b" + "6869"
	if got := hex.EncodeToString(p); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	read := fmt.Sprint(p.Type(), p.HopLimit(), p.Copies(), p.Depth(), p.ID(1) == b, string(p.Payload()))
	if want := fmt.Sprint(wire.Data, 3, 0x0102, 2, true, "hi"); read != want {
		t.Errorf("the fields are read as %s, want %s", read, want)
	}
	p.SetCopies(60000)
	if p.Copies() != wire.MaxCopies {
		t.Errorf("60000 copies count as %d", p.Copies())
	}
}

func TestParseRefusesWhatIsNoPacket(t *testing.T) {
	good := wire.New(wire.Data, []ident.ID{ident.FromName("a")}, []byte("payload"))
	changed := func(offset int, value byte) []byte {
		b := bytes.Clone(good)
		b[offset] = value
		return b
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, wire.ErrShort},
		{"half a header", good[:7], wire.ErrShort},
		{"without the payload's end", good[:len(good)-1], wire.ErrShort},
		{"another version", changed(0, 2), wire.ErrVersion},
		{"an unknown type", changed(1, 4), wire.ErrType},
		{"data without an identifier", changed(3, 0), wire.ErrDepth},
		{"a stack too deep", changed(3, 9), wire.ErrDepth},
		{"a stack that is not there", changed(3, 2), wire.ErrShort},
		{"a ring message with a stack", changed(1, byte(wire.Find)), wire.ErrDepth},
		{"a payload that is not there", changed(6, 1), wire.ErrShort},
	} {
		if p, err := wire.Parse(c.bytes); !errors.Is(err, c.want) {
			t.Errorf("%s: %x, %v; want %v", c.name, p, err, c.want)
		}
	}
}

func TestTriggersOfGroupsAreRefused(t *testing.T) {
	for _, receiver := range []string{
		"255.255.255.255:9", "224.0.0.1:9", "[ff02::1]:9", "0.0.0.0:9", "192.0.2.1:0",
	} {
		trigger := wire.Trigger{ID: ident.FromName("a"), Receiver: netip.MustParseAddrPort(receiver)}
		if _, err := wire.ParseTrigger(trigger.Insertion()); !errors.Is(err, wire.ErrPayload) {
			t.Errorf("a trigger to %s: %v", receiver, err)
		}
	}
}

func TestRedirectReplacesTheFirstIdentifier(t *testing.T) {
	id := ident.FromName
	p := wire.New(wire.Data, []ident.ID{id("a"), id("b")}, []byte("payload"))
	p.SetHopLimit(9)
	got, err := p.Redirect([]ident.ID{id("x"), id("y"), id("z")})
	if err != nil {
		t.Fatal(err)
	}
	d := cmp.Diff([]ident.ID{id("x"), id("y"), id("z"), id("b")}, got.Stack())
	if d != "" || got.HopLimit() != 9 || string(got.Payload()) != "payload" {
		t.Errorf("%d %q %s", got.HopLimit(), got.Payload(), d)
	}
	if again, err := wire.Parse(got); err != nil || len(again) != len(got) {
		t.Errorf("the result is no packet: %v", err)
	}
	if _, err := p.Redirect(make([]ident.ID, 8)); !errors.Is(err, wire.ErrDepth) {
		t.Errorf("a stack of 9: %v", err)
	}
	if _, err := p.Redirect(nil); !errors.Is(err, wire.ErrDepth) {
		t.Errorf("no stack: %v", err)
	}
}

func TestLifetimesAreRoundedUp(t *testing.T) {
	server := netip.MustParseAddrPort("192.0.2.1:9")
	for _, c := range []struct{ lifetime, want time.Duration }{
		{0, 0}, {-time.Second, 0}, {time.Millisecond, time.Second}, {time.Minute, time.Minute},
		{100 * time.Hour, 65535 * time.Second},
	} {
		ack, err := wire.ParseAck(wire.Acknowledgement{Lifetime: c.lifetime, Server: server}.Packet())
		if err != nil || ack.Lifetime != c.want {
			t.Errorf("%s is sent as %s, %v; want %s", c.lifetime, ack.Lifetime, err, c.want)
		}
	}
}

// FuzzParse hands bytes to all readers. What they accept has the same bytes when it is built again.
func FuzzParse(f *testing.F) {
	id, addr := ident.FromName("a"), netip.MustParseAddrPort("192.0.2.1:9")
	trigger := wire.Trigger{ID: id, Receiver: addr, Lifetime: time.Minute, Stack: []ident.ID{id}}
	key := wire.RingKey("secret")
	for _, p := range []wire.Packet{
		wire.New(wire.Data, []ident.ID{id, id}, []byte("payload")), trigger.Insertion(), trigger.Handover(key),
		wire.Removal{ID: id, Handle: wire.Handle{1}, Reply: addr}.Packet(), wire.Challenged{ID: id}.Packet(),
		wire.Refused{ID: id, Reason: wire.ServerFull}.Packet(),
		wire.Acknowledgement{ID: id, Lifetime: time.Minute, Server: addr}.Packet(),
		wire.Ring(chord.Message{Kind: chord.State, Nonce: 7, Peers: make([]chord.Peer, 3)}, key),
		wire.Ring(chord.Message{Kind: chord.Find, Recursive: true, Origin: addr}, key),
	} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := wire.Parse(b)
		if err != nil {
			return
		}
		if built, ok := rebuilt(p, key); ok && !bytes.Equal(built[wire.HeaderSize:], p[wire.HeaderSize:]) {
			t.Errorf("read\n%x, built\n%x", p, built)
		}
	})
}

// rebuilt reads the payload and builds the packet anew; ok is false if it was refused.
func rebuilt(p wire.Packet, key wire.RingKey) (built wire.Packet, ok bool) {
	switch p.Type() {
	case wire.Data, wire.Delivery:
		return wire.New(p.Type(), p.Stack(), p.Payload()), true
	case wire.Insert:
		t, err := wire.ParseTrigger(p)
		return t.Insertion(), err == nil
	case wire.Remove:
		r, err := wire.ParseRemoval(p)
		return r.Packet(), err == nil
	case wire.Challenge:
		c, err := wire.ParseChallenge(p)
		return c.Packet(), err == nil
	case wire.Ack:
		a, err := wire.ParseAck(p)
		return a.Packet(), err == nil
	case wire.Refusal:
		r, err := wire.ParseRefusal(p)
		return r.Packet(), err == nil
	case wire.Handover:
		t, err := wire.ParseHandover(p, key)
		return t.Handover(key), err == nil
	case wire.Find, wire.Found, wire.Query, wire.State, wire.Ping, wire.Pong, wire.Leave:
		m, member, err := wire.ParseRing(p, key)
		built := wire.Ring(m, key)
		if !member && err == nil { // the tag is another one
			copy(built[len(built)-16:], p[len(p)-16:])
		}
		return built, err == nil
	}
	return nil, false
}
