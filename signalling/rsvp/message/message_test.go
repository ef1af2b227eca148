package message_test

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

func encoded(t testing.TB, m message.Message) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSamplesAreDecodedAsTheyWere(t *testing.T) {
	for name, m := range samples() {
		got, err := message.Decode(encoded(t, m))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, m) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, m)
		}
	}
}

// TestPathIsThatOfTheRFCs compares with bytes that were written by hand from RFC 2205, 2210 and 3209.
func TestPathIsThatOfTheRFCs(t *testing.T) {
	m := message.Message{Type: message.Path, TTL: 255, Objects: []message.Object{session, hop,
		message.SessionAttribute{Setup: 4, Holding: 3, Flags: 6, Name: "abcde"},
		message.SenderTspec{Bucket: bucket}}}
	want := []byte{0x10, 1, 0, 0, 255, 0, 0, 88,
		0, 16, 1, 7, 192, 0, 2, 9, 0, 0, 0, 7, 192, 0, 2, 1,
		0, 12, 3, 1, 192, 0, 2, 1, 0, 0, 0, 3,
		0, 16, 207, 7, 4, 3, 6, 5, 'a', 'b', 'c', 'd', 'e', 0, 0, 0,
		0, 36, 12, 2, 0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5,
		0x47, 0xf4, 0x24, 0x00, 0x46, 0x1c, 0x40, 0x00, 0x48, 0x74, 0x24, 0x00, 0, 0, 0, 64, 0, 0, 5, 0xdc}
	got := encoded(t, m)
	clear(got[2:4])
	if string(got) != string(want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

// raw is a message of one object.
func raw(class, ctype uint8, body ...byte) []byte {
	b := append([]byte{0x10, 1, 0, 0, 64, 0, 0, 0, 0, 0, class, ctype}, body...)
	binary.BigEndian.PutUint16(b[8:], uint16(len(b)-8))
	binary.BigEndian.PutUint16(b[6:], uint16(len(b)))
	return b
}

func TestWrongMessagesAreRefusedWithObjectAndOffset(t *testing.T) {
	header := func(change func([]byte)) []byte {
		b := raw(5, 1, 0, 0, 0, 1)
		change(b)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "header at byte 0"},
		{"a version", header(func(b []byte) { b[0] = 0x20 }), "header at byte 0: version 2"},
		{"a type", header(func(b []byte) { b[1] = 99 }), "header at byte 1: message type 99"},
		{"a length", header(func(b []byte) { b[7] = 12 }), "header at byte 6: length 12 of a message of 16"},
		{"a checksum", header(func(b []byte) { b[2] = 1 }), "header at byte 2: wrong checksum"},
		{"an object's length of 0", header(func(b []byte) { b[9] = 0 }), "TIME_VALUES at byte 8: length 0"},
		{"an object that is too long", header(func(b []byte) { b[9] = 12 }), "TIME_VALUES at byte 8: length 12, of 8"},
		{"a period of 0", raw(5, 1, 0, 0, 0, 0), "TIME_VALUES at byte 16: a refresh period of 0"},
		{"bytes after the object", raw(5, 1, 0, 0, 0, 1, 0, 0, 0, 0), "TIME_VALUES at byte 16: 4 bytes more"},
		{"an object cut off", raw(3, 1, 1, 2, 3, 4), "RSVP_HOP at byte 16: 0 bytes left, 4 needed"},
		{"a label", raw(16, 1, 0, 16, 0, 0), "LABEL at byte 16: label 1048576"},
		{"a style", raw(8, 1, 0, 0, 0, 1), "STYLE at byte 16: option vector 0x1"},
		{"a step of no length", raw(20, 1, 1, 0, 0, 0), "EXPLICIT_ROUTE at byte 14: a step of 0"},
		{"a prefix of 33 bits", raw(20, 1, 1, 8, 1, 2, 3, 4, 33, 0), "EXPLICIT_ROUTE at byte 20: a prefix of 33"},
		{"a priority of 8", raw(207, 7, 8, 0, 0, 0), "SESSION_ATTRIBUTE at byte 15: priorities 8 and 0"},
		{"a name that is cut off", raw(207, 7, 0, 0, 0, 9), "SESSION_ATTRIBUTE at byte 16: 0 bytes left"},
		{"a rate that is no number", raw(12, 2, 0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5, 0xff, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "SENDER_TSPEC at byte 28: NaN is no rate"},
		{"a class that is not known", raw(100, 1), "object of class 100 at byte 10: the class is not known"},
		{"a C-Type that is not known", raw(3, 9), "RSVP_HOP at byte 11: C-Type 9"},
	} {
		if _, err := message.Decode(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestUnknownObjectsAreRefusedIgnoredOrForwardedByTheirClass(t *testing.T) {
	b := raw(100, 1)
	b = append(b, 0, 8, 5, 1, 0, 0, 0, 9)
	b[7] = byte(len(b))
	m, err := message.Decode(b)
	var e *message.Error
	if !errors.As(err, &e) || e.Code != message.UnknownClass || e.Value != 100<<8|1 {
		t.Errorf("class 100: %v", err)
	}
	if _, ok := message.Of[message.TimeValues](m); !ok {
		t.Errorf("class 100: the objects that are known are missing: %+v", m)
	}
	if m, err := message.Decode(raw(150, 1, 1, 2, 3, 4)); err != nil || len(m.Objects) != 0 {
		t.Errorf("class 150: %+v, %v", m, err)
	}
	forwarded := raw(250, 3, 1, 2, 3, 4)
	m, err = message.Decode(forwarded)
	if err != nil {
		t.Fatal(err)
	}
	got := encoded(t, m)
	clear(got[2:4])
	if string(got) != string(forwarded) {
		t.Errorf("class 250 was forwarded as % x", got)
	}
}

func TestBundlesDoNotNest(t *testing.T) {
	inner := encoded(t, samples()["bundle"])
	b := append([]byte{0x10, 12, 0, 0, 1, 0, 0, byte(8 + len(inner))}, inner...)
	if _, err := message.Decode(b); err == nil || !strings.Contains(err.Error(), "a Bundle in a Bundle") {
		t.Error(err)
	}
	if _, err := (message.Message{Type: message.Bundle,
		Bundled: []message.Message{samples()["bundle"]}}).Encode(); err == nil {
		t.Error("encoded")
	}
}

func TestValuesThatTheWireCannotHoldAreRefused(t *testing.T) {
	for name, o := range map[string]message.Object{
		"label":     message.Label(message.MaxLabel + 1),
		"families":  message.Session{End: egress, Extended: egress6},
		"address":   message.Hop{},
		"name":      message.SessionAttribute{Name: strings.Repeat("x", 256)},
		"rate":      message.FastReroute{Bandwidth: float32(math.NaN())},
		"step":      message.ExplicitRoute{Steps: []message.Step{{Type: 1, Raw: []byte{0, 0}}}},
		"epoch":     message.ID{Epoch: 1 << 24},
		"long list": message.IDList{IDs: make([]uint32, 20000)},
	} {
		if _, err := (message.Message{Type: message.Path, Objects: []message.Object{o}}).Encode(); err == nil {
			t.Errorf("%s was encoded", name)
		}
	}
}

// TestWhatIsEncodedIsDecoded changes bytes of samples: what is still accepted has one encoding.
func TestWhatIsEncodedIsDecoded(t *testing.T) {
	var all [][]byte
	for _, m := range samples() {
		all = append(all, encoded(t, m))
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		b := append([]byte(nil), rapid.SampledFrom(all).Draw(t, "sample")...)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			b[rapid.IntRange(8, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		clear(b[2:4])
		if m, err := message.Decode(b); err == nil {
			accepted++
			again(t, m)
		}
	})
	if accepted == 0 {
		t.Error("no changed sample was accepted")
	}
}

type fataler interface{ Fatalf(string, ...any) }

// again encodes a decoded message, and decodes it.
func again(t fataler, m message.Message) {
	b, err := m.Encode()
	if err != nil {
		t.Fatalf("what was decoded cannot be encoded: %v\n%+v", err, m)
	}
	second, err := message.Decode(b)
	if err != nil {
		t.Fatalf("what was encoded cannot be decoded: %v\n%+v", err, m)
	}
	if !reflect.DeepEqual(m, second) {
		t.Fatalf("not the same again:\n%+v\n%+v", m, second)
	}
}

func TestSignedMessagesAreVerified(t *testing.T) {
	for _, a := range []message.Algorithm{message.MD5, message.SHA1, message.SHA256} {
		k := message.Key{ID: 0x123456789abc, Algorithm: a, Secret: []byte("secret")}
		b, err := samples()["path"].Sign(k, 42, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := message.Verify(b, message.Key{ID: 1}, k)
		if err != nil {
			t.Fatal(err)
		}
		if i, _ := message.Of[message.Integrity](m); i.Sequence != 42 || i.KeyID != k.ID {
			t.Errorf("%+v", i)
		}
		for at := range b {
			forged := append([]byte(nil), b...)
			forged[at] ^= 1
			clear(forged[2:4])
			if _, err := message.Verify(forged, k); err == nil && at != 2 && at != 3 {
				t.Errorf("byte %d may be changed", at)
			}
		}
		k.Secret = []byte("another")
		if _, err := message.Verify(b, k); !errors.Is(err, message.ErrForged) {
			t.Error(err)
		}
	}
	if _, err := message.Verify(encoded(t, samples()["path"])); !errors.Is(err, message.ErrForged) {
		t.Error(err)
	}
}

func TestErrorsAreToldByName(t *testing.T) {
	e := message.ErrorSpec{Node: netip.MustParseAddr("192.0.2.2"), Code: message.AdmissionFailure,
		Value: message.BandwidthUnavailable}
	if got, want := e.String(),
		"admission control failure: requested bandwidth unavailable at 192.0.2.2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzDecode wants no panic, and one encoding of what is accepted.
func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		f.Add(encoded(f, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 {
			clear(b[2:4])
		}
		if m, err := message.Decode(b); err == nil {
			again(t, m)
		}
	})
}
