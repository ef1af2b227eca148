package ospf_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
	"github.com/pergola-net/pergola/signalling/te/ospf"
)

var addresses = cmpopts.EquateComparable(netip.Addr{})

// captured are the LSAs that FRR 8.4.4 flooded in the network of te/frr's test data: router LSAs, then those of links.
func captured(t *testing.T) (all [][]byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/lsas.hex")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		b, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

const routers = 3 // of the captured LSAs, so many are of routers

func TestLSAsOfFRRAreReadAndWrittenTheSame(t *testing.T) {
	for _, b := range captured(t)[routers:] {
		l, err := ospf.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.Encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%+v: %v, written as\n%x, want\n%x", l, err, again, b)
		}
	}
}

// What we read from FRR's LSAs is what FRR itself says that is in them.
func TestDatabaseIsTheSameAsThatOfFRR(t *testing.T) {
	text, err := os.ReadFile("../frr/testdata/ospf.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := frr.Database(text)
	if err != nil {
		t.Fatal(err)
	}
	var d ospf.Database
	for _, b := range captured(t) {
		if fresh, err := d.Put(0, b); err != nil || !fresh {
			t.Fatal(fresh, err)
		}
	}
	got := d.TE()
	if diff := cmp.Diff(want.Links(), got.Links(), addresses); diff != "" {
		t.Errorf("links: FRR has - and we +:\n%s", diff)
	}
	if diff := cmp.Diff(want.Nodes(), got.Nodes(), addresses); diff != "" {
		t.Errorf("routers: FRR has - and we +:\n%s", diff)
	}
}

func drawAddress(t *rapid.T) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")
	b[0] |= 1
	return netip.AddrFrom4([4]byte(b))
}

func drawLSA(t *rapid.T) ospf.LSA {
	l := ospf.LSA{Age: rapid.Uint16().Draw(t, "age"), Router: drawAddress(t), Address: drawAddress(t),
		Instance: rapid.Uint32Range(0, 1<<24-1).Draw(t, "instance"),
		Sequence: rapid.Int32Min(1).Draw(t, "sequence")}
	if rapid.Bool().Draw(t, "no link") {
		return l
	}
	bandwidth := func() uint64 {
		b, err := te.BandwidthOf(te.Float(rapid.Uint64().Draw(t, "bandwidth")))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	l.Link = &te.Link{LinkID: te.LinkID{From: l.Router.String(), To: drawAddress(t).String(),
		LAN: rapid.Bool().Draw(t, "LAN"), Local: drawAddress(t)}, TEMetric: rapid.Uint32().Draw(t, "metric"),
		Bandwidth: bandwidth(), Reservable: bandwidth(), Groups: rapid.Uint32().Draw(t, "groups")}
	if !l.Link.LAN {
		l.Link.Remote = drawAddress(t)
	}
	for p := range l.Link.Unreserved {
		l.Link.Unreserved[p] = bandwidth()
	}
	if n := rapid.IntRange(0, 100).Draw(t, "risks"); n > 0 {
		l.Link.SRLGs = rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "SRLGs")
	}
	return l
}

func TestLSAsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawLSA(t)
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ospf.Decode(b)
		if diff := cmp.Diff(want, got, addresses); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		// Each changed bit is found, but in the age, which is not summed up.
		at := rapid.IntRange(16, 8*len(b)-1).Draw(t, "bit")
		b[at/8] ^= 1 << (at % 8)
		if _, err := ospf.Decode(b); err == nil {
			t.Fatalf("bit %d is changed, and nothing is wrong", at)
		}
	})
}

func TestHostileLSAsAreErrors(t *testing.T) {
	good := captured(t)[routers]
	for name, change := range map[string]func([]byte){
		"a TLV longer than the LSA":   func(b []byte) { b[30], b[31] = 0xff, 0xff },
		"an address of three bytes":   func(b []byte) { b[23] = 3 },
		"a link of type 3":            func(b []byte) { b[36] = 3 },
		"no other end":                func(b []byte) { b[41] = 99 },
		"bandwidth below nothing":     func(b []byte) { b[76] |= 0x80 },
		"bandwidth that is no number": func(b []byte) { b[76], b[77] = 0x7f, 0xff },
		"opaque type 4":               func(b []byte) { b[4] = 4 },
		"of the whole network":        func(b []byte) { b[3] = 11 },
	} {
		b := bytes.Clone(good)
		change(b)
		ospf.Sign(b)
		if l, err := ospf.Decode(b); err == nil {
			t.Errorf("%s: %+v, %+v", name, l, l.Link)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	text, err := os.ReadFile("testdata/lsas.hex")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		if b, err := hex.DecodeString(line); err == nil {
			f.Add(b[20:])
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append(make([]byte, 20), body...)
		b[3], b[4], b[18], b[19] = 10, 1, byte(len(b)>>8), byte(len(b))
		if len(b) > 1<<16-1 {
			return
		}
		ospf.Sign(b)
		l, err := ospf.Decode(b)
		if err != nil {
			return
		}
		again, err := l.Encode()
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", l, err)
		}
		if twice, err := ospf.Decode(again); err != nil || !cmp.Equal(l, twice, addresses) {
			t.Fatalf("%v\n%s", err, cmp.Diff(l, twice, addresses))
		}
	})
}

func TestTheNewestLSACounts(t *testing.T) {
	router := netip.MustParseAddr("192.0.2.1")
	lsa := func(sequence int32, age uint16, metric uint32) []byte {
		b, err := ospf.LSA{Router: router, Sequence: sequence, Age: age, Instance: 1, Link: &te.Link{
			LinkID: te.LinkID{From: router.String(), To: "192.0.2.2",
				Local: netip.MustParseAddr("198.51.100.1")}, TEMetric: metric}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var d ospf.Database
	for i, step := range []struct {
		at    time.Duration
		lsa   []byte
		fresh bool
		want  uint32 // the metric; 0: no link
	}{
		{0, lsa(-5, 1, 7), true, 7},
		{0, lsa(-5, 1, 7), false, 7},
		{0, lsa(-4, 1, 8), true, 8},
		{0, lsa(-5, 1, 9), false, 8},
		{1000 * time.Second, lsa(-4, 1, 8), true, 8}, // as new, and younger by more than 15 minutes
		{1000 * time.Second, lsa(-4, 800, 8), false, 8},
		{1000 * time.Second, lsa(-4, 3600, 8), true, 0}, // flushed
		{1000 * time.Second, lsa(-4, 3600, 8), false, 0},
		{1000 * time.Second, lsa(3, 3590, 9), true, 9},
	} {
		fresh, err := d.Put(step.at, step.lsa)
		var got uint32
		for _, l := range d.TE().Links() {
			got = l.TEMetric
		}
		if err != nil || fresh != step.fresh || got != step.want {
			t.Errorf("step %d: newer: %t, metric %d: %v; want %+v", i, fresh, got, err, step)
		}
	}
	d.Expire(1009 * time.Second)
	if n := len(d.TE().Links()); n != 1 {
		t.Errorf("%d links of one second before its end", n)
	}
	d.Expire(1010 * time.Second)
	if n := len(d.TE().Links()); n != 0 {
		t.Errorf("%d links after an hour", n)
	}
}
