package file

import (
	"strings"
	"testing"
)

func TestRulesOfCommands(t *testing.T) {
	for text, want := range map[string]string{
		"proto=udp,dport=5004":                   "proto=udp,dport=5004",
		"dport=5000-5010, dscp=EF":               "dscp=EF,dport=5000-5010",
		"src=10.0.0.1,dst=::/0,sport=1,port=2-3": "src=10.0.0.1,dst=::/0,sport=1,port=2-3",
	} {
		if m, err := ParseMatch(text); err != nil || m.String() != want {
			t.Errorf("%s: %q, %v", text, m, err)
		}
	}
	for text, want := range map[string]string{
		"":                    `a rule has no ""`,
		"prot=udp":            `a rule has no "prot": write such as proto=udp,dport=5004, of dscp, proto, src,`,
		"proto":               "proto has no value: write proto=VALUE",
		"proto=udp,proto=tcp": "proto is given twice",
		"proto=xyz":           `"xyz" is no protocol of IP`,
		"dport=0":             `"0" is no port`,
		"src=10.0.0.1/8":      "write 10.0.0.0/8",
	} {
		if m, err := ParseMatch(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", text, m, err, want)
		}
	}
}
