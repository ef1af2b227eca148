package datapath

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// Verdicts of tc programs (linux/pkt_cls.h).
const (
	verdictOK       = 0
	verdictShot     = 2
	verdictRedirect = 7
)

var (
	macA      = [6]byte{2, 0, 0, 0, 0, 0xa}
	macB      = [6]byte{2, 0, 0, 0, 0, 0xb}
	macOther  = [6]byte{2, 0, 0, 0, 0, 0xc}
	broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allISs    = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x15} // IS-IS, level 2
)

func ethernet(to, from [6]byte, typeOrLength uint16, length int) []byte {
	f := append(append([]byte{}, to[:]...), from[:]...)
	f = binary.BigEndian.AppendUint16(f, typeOrLength)
	return append(f, bytes.Repeat([]byte{0x5a}, length-len(f))...)
}

// skbuff is struct __sk_buff (linux/bpf.h) up to gso_size; the kernel takes ifindex and gso_size from us.
type skbuff struct {
	_       [2]uint32
	Mark    uint32
	_       [7]uint32
	Ifindex uint32
	_       [33]uint32
	GSOSize uint32
	_       [3]uint32
}

func TestPortProgram(t *testing.T) {
	toB := ethernet(macB, macA, 0x0800, 64)
	handed := func(n int) Traffic { return Traffic{Frames: 1, Bytes: uint64(n)} }
	cases := []struct {
		name    string
		frame   []byte
		gso     uint32
		a, b    *Port // Peer is filled in, unless it is set
		verdict uint32
		counted map[string]Counters // by port: a, b, or nobody
	}{
		{
			name: "joined", frame: toB, a: &Port{Mode: Peer, MTU: 1500}, b: &Port{MTU: 1500,
				MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{"b": {Handed: handed(64)}},
		},
		{
			name: "broadcast: the kernel judges", frame: ethernet(broadcast, macA, 0x0806, 60),
			a: &Port{Mode: Peer, MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{},
		},
		{
			name: "IS-IS over LLC", frame: ethernet(allISs, macA, 1497, 1511), a: &Port{Mode: Peer,
				MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{},
		},
		{
			name: "for another address: the kernel judges", frame: ethernet(macOther, macA, 0x0800, 64),
			a: &Port{Mode: Peer, MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{},
		},
		{
			name: "shaped", frame: toB, a: &Port{Mode: Queue, MTU: 1500}, b: &Port{MTU: 1500,
				MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{},
		},
		{
			name: "on a bridge", frame: toB, a: &Port{Mode: Kernel, MTU: 1500}, verdict: verdictOK,
			counted: map[string]Counters{},
		},
		{
			name: "not wired", frame: toB, a: &Port{Mode: None, MTU: 1500}, verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"not wired": 1}}},
		},
		{
			name: "peer gone", frame: toB, a: &Port{Mode: Peer, MTU: 1500}, verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"peer gone": 1}}},
		},
		{
			name: "peer leads elsewhere", frame: toB, a: &Port{Mode: Peer, MTU: 1500}, b: &Port{Mode: Peer,
				Peer: 4711, MTU: 1500, MAC: macB}, verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"peer gone": 1}}},
		},
		{
			name: "unknown port", frame: toB, verdict: verdictShot,
			counted: map[string]Counters{"nobody": {Dropped: map[string]uint64{"unknown port": 1}}},
		},
		{
			name: "longest that fits", frame: ethernet(macB, macA, 0x0800, 1518), a: &Port{Mode: Peer,
				MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{"b": {Handed: handed(1518)}},
		},
		{
			name: "too big", frame: ethernet(macB, macA, 0x0800, 1519), a: &Port{Mode: Peer,
				MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"too big": 1}}},
		},
		{
			name:  "too big for the sender's end, which its veth pair has dropped before",
			frame: ethernet(macB, macA, 0x0800, 1519), a: &Port{Mode: Peer, MTU: 1500},
			b:       &Port{MTU: 9000, MAC: macB},
			verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"too big": 1}}},
		},
		{
			name: "too big for a shaped link", frame: ethernet(macB, macA, 0x0800, 1519),
			a: &Port{Mode: Queue, MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictShot,
			counted: map[string]Counters{"a": {Dropped: map[string]uint64{"too big": 1}}},
		},
		{
			name: "jumbo", frame: ethernet(macB, macA, 0x0800, 3000), a: &Port{Mode: Peer,
				MTU: 9000}, b: &Port{MTU: 9000, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{"b": {Handed: handed(3000)}},
		},
		{
			name: "super-frame", frame: ethernet(macB, macA, 0x0800, 3500), gso: 1448, a: &Port{Mode: Peer,
				MTU: 1500}, b: &Port{MTU: 1500, MAC: macB}, verdict: verdictRedirect,
			counted: map[string]Counters{"b": {Handed: handed(3500)}},
		},
	}
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { _ = d.Close() }()
		for _, c := range cases {
			b.name = c.name
			b.wire(d, c.a, c.b)
			verdict, out := b.run(d, c.frame, c.gso)
			if verdict != c.verdict {
				b.Errorf("verdict %d, want %d", verdict, c.verdict)
			}
			if !bytes.Equal(out, c.frame) {
				b.Errorf("the frame was changed:\n%s", cmp.Diff(c.frame, out))
			}
			b.compare(d, c.counted)
			b.reset(d)
		}
	})
}

// reset forgets ports and counters.
func (b *bench) reset(d *DataPath) {
	for _, port := range []int{b.a, b.b, 0} {
		if err := d.Add(port, Port{}); err != nil {
			b.Error(err)
		}
	}
}

func (b *bench) wire(d *DataPath, portA, portB *Port) {
	if portA != nil {
		portA.Peer = b.b
		if err := d.Set(b.a, *portA); err != nil {
			b.Error(err)
		}
	}
	if portB != nil {
		if portB.Peer == 0 {
			portB.Peer = b.a
		}
		if err := d.Set(b.b, *portB); err != nil {
			b.Error(err)
		}
	}
}

func (b *bench) run(d *DataPath, frame []byte, gso uint32) (verdict uint32, out []byte) {
	opts := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+256),
		Context: &skbuff{Ifindex: uint32(b.a), GSOSize: gso},
	}
	verdict, err := d.programs.PortIngress.Run(&opts)
	if err != nil {
		b.Error(err)
	}
	return verdict, opts.DataOut
}

// compare fails for every counter that moved and was not named.
func (b *bench) compare(d *DataPath, want map[string]Counters) {
	have := map[string]Counters{}
	for index, c := range must(d.Counters()) {
		if len(c.Dropped) == 0 {
			c.Dropped = nil
		}
		if c.Handed.Frames == 0 && c.Dropped == nil {
			continue
		}
		have[map[int]string{b.a: "a", b.b: "b", 0: "nobody"}[index]] = c
	}
	if diff := cmp.Diff(want, have); diff != "" {
		b.Errorf("counters (-want +have):\n%s", diff)
	}
}

// BenchmarkPortProgram gives the program's own time for a frame that is handed over, without what the kernel does then.
func BenchmarkPortProgram(b *testing.B) {
	inBench(b, func(n *bench) {
		d := n.open()
		defer func() { _ = d.Close() }()
		n.wire(d, &Port{Mode: Peer, MTU: 1500}, &Port{MTU: 1500, MAC: macB})
		opts := ebpf.RunOptions{Data: ethernet(macB, macA, 0x0800, 64), Context: &skbuff{Ifindex: uint32(n.a)},
			Repeat: uint32(b.N)}
		b.ResetTimer()
		if _, err := d.programs.PortIngress.Run(&opts); err != nil {
			b.Error(err)
		}
	})
}
