package ospf_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/pergola-net/pergola/signalling/internal/tshark"
	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/ospf"
)

// update is an LS Update with one LSA (RFC 2328, section A.3.5), in IPv4.
func update(t *testing.T, lsa []byte) []byte {
	t.Helper()
	b := make([]byte, 28)
	b[0], b[1] = 2, 4
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(lsa)))
	copy(b[4:], []byte{192, 0, 2, 1})
	b[27] = 1
	b = append(b, lsa...)
	binary.BigEndian.PutUint16(b[12:], checksum(b))
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolOSPF, SrcIP: []byte{192, 0, 2, 1},
		DstIP: []byte{224, 0, 0, 5}}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, ip, gopacket.Payload(b)); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// checksum is that of IP.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func TestTsharkReadsWhatIsWritten(t *testing.T) {
	router := netip.MustParseAddr("192.0.2.1")
	link := te.Link{TEMetric: 77, Bandwidth: 125_000_000, Reservable: 100_000_000, Groups: 0x80000001,
		SRLGs: []uint32{5, 4294967295}}
	link.LinkID = te.LinkID{From: "192.0.2.1", To: "192.0.2.2", Local: netip.MustParseAddr("198.51.100.1"),
		Remote: netip.MustParseAddr("198.51.100.2")}
	link.Unreserved[7] = 25_000_000
	lan := link
	lan.LAN, lan.To, lan.Remote = true, "198.51.100.7", netip.Addr{}
	var packets [][]byte
	for i, l := range []ospf.LSA{{Address: router}, {Link: &link}, {Link: &lan}} {
		l.Router, l.Instance, l.Sequence = router, uint32(i), ospf.FirstSequence
		b, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, update(t, b))
	}
	text := strings.Join(tshark.Read(t, "ospf", packets), "\n")
	for _, bad := range tshark.Faults(strings.ReplaceAll(text, "Auth Data (none)", "")) {
		t.Errorf("decoded with %q", bad)
	}
	for _, want := range []string{"Router ID: 192.0.2.1", "Link ID: 192.0.2.2", "Traffic Engineering Metric: 77",
		"Shared Risk Link Group: 4294967295", "7: 25000000 bytes/s", "0x80000001", "198.51.100.7"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
