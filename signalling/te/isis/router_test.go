package isis_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
	"github.com/pergola-net/pergola/signalling/te/isis"
)

var addresses = cmpopts.EquateComparable(netip.Addr{})

// captured are the TLVs of the LSPs that FRR 8.4.4 flooded in the network of te/frr's test data.
func captured(t *testing.T) (routers []isis.Router) {
	t.Helper()
	text, err := os.ReadFile("testdata/tlvs.hex")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		system, tlvs, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, err1 := hex.DecodeString(system)
		b, err2 := hex.DecodeString(tlvs)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		r, err := isis.Decode(isis.System(id), b)
		if err != nil {
			t.Fatal(err)
		}
		routers = append(routers, r)
	}
	return routers
}

// What we read from FRR's LSPs is what FRR itself says that is in them.
func TestDatabaseIsTheSameAsThatOfFRR(t *testing.T) {
	text, err := os.ReadFile("../frr/testdata/isis.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := frr.Database(text)
	if err != nil {
		t.Fatal(err)
	}
	got := isis.TE(captured(t))
	if diff := cmp.Diff(want.Links(), got.Links(), addresses); diff != "" {
		t.Errorf("links: FRR has - and we +:\n%s", diff)
	}
	if diff := cmp.Diff(want.Nodes(), got.Nodes(), addresses); diff != "" {
		t.Errorf("routers: FRR has - and we +:\n%s", diff)
	}
}

// Each TLV that we write for a router is one that FRR has in its LSP, byte by byte.
func TestTLVsOfFRRAreWrittenTheSame(t *testing.T) {
	text, err := os.ReadFile("testdata/tlvs.hex")
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range captured(t) {
		line := strings.Split(string(text), "\n")[i]
		tlvs, err := r.Encode()
		if err != nil || len(tlvs) != 4 {
			t.Fatalf("%d TLVs: %v", len(tlvs), err)
		}
		for _, tlv := range tlvs[:2] {
			if !strings.Contains(line, hex.EncodeToString(tlv)) {
				t.Errorf("%x is not in what FRR has: %s", tlv, line)
			}
		}
		// FRR has all neighbours in one TLV.
		if !strings.Contains(line, hex.EncodeToString(slices.Concat(tlvs[2][2:], tlvs[3][2:]))) {
			t.Errorf("%x and %x are not in what FRR has: %s", tlvs[2], tlvs[3], line)
		}
	}
}

func draw(t *rapid.T) isis.Router {
	address := func() netip.Addr {
		n := rapid.Uint16().Draw(t, "address")
		return netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})
	}
	bandwidth := func() uint64 {
		b, err := te.BandwidthOf(te.Float(rapid.Uint64().Draw(t, "bandwidth")))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := isis.Router{System: isis.System{0, 1, 2, 0xab, 0xcd, rapid.Byte().Draw(t, "system")}, Address: address(),
		Name: rapid.StringMatching("[a-z]{0,20}").Draw(t, "name")}
	used := make(map[netip.Addr]bool)
	for range rapid.IntRange(0, 4).Draw(t, "links") {
		l := te.Link{Metric: rapid.Uint32Range(0, 1<<24-1).Draw(t, "metric"), Bandwidth: bandwidth(),
			TEMetric: rapid.Uint32Range(0, 1<<24-1).Draw(t, "TE metric"), Reservable: bandwidth(),
			Groups: rapid.Uint32().Draw(t, "groups")}
		l.From, l.To, l.Local = r.System.String(), "0000.0000.00ff", address()
		if l.LAN = rapid.Bool().Draw(t, "LAN"); l.LAN {
			l.To += ".1f"
		} else if rapid.Bool().Draw(t, "numbered") {
			l.Remote = address()
		}
		for p := range l.Unreserved {
			l.Unreserved[p] = bandwidth()
		}
		if n := rapid.IntRange(0, 150).Draw(t, "risks"); n > 0 {
			l.SRLGs = rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "SRLGs")
		}
		if !used[l.Local] {
			used[l.Local] = true
			r.Links = append(r.Links, l)
		}
	}
	return r
}

func TestRoutersAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t)
		tlvs, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		// In two fragments, divided anywhere.
		at := rapid.IntRange(0, len(tlvs)).Draw(t, "fragment")
		got, err := isis.Decode(want.System, bytes.Join(tlvs[:at], nil), bytes.Join(tlvs[at:], nil))
		if diff := cmp.Diff(want, got, addresses); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func TestNeighboursWithoutBandwidthAreNoLinks(t *testing.T) {
	r, err := isis.Decode(isis.System{1}, []byte{22, 11, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 0})
	if err != nil || len(r.Links) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHostileTLVsAreErrors(t *testing.T) {
	for name, b := range map[string][]byte{
		"a TLV without a length":   {22},
		"a TLV that is cut off":    {22, 12, 0},
		"a neighbour cut off":      {22, 3, 0, 0, 0},
		"sub-TLVs cut off":         {22, 11, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 9},
		"a group of two bytes":     {22, 15, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 4, 3, 2, 0, 0},
		"bandwidth below nothing":  {22, 17, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 6, 9, 4, 0xc0, 0, 0, 0},
		"a router ID of two bytes": {134, 2, 0, 0},
		"a risk cut off":           {138, 4, 0, 0, 0, 0},
		"half a risk":              {138, 18, 0, 0, 0, 0, 0, 2, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0},
	} {
		if r, err := isis.Decode(isis.System{}, b); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestWhatISISCannotSayIsAnError(t *testing.T) {
	good := te.Link{LinkID: te.LinkID{From: "0000.0000.0001", To: "0000.0000.0002"}}
	for name, change := range map[string]func(*te.Link){
		"metric":     func(l *te.Link) { l.Metric = 1 << 24 },
		"TE metric":  func(l *te.Link) { l.TEMetric = 1 << 24 },
		"an address": func(l *te.Link) { l.To = "192.0.2.2" },
		"a LAN":      func(l *te.Link) { l.LAN = true },
		"LAN 0":      func(l *te.Link) { l.LAN = true; l.To += ".00" },
		"IPv6":       func(l *te.Link) { l.Local = netip.MustParseAddr("2001:db8::1") },
	} {
		l := good
		change(&l)
		if b, err := (isis.Router{Links: []te.Link{l}}).Encode(); err == nil {
			t.Errorf("%s: %x", name, b)
		}
	}
	if _, err := (isis.Router{Links: []te.Link{good}}).Encode(); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{22, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := isis.Decode(isis.System{}, b)
		if err == nil && len(r.Name) <= 255 {
			if _, err := r.Encode(); err != nil {
				t.Fatalf("%+v was read and cannot be written: %v", r, err)
			}
		}
	})
}
