package fib

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"reflect"
	"testing"
)

// Scan, in however many pieces, yields each route once.
func TestScanYieldsWhatWasSet(t *testing.T) {
	r, err := newPlain().open(t).NewRouter(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"0.0.0.0/0", "10.0.0.0/8", "255.255.255.255/32", "::/0", "2001:db8::/32",
		"ffff::/16"} {
		if err := r.SetRoute(netip.MustParsePrefix(p), Route{Kind: Reject}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 * scanned {
		four := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0x0a000000+uint32(i)<<5)))
		six := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		for _, p := range []netip.Prefix{netip.PrefixFrom(four, 27+i%6), netip.PrefixFrom(six, 128)} {
			if err := r.SetRoute(p, Route{Kind: Local}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, have := maps.Collect(r.Routes()), map[netip.Prefix]Route{}
	for p, route := range r.Scan() {
		if _, twice := have[p]; twice {
			t.Errorf("%v is yielded twice", p)
		}
		have[p] = route
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%d routes of %d", len(have), len(want))
	}
	for range r.Scan() { // and stops when the loop ends
		break
	}
}
