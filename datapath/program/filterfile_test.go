package program

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var testFields = []Field{{"destination", 0, 4}, {"port", 4, 2}, {"mac", 6, 6}}

func TestFiltersAreRead(t *testing.T) {
	filters, err := ParseFilters(strings.NewReader(`
# a comment
destination=10.1.0.0/16 port=80 -> send 2 queue 7 args 02:00:00:00:00:01,ff
table 3 priority 9 port=0x1200/0xff00 -> flood 1,3
mac=02:00:00:00:00:05 -> udp 192.0.2.7:4000   # to a host
key=0a01/ff00 -> drop
any -> punt
`), testFields)
	if err != nil {
		t.Fatal(err)
	}
	padded := func(b ...byte) []byte { return append(b, make([]byte, keySize-len(b))...) }
	args := [32]byte{2, 0, 0, 0, 0, 1, 0xff}
	want := []Filter{
		{Key: padded(10, 1, 0, 0, 0, 80), Mask: padded(0xff, 0xff, 0, 0, 0xff, 0xff),
			Result: Result{Verdict: Send, Interface: 2, Queue: 7, Arguments: args}},
		{Table: 3, Priority: 9, Key: padded(0, 0, 0, 0, 0x12, 0), Mask: padded(0, 0, 0, 0, 0xff),
			Result: Result{Verdict: Flood, Flood: 1<<1 | 1<<3}},
		{Key: padded(0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 5), Mask: padded(0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff),
			Result: Result{Verdict: UDP, To: netip.MustParseAddrPort("192.0.2.7:4000")}},
		{Key: padded(0x0a, 1), Mask: padded(0xff, 0), Result: Result{Verdict: Drop}},
		{Key: padded(), Mask: padded(), Result: Result{Verdict: Punt}},
	}
	if diff := cmp.Diff(want, filters, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
}

func TestMistakesInFiltersAreNamed(t *testing.T) {
	for line, want := range map[string]string{
		"any":                            "there is no ->",
		"-> drop":                        "nothing says which keys match",
		"color=1 -> drop":                "it has destination, port, mac",
		"prot=1 -> drop":                 "did you mean port?",
		"port=70000 -> drop":             "does not fit into 2 bytes",
		"port=x -> drop":                 "is no number, address",
		"port=1/17 -> drop":              "no prefix of 17",
		"destination=2001:db8:: -> drop": "field's 4 bytes",
		"key=0a/ff00 -> drop":            "as many before the slash",
		"any -> fly":                     "a verdict is one of",
		"any ->":                         "a verdict is one of",
		"any -> send":                    "is no number",
		"any -> flood 1,64":              "interfaces from 1 to 63",
		"any -> udp 192.0.2.1":           "ADDRESS:PORT",
		"any -> drop queue":              "nothing stands behind",
		"any -> send 1 color 2":          "none of: queue, args",
		"any -> send 1 args xx":          "hexadecimal",
		"table x any -> drop":            "is no number",
		"table 8 any -> drop":            "there is no table 8",
		"priority -> drop":               "has no number",
	} {
		_, err := ParseFilters(strings.NewReader("any -> drop\n"+line), testFields)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%q: error is %v, and should contain %q", line, err, want)
		}
	}
}

func FuzzParseFilters(f *testing.F) {
	f.Add("table 1 priority 2 destination=10.0.0.0/8 -> send 2 queue 1 args 02")
	f.Fuzz(func(t *testing.T, text string) {
		filters, err := ParseFilters(strings.NewReader(text), testFields)
		if err != nil {
			return
		}
		for _, x := range filters {
			again, err := ParseFilters(strings.NewReader(x.Text(testFields)), testFields)
			if err != nil || len(again) != 1 || !x.same(&again[0]) {
				t.Errorf("%+v is written as %q: %v", x, x.Text(testFields), err)
			}
			if _, err := x.forHost(keySize); err != nil {
				t.Error(err)
			}
		}
	})
}

// same reports whether two filters do the same.
func (f *Filter) same(g *Filter) bool {
	key, mask := f.masked(keySize)
	otherKey, otherMask := g.masked(keySize)
	return f.Table == g.Table && f.Priority == g.Priority && f.Result == g.Result && bytes.Equal(key, otherKey) &&
		bytes.Equal(mask, otherMask)
}

func TestFiltersAreWrittenAsTheyAreRead(t *testing.T) {
	fields := []Field{{"destination", 0, 4}, {"port", 4, 2}, {"mac", 6, 6}, {"header.id", 12, 16}, {"wide", 28, 9}}
	for _, line := range []string{
		"any -> drop",
		"destination=10.0.0.0/8 -> send 2",
		"table 3 priority 9 destination=10.1.2.3 port=80 -> flood 1,3",
		"port=4112/0xf0f0 mac=02:00:00:00:00:01 -> udp 192.0.2.7:4000 queue 4",
		"header.id=2001:db8::/32 -> punt",
		"wide=hex:000000000000000001 -> send 1 queue 7 args 02ff",
		"wide=hex:000000000000000001/hex:0000000000000000ff -> udp [2001:db8::1]:9",
	} {
		filters, err := ParseFilters(strings.NewReader(line), fields)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if text := filters[0].Text(fields); text != line {
			t.Errorf("%q is written as %q", line, text)
		}
	}
	// What no field has is shown as bytes.
	f := Filter{Key: make([]byte, 40), Mask: make([]byte, 40), Result: Result{Verdict: Drop}}
	f.Key[39], f.Mask[39] = 5, 7
	zeros := strings.Repeat("00", 39)
	if text, want := f.Text(fields), "key="+zeros+"05/"+zeros+"07 -> drop"; text != want {
		t.Errorf("%q, and not %q", text, want)
	}
}
