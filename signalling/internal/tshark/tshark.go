// Package tshark has Wireshark's decoder read packets of routers' protocols. It is for tests.
package tshark

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Read gives what tshark says of each IPv4 packet, with all of a protocol, as `tshark -O` names it. Without tshark the
// test is skipped; in CI it fails.
func Read(t *testing.T, protocol string, packets [][]byte) []string {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no tshark, which decodes packets")
		}
		t.Skip("no tshark, which decodes packets")
	}
	file := capture()
	for _, b := range packets {
		file = appendPacket(file, b)
	}
	path := filepath.Join(t.TempDir(), protocol+".pcap")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "tshark", "-n", "-r", path, "-O", protocol).Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, out)
	}
	frames := strings.Split("\n"+string(out), "\nFrame ")[1:]
	if len(frames) != len(packets) {
		t.Fatalf("tshark shows %d frames, want %d:\n%s", len(frames), len(packets), out)
	}
	return frames
}

// Faults lists the words by which tshark says that a packet is not as it should be.
func Faults(text string) (all []string) {
	lower := strings.ToLower(text)
	for _, bad := range []string{"malformed", "unknown", "incorrect", "expert info", "data ("} {
		if strings.Contains(lower, bad) {
			all = append(all, bad)
		}
	}
	return all
}

const rawIP = 101 // LINKTYPE_RAW

// capture is the header of a file of captured packets.
func capture() []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = append(b, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff)
	return binary.BigEndian.AppendUint32(b, rawIP)
}

func appendPacket(file, packet []byte) []byte {
	n := uint32(len(packet))
	for _, v := range []uint32{0, 0, n, n} {
		file = binary.BigEndian.AppendUint32(file, v)
	}
	return append(file, packet...)
}
