// Package tshark has Wireshark's decoder read messages of RSVP. It is for tests.
package tshark

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Check wants each message decoded as RSVP: none malformed, with a wrong checksum, or with an object that is not known.
// Names are those of the messages. Without tshark the test is skipped; in CI it fails.
func Check(t *testing.T, names []string, messages [][]byte) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no tshark, which decodes messages")
		}
		t.Skip("no tshark, which decodes messages")
	}
	file := capture()
	for _, b := range messages {
		file = packet(file, b)
	}
	path := filepath.Join(t.TempDir(), "rsvp.pcap")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "tshark", "-n", "-r", path, "-O", "rsvp").Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, out)
	}
	frames := strings.Split("\n"+string(out), "\nFrame ")[1:]
	if len(frames) != len(messages) {
		t.Fatalf("tshark shows %d frames, want %d:\n%s", len(frames), len(messages), out)
	}
	for i, text := range frames {
		if !strings.Contains(text, "Resource ReserVation Protocol (RSVP)") {
			t.Errorf("%s is no RSVP:\n%s", names[i], text)
		}
		lower := strings.ToLower(quirks.Replace(text))
		for _, bad := range []string{"malformed", "unknown", "incorrect", "expert info", "data ("} {
			if strings.Contains(lower, bad) {
				t.Errorf("%s is decoded with %q:\n%s", names[i], bad, text)
			}
		}
	}
}

// quirks is what tshark 4.0 itself gets wrong: it has no name for the C-Type of RFC 3209's LABEL_REQUEST, nor for class
// 134 (RFC 5063); it takes IPv6 addresses of LSPs for IPv4 ones, and no session but those of IPv4 for known.
var quirks = strings.NewReplacer(
	"LABEL REQUEST object (19)\n        C-Type: Unknown (1)", "",
	"Unknown object\n        Length: 8\n        Object class: Unknown (134)", "",
	"Unknown object\n            Length: 8\n            Object class: Unknown (134)", "",
	"Unknown session type", "",
	"[Expert Info (Warning/Malformed): Trying to fetch an IPv4 address with length 16]", "",
	"[Trying to fetch an IPv4 address with length 16]", "",
	"[Group: Malformed]", "")

const rawIP = 101 // LINKTYPE_RAW

// capture is the header of a file of captured packets.
func capture() []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff)
	return binary.BigEndian.AppendUint32(b, rawIP)
}

// packet appends a message in an IPv4 header.
func packet(file, payload []byte) []byte {
	n := uint32(20 + len(payload))
	for _, v := range []uint32{0, 0, n, n} {
		file = binary.BigEndian.AppendUint32(file, v)
	}
	header := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 255, 46, 0, 0, 192, 0, 2, 1, 192, 0, 2, 9}
	return append(append(file, header...), payload...)
}
