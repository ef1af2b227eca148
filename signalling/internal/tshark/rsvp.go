package tshark

import (
	"regexp"
	"strings"
	"testing"
)

// Check wants each message decoded as RSVP: none malformed, with a wrong checksum, or with an object that is not known.
// Names are those of the messages. Without tshark it does as Read.
func Check(t *testing.T, names []string, messages [][]byte) {
	t.Helper()
	packets := make([][]byte, len(messages))
	for i, b := range messages {
		n := 20 + len(b)
		header := []byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 255, 46, 0, 0, 192, 0, 2, 1, 192, 0, 2, 9}
		packets[i] = append(header, b...)
	}
	for i, text := range Read(t, "rsvp", packets) {
		if !strings.Contains(text, "Resource ReserVation Protocol (RSVP)") {
			t.Errorf("%s is no RSVP:\n%s", names[i], text)
		}
		for _, bad := range Faults(quirks.Replace(margins.ReplaceAllString(text, ""))) {
			t.Errorf("%s is decoded with %q:\n%s", names[i], bad, text)
		}
	}
}

// margins are the spaces before each line: what is in a Bundle has more.
var margins = regexp.MustCompile(`(?m)^ +`)

// quirks is what tshark 4.0 itself gets wrong: it has no name for the C-Type of RFC 3209's LABEL_REQUEST, nor for class
// 134 (RFC 5063); it takes IPv6 addresses of LSPs for IPv4 ones, and no session but those of IPv4 for known.
var quirks = strings.NewReplacer(
	"LABEL REQUEST object (19)\nC-Type: Unknown (1)", "",
	"Unknown object\nLength: 8\nObject class: Unknown (134)", "",
	"Unknown session type", "",
	"[Expert Info (Warning/Malformed): Trying to fetch an IPv4 address with length 16]", "",
	"[Trying to fetch an IPv4 address with length 16]", "",
	"[Group: Malformed]", "")
