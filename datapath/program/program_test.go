package program

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// example compiles and reads a program of examples/programs.
func example(t testing.TB, name string) *Object {
	t.Helper()
	return build(t, filepath.Join(testkit.ModuleRoot(t), "examples", "programs", name))
}

func build(t testing.TB, source string) *Object {
	t.Helper()
	file, err := Build(t.Context(), source)
	if err != nil {
		var c *CompileError
		if errors.As(err, &c) {
			t.Log(c.Output)
		}
		t.Fatal(err)
	}
	o, err := Read(source, file)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// load puts a program into the kernel for as long as the test runs.
func load(t testing.TB, o *Object) *Program {
	t.Helper()
	testkit.Root(t)
	p, err := Load(o, nil)
	if err != nil {
		var r *RefusedError
		if errors.As(err, &r) {
			for _, line := range r.Log {
				t.Log(line)
			}
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func run(t testing.TB, p *Program, hook Hook, f Frame) (o Outcome) {
	t.Helper()
	err := OnOneCPU(func(cpu int) (err error) {
		o, err = p.Run(hook, cpu, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func serialize(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		all...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

var (
	macA = []byte{2, 0, 0, 0, 0, 1}
	macB = []byte{2, 0, 0, 0, 0, 2}
	macC = []byte{2, 0, 0, 0, 0, 3}
)

// udp4 is a UDP packet in a frame of this length.
func udp4(t testing.TB, to string, ttl uint8, length int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: ttl, Protocol: layers.IPProtocolUDP,
		SrcIP: netip.MustParseAddr("192.0.2.1").AsSlice(), DstIP: netip.MustParseAddr(to).AsSlice()}
	u := &layers.UDP{SrcPort: 1111, DstPort: 2222}
	if err := u.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, max(length-14-20-8, 0))
	for i := range payload {
		payload[i] = byte(i)
	}
	return serialize(t, &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: layers.EthernetTypeIPv4}, ip,
		u, gopacket.Payload(payload))
}

func TestIPv4Forwards(t *testing.T) {
	p := load(t, example(t, "ipv4.c"))
	t.Logf("%+v", p.Costs)
	result := Result{Verdict: Send, Interface: 2, Queue: 7}
	copy(result.Arguments[:], macC)
	copy(result.Arguments[6:], macB)
	if err := p.SetFilters([]Filter{{Key: []byte{198, 51, 100}, Mask: []byte{255, 255, 255},
		Result: result}}); err != nil {
		t.Fatal(err)
	}
	for _, hook := range Hooks {
		for _, length := range []int{42, 60, 64, 65, 127, 200, 255, 256, 257, 300, 1514, 9000} {
			if hook == TC && length > 3000 { // the kernel's test runs take one page
				continue
			}
			frame := udp4(t, "198.51.100.7", 9, length)
			o := run(t, p, hook, Frame{Data: frame, Interface: 1})
			want := udp4(t, "198.51.100.7", 8, length)
			copy(want, macC)
			copy(want[6:], macB)
			if !o.Leaves() || o.Output != 2 || o.Queue != 7 || o.Filter != 1 {
				t.Fatalf("%s, %d bytes: %+v", hook, length, o)
			}
			if diff := cmp.Diff(want, o.Data); diff != "" {
				t.Fatalf("%s, %d bytes: %s", hook, length, diff)
			}
		}
		if o := run(t, p, hook, Frame{Data: udp4(t, "203.0.113.1", 9, 64)}); o.Verdict != Punt ||
			o.Filter != 0 {
			t.Errorf("%s: %+v", hook, o)
		}
		if o := run(t, p, hook, Frame{Data: udp4(t, "198.51.100.1", 1, 64)}); o.Verdict != Punt ||
			o.Reason != 4 {
			t.Errorf("%s: %+v", hook, o)
		}
	}
	counters, err := p.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counters, p.Object.Key)
}
