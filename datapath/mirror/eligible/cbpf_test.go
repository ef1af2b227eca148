package eligible

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
)

const (
	raw   = 0             // SOCK_RAW: offset 0 of the filter is the Ethernet header
	dgram = networkOffset // SOCK_DGRAM: the IP header
)

// Filters of programs that are run in routers. Where it says tcpdump: as `tcpdump -dd` prints them.
var (
	isisd = []bpf.RawInstruction{ // FRR, SOCK_DGRAM
		{Op: 0x28, K: 0}, {Op: 0x15, Jf: 3, K: 0xfefe}, {Op: 0x30, K: 3}, {Op: 0x15, Jf: 1, K: 0x83}, {Op: 0x6, K: 0x40000}, {Op: 0x6},
	}
	bfdd = []bpf.RawInstruction{ // FRR; tcpdump udp dst port 3785, for IPv4 alone
		{Op: 0x28, K: 12}, {Op: 0x15, Jf: 8, K: 0x800}, {Op: 0x30, K: 23}, {Op: 0x15, Jf: 6, K: 17}, {Op: 0x28, K: 20}, {Op: 0x45, Jt: 4, K: 0x1fff},
		{Op: 0xb1, K: 14}, {Op: 0x48, K: 16}, {Op: 0x15, Jf: 1, K: 3785}, {Op: 0x6, K: 0x40000}, {Op: 0x6},
	}
	arp     = where(bpf.LoadAbsolute{Off: 12, Size: 2}, 0x806)
	anyARP  = where(bpf.LoadExtension{Num: bpf.ExtProto}, 0x806)
	ipv4    = where(bpf.LoadAbsolute{Off: 12, Size: 2}, 0x800)
	anyIPv6 = where(bpf.LoadExtension{Num: bpf.ExtProto}, 0x86dd)
	host    = []bpf.RawInstruction{ // tcpdump host 10.0.0.1
		{Op: 0x28, K: 12}, {Op: 0x15, Jf: 4, K: 0x800}, {Op: 0x20, K: 26}, {Op: 0x15, Jt: 8, K: 0x0a000001}, {Op: 0x20, K: 30}, {Op: 0x15, Jt: 6, Jf: 7, K: 0x0a000001},
		{Op: 0x15, Jt: 1, K: 0x806}, {Op: 0x15, Jf: 5, K: 0x8035}, {Op: 0x20, K: 28}, {Op: 0x15, Jt: 2, K: 0x0a000001}, {Op: 0x20, K: 38}, {Op: 0x15, Jf: 1, K: 0x0a000001},
		{Op: 0x6, K: 262144}, {Op: 0x6},
	}
	ospf = assemble( // tcpdump dst host 224.0.0.5
		bpf.LoadAbsolute{Off: 12, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x800, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 30, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xe0000005,
			SkipFalse: 1}, bpf.RetConstant{Val: 262144}, bpf.RetConstant{},
	)
	cookedOSPF = assemble( // the same for -i any: relative to the network header
		bpf.LoadExtension{Num: bpf.ExtProto}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x800, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 0xfff00010, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xe0000005,
			SkipFalse: 1}, bpf.RetConstant{Val: 262144}, bpf.RetConstant{},
	)
	group = assemble( // tcpdump ether multicast; lldpd begins with the same test
		bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1,
			SkipFalse: 1}, bpf.RetConstant{Val: 262144}, bpf.RetConstant{},
	)
	linkGroup = assemble( // relative to the Ethernet header
		bpf.LoadAbsolute{Off: 0xffe00000, Size: 1}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1,
			SkipFalse: 1}, bpf.RetConstant{Val: 262144}, bpf.RetConstant{},
	)
	dhcp = assemble( // dhclient: UDP to port 68
		bpf.LoadAbsolute{Off: 12, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x800, SkipFalse: 8},
		bpf.LoadAbsolute{Off: 23, Size: 1}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 17, SkipFalse: 6},
		bpf.LoadAbsolute{Off: 20, Size: 2}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4},
		bpf.LoadMemShift{Off: 14}, bpf.LoadIndirect{Off: 16, Size: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 68,
			SkipFalse: 1}, bpf.RetConstant{Val: 262144}, bpf.RetConstant{},
	)
	tagged = assemble(bpf.LoadExtension{Num: extensionVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 1, SkipFalse: 1}, bpf.RetA{}, bpf.RetConstant{})
	length = assemble(bpf.LoadExtension{Num: bpf.ExtLen}, bpf.RetA{})
	all    = assemble(bpf.RetConstant{Val: 262144})
	none   = assemble(bpf.RetConstant{}) // what libpcap attaches for a moment, to empty the socket
)

func assemble(program ...bpf.Instruction) []bpf.RawInstruction {
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err)
	}
	return raw
}

// where is a filter of frames for which what is loaded has this value.
func where(load bpf.Instruction, is uint32) []bpf.RawInstruction {
	equal := bpf.JumpIf{Cond: bpf.JumpEqual, Val: is, SkipFalse: 1}
	return assemble(load, equal, bpf.RetConstant{Val: 262144}, bpf.RetConstant{})
}

func TestAcceptsProvesWhatIsRefused(t *testing.T) {
	for _, c := range []struct {
		name       string
		filter     []bpf.RawInstruction
		start      int
		ipv4, ipv6 bool
	}{
		{"FRR isisd", isisd, dgram, false, false},
		{"the same on SOCK_RAW looks at MAC addresses", isisd, raw, true, true},
		{"FRR bfdd, for echo packets alone", bfdd, raw, false, false},
		{"tcpdump arp", arp, raw, false, false},
		{"tcpdump -i any arp", anyARP, dgram, false, false},
		{"tcpdump ip", ipv4, raw, true, false},
		{"tcpdump -i any ip6", anyIPv6, dgram, false, true},
		{"tcpdump host 10.0.0.1", host, raw, true, false},
		{"tcpdump dst host 224.0.0.5", ospf, raw, false, false},
		{"tcpdump -i any dst host 224.0.0.5", cookedOSPF, dgram, false, false},
		{"tcpdump ether multicast", group, raw, false, false},
		{"the same from the network header", linkGroup, dgram, false, false},
		{"dhclient", dhcp, raw, true, false},
		{"tagged frames", tagged, raw, false, false},
		{"by length", length, raw, true, true},
		{"tcpdump", all, raw, true, true},
		{"nothing", none, raw, false, false},
		{"no program at all", nil, raw, true, true},
		{"an instruction of tomorrow", []bpf.RawInstruction{{Op: 0xffff}, {Op: 0x6}}, raw, true, true},
		{"a program without an end", assemble(bpf.TAX{}), raw, true, true},
		{"a jump beyond the end", assemble(bpf.Jump{Skip: 7}, bpf.RetConstant{}), raw, true, true},
		{"contradicting tests", assemble(
			bpf.LoadAbsolute{Off: 26, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 100, SkipTrue: 1}, bpf.RetConstant{},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 100,
				SkipFalse: 1}, bpf.RetConstant{Val: 1}, bpf.RetConstant{},
		), raw, false, false},
		{"through the scratch memory", assemble(
			bpf.LoadAbsolute{Off: 12, Size: 2}, bpf.StoreScratch{Src: bpf.RegA,
				N: 3}, bpf.LoadConstant{Dst: bpf.RegA, Val: 1},
			bpf.LoadScratch{Dst: bpf.RegX, N: 3}, bpf.TXA{}, bpf.ALUOpConstant{Op: bpf.ALUOpXor,
				Val: 0x800}, bpf.RetA{},
		), raw, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := accepts(c.filter, transit4, c.start); got != c.ipv4 {
				t.Errorf("IPv4: may accept %v, want %v", got, c.ipv4)
			}
			if got := accepts(c.filter, transit6, c.start); got != c.ipv6 {
				t.Errorf("IPv6: may accept %v, want %v", got, c.ipv6)
			}
		})
	}
}

// walked makes a frame that the fast path would take, from random numbers.
func walked(r *rand.Rand, ipv6 bool) []byte {
	f := make([]byte, 60+r.IntN(60))
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	f[0] &^= 1
	if ipv6 {
		binary.BigEndian.PutUint16(f[12:], 0x86dd)
		f[14] = 0x60 | f[14]&0xf
		f[38] &^= 1 // not 0xff
		return f
	}
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	f[14] = 0x45
	if f[30]>>4 == 0xe {
		f[30] = 10
	}
	if r.IntN(2) == 0 {
		f[23] = 17
	}
	if f[23] == 17 && binary.BigEndian.Uint16(f[36:]) == bfdEcho {
		f[36] = 0
	}
	return f
}

// operations are all of classic BPF that x/net/bpf's machine runs.
var operations = []uint16{
	0x00, 0x01, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x61, 0x80, 0x81, 0xb1, 0x02, 0x03, // loads and stores
	// arithmetic
	0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94,
	0x9c, 0xa4, 0xac,
	0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, // jumps
	0x06, 0x16, 0x07, 0x87,
}

// program makes a program from any bytes: five for an instruction. Most of what comes out, the kernel would take.
func program(from []byte) []bpf.RawInstruction {
	var p []bpf.RawInstruction
	for c := range slices.Chunk(from, 5) {
		if len(c) < 5 || len(p) == 60 {
			break
		}
		i := bpf.RawInstruction{Op: operations[int(c[0])%len(operations)], Jt: c[1] & 7, Jf: c[2] & 7,
			K: uint32(c[3])}
		switch class := i.Op & 7; {
		case i.Op == 0x05:
			i.K &= 7
		case class <= 1 && c[4]&1 == 0: // loads: half of them from the headers
			i.K %= 48
		case class == 2 || class == 3 || i.Op == 0x60 || i.Op == 0x61:
			i.K %= 16
		case c[4] > 128: // constants that occur in frames, and wide ones
			i.K = []uint32{0x0800, 0x86dd, 0x45, 0x60, 17, 0xe0000005, 0xffffffff, 0x1fff, 1 << 31,
				0xff00ff}[c[3]%10]
		}
		p = append(p, i)
	}
	return append(p, bpf.RawInstruction{Op: 0x16}, bpf.RawInstruction{Op: 0x06, K: 1}, bpf.RawInstruction{Op: 0x06},
		bpf.RawInstruction{Op: 0x06}, bpf.RawInstruction{Op: 0x16}, bpf.RawInstruction{Op: 0x16},
		bpf.RawInstruction{Op: 0x06}, bpf.RawInstruction{Op: 0x06, K: 2})
}

// FuzzAccepts runs programs on real frames: what a machine accepts, the analysis must have thought possible.
func FuzzAccepts(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seed that repeats is what is wanted
	for range 200 {
		b := make([]byte, 5+r.IntN(150))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b, r.Uint64())
	}
	f.Fuzz(func(t *testing.T, code []byte, seed uint64) {
		raws := program(code)
		decoded, _ := bpf.Disassemble(raws)
		vm, err := bpf.NewVM(decoded)
		if err != nil {
			return // no kernel would take it
		}
		for _, family := range []struct {
			name   string
			frames []frame
			ipv6   bool
		}{{"IPv4", transit4, false}, {"IPv6", transit6, true}} {
			for _, start := range []int{raw, dgram} {
				if accepts(raws, family.frames, start) {
					continue
				}
				r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // as above
				for range 50 {
					frame := walked(r, family.ipv6)
					if n, err := vm.Run(frame[start:]); err == nil && n > 0 {
						t.Fatalf("%s: proven to be refused, but the program accepts %x:\n%v",
							family.name, frame, decoded)
					}
				}
			}
		}
	})
}

// FuzzValue: what is drawn about numbers holds for each of them.
func FuzzValue(f *testing.F) {
	f.Add(uint32(0x0f0f), uint32(0x1234), uint32(7), uint32(0x0800), uint32(0x0900), byte(3), byte(5))
	f.Fuzz(func(t *testing.T, knownA, a, knownB, b, k uint32, operation, test byte) {
		va, ok := value{known: knownA, bits: a & knownA, lo: a &^ (k & 0xff), hi: a | k}.tighten()
		if !ok || !va.has(a) {
			t.Fatalf("%+v lost %#x", va, a)
		}
		vb, _ := value{known: knownB, bits: b & knownB, hi: ^uint32(0)}.tighten()
		if joined := va.or(vb); !joined.has(a) || !joined.has(b) {
			t.Fatalf("%+v or %+v = %+v lost one of %#x, %#x", va, vb, joined, a, b)
		}
		op := bpf.ALUOp(operation & 0xf << 4)
		exact, result := calculate(op, a, b), compute(op, va, vb)
		if n, known := exact.exact(); known && !result.has(n) {
			t.Fatalf("%+v %v %+v = %+v lost %#x", va, op, vb, result, n)
		}
		cond := bpf.JumpTest(test & 7)
		if holds(cond, a, k) {
			if left, ok := va.given(cond, k); !ok || !left.has(a) {
				t.Fatalf("%+v given %v %#x = %+v, %v lost %#x", va, cond, k, left, ok, a)
			}
		} else if left, ok := va.given(opposite[cond], k); !ok || !left.has(a) {
			t.Fatalf("%+v given not %v %#x = %+v, %v lost %#x", va, cond, k, left, ok, a)
		}
	})
}

func holds(test bpf.JumpTest, a, k uint32) bool {
	switch test {
	case bpf.JumpEqual:
		return a == k
	case bpf.JumpNotEqual:
		return a != k
	case bpf.JumpGreaterThan:
		return a > k
	case bpf.JumpLessThan:
		return a < k
	case bpf.JumpGreaterOrEqual:
		return a >= k
	case bpf.JumpLessOrEqual:
		return a <= k
	case bpf.JumpBitsSet:
		return a&k != 0
	default:
		return a&k == 0
	}
}
