package program

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/pergola-net/pergola/lab/testkit"
)

// A program's source does the same in the kernel and in user space, with frames that it is for and with any others.
func TestUserSpaceDoesTheSameAsTheKernel(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(testkit.ModuleRoot(t), "examples", "programs", "*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			c := comparison{source: source, seed: 7, filters: 300, tables: 1,
				frame: func(r *rand.Rand) Frame { return randomFrame(t, r) }}
			switch filepath.Base(source) {
			case "i3.c": // punts all as long as its memory is empty
				c.memory, c.frame = i3Memory(), func(r *rand.Rand) Frame { return randomI3(t, r) }
			case "video.c":
				c.frame = randomVideo(t)
			}
			c.run(t)
		})
	}
}

// The kernel's ternary tables find what a plain list has, in all tables and for keys of each length, and count it.
func TestTablesDoTheSameAsAPlainList(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := comparison{source: "testdata/harmless/keys.c", seed: seed, filters: 800, tables: MaxTables,
				frame: func(r *rand.Rand) Frame {
					data := ethernet(t, macB, macA, local, make([]byte, 96)...)
					for i := range data[14:] {
						data[14+i] = byte(r.IntN(4))
					}
					data[14] = byte(r.IntN(MaxTables + 2)) // two that are not there
					return Frame{Data: data, Interface: 1, Interfaces: 0x1e, Time: 1}
				}}
			c.run(t)
		})
	}
}

// Copies that differ, and lookups that follow one another, are the same in the kernel and in user space.
func TestCopiesAreTheSameInUserSpace(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := comparison{
				source:  "testdata/copies.c",
				seed:    seed,
				filters: 200,
				tables:  MaxTables,
				copies:  true,
				frame: func(r *rand.Rand) Frame {
					data := ethernet(t, macB, macA, local, make([]byte, 46+r.IntN(300))...)
					for i := range data[14:60] {
						data[14+i] = byte(r.IntN(4))
					}
					return Frame{Data: data, Interface: 1, Interfaces: 0x1e, Time: 1}
				},
			}
			c.run(t)
		})
	}
}

// comparison sends random frames through a program in the kernel and in user space.
type comparison struct {
	source  string
	seed    uint64
	filters int
	tables  int
	frame   func(*rand.Rand) Frame
	memory  []byte // of the program, to begin with
	copies  bool   // many are to be made
}

// plainCopies are the filters that a frame hits behind the one that won, by the plain rule: those that send copies, and
// one that does not.
func plainCopies(filters []Filter, o Outcome) (hit []int) {
	most := 7
	if o.Verdict != Send || o.Fault != "" || !o.Result.More {
		return nil
	}
	won := false
	for _, n := range inOrder(filters, o.Table) {
		f := filters[n-1]
		if !f.matches(o.Key) {
			continue
		}
		if won {
			if hit = append(hit, n); f.Result.Verdict != Send || !f.Result.More || len(hit) == most {
				return hit
			}
		}
		won = won || n == o.Filter
	}
	return hit
}

func (c comparison) run(t *testing.T) {
	t.Helper()
	p := load(t, build(t, c.source))
	executable := filepath.Join(t.TempDir(), "x")
	if err := BuildUser(t.Context(), c.source, executable, "-Werror"); err != nil {
		t.Fatal(err)
	}
	if c.memory != nil {
		file := filepath.Join(t.TempDir(), "memory")
		if err := errors.Join(os.WriteFile(file, c.memory, 0o600), p.WriteMemory(c.memory)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PERGOLA_MEMORY", file)
	}
	random := rand.New(rand.NewPCG(c.seed, 0))
	filters := c.randomFilters(random, p.Object.KeyBytes)
	count := 2000
	if testkit.InVM() { // an emulated processor
		count = 200
	}
	var frames []Frame
	for range count {
		frames = append(frames, c.frame(random))
	}
	user, _, err := RunUser(t.Context(), executable, filters, frames)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetFilters(filters); err != nil {
		t.Fatal(err)
	}
	left, copies, hits := 0, 0, map[int]uint64{}
	for i, f := range frames {
		kernel := run(t, p, XDP, f)
		if diff := cmp.Diff(kernel, user[i], cmpopts.EquateComparable(netip.AddrPort{}),
			cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d, frame %d (%x) by interface %d: kernel -, user space +: %s",
				c.seed, i, f.Data, f.Interface, diff)
		}
		if kernel.Filter > 0 {
			hits[kernel.Filter]++
			copies += len(kernel.Copies)
			for _, n := range plainCopies(filters, kernel) {
				hits[n]++
			}
			if plain := Matches(filters, kernel.Table, kernel.Key); plain != kernel.Filter {
				t.Fatalf("seed %d, frame %d: filter %d, and the plain rule has %d", c.seed, i,
					kernel.Filter, plain)
			}
		}
		if kernel.Leaves() {
			left++
		}
	}
	t.Logf("%d of %d frames left, %d copies were made, and %d of %d filters won", left, len(frames), copies,
		len(hits), len(filters))
	if left < len(frames)/20 || c.copies && copies < len(frames)/20 {
		t.Error("the test compares little")
	}
	if c.copies {
		return // some look up again, and an outcome names the last filter alone
	}
	counted, err := p.Hits()
	if err != nil {
		t.Fatal(err)
	}
	for i := range filters {
		if counted[i] != hits[i+1] {
			t.Errorf("filter %d was hit %d times, and %d are counted", i+1, hits[i+1], counted[i])
		}
	}
}

// randomFilters overlap: masks are few, and leave one bit or two of some bytes. Those with more bits mostly have higher
// priorities, so that many of them win. The last one matches all.
func (c comparison) randomFilters(random *rand.Rand, keyBytes int) []Filter {
	masks := make([][]byte, 60)
	for i := range masks {
		masks[i] = make([]byte, keyBytes)
		for b := range min(keyBytes, 8) {
			masks[i][b] = []byte{0, 0, 0, 1, 2}[random.IntN(5)]
		}
		masks[i][random.IntN(keyBytes)] |= 1 // the last filter alone matches all
	}
	var filters []Filter
	seen := map[string]bool{}
	for i := range c.filters {
		f := Filter{Table: uint32(random.IntN(c.tables)), Priority: uint32(random.IntN(4)),
			Key: make([]byte, keyBytes), Mask: masks[random.IntN(len(masks))],
			Result: mplsResult(byte(random.IntN(4)), uint32(i))}
		for b := range f.Key {
			f.Key[b] = byte(random.Uint32())
			f.Priority += uint32(bits.OnesCount8(f.Mask[b]))
		}
		key, mask := f.masked(keySize)
		name := fmt.Sprintf("%d %d %x %x", f.Table, f.Priority, key, mask)
		if seen[name] {
			continue
		}
		seen[name] = true
		f.Result.Interface, f.Result.More = uint32(i), random.IntN(3) == 0
		switch random.IntN(6) {
		case 0:
			f.Result = Result{Verdict: Drop}
		case 1:
			f.Result.Verdict, f.Result.Flood, f.Result.More = Flood, random.Uint64(), false
		case 2:
			f.Result.Verdict, f.Result.To, f.Result.More = UDP, netip.MustParseAddrPort(
				"192.0.2.7:4000",
			), false
		}
		filters = append(filters, f)
	}
	return append(filters, Filter{Result: mplsResult(0, 16)})
}

// randomFrame is one of a protocol that an example is for, of any length, often with some bytes changed.
func randomFrame(t *testing.T, random *rand.Rand) Frame {
	t.Helper()
	length := []int{42, 60, 64, 100, 255, 256, 257, 300, 1000, 1514}[random.IntN(10)]
	data := udp4(t, netip.AddrFrom4([4]byte{198, byte(random.Uint32()), 100, byte(random.Uint32())}).String(),
		byte(random.Uint32()), length)
	switch random.IntN(5) {
	case 0:
		copy(data[12:], []byte{0x88, 0x47, byte(random.Uint32()), byte(random.Uint32()),
			byte(random.Uint32()), byte(random.Uint32())})
	case 1:
		copy(data[12:], []byte{0x88, 0xb5, 0x12, 0x34, byte(random.IntN(20)), 0, byte(random.IntN(6)),
			byte(random.IntN(6))})
	case 2:
		ip := &layers.IPv6{Version: 6, HopLimit: byte(random.Uint32()), NextHeader: layers.IPProtocolUDP,
			SrcIP: netip.MustParseAddr("2001:db8::1").AsSlice(),
			DstIP: netip.MustParseAddr("2001:db8::2").AsSlice()}
		for i := 4; i < 8; i++ { // filters of the test look at the key's first eight bytes
			ip.DstIP[i] = byte(random.Uint32())
		}
		data = serialize(t, &layers.Ethernet{SrcMAC: macA, DstMAC: macB,
			EthernetType: layers.EthernetTypeIPv6}, ip, gopacket.Payload(data[34:]))
	}
	if random.IntN(3) == 0 {
		for range 1 + random.IntN(3) {
			data[random.IntN(min(len(data), 60))] = byte(random.Uint32())
		}
	}
	return Frame{Data: data, Interface: uint32(1 + random.IntN(4)), Interfaces: 0x1e,
		Time: 1 + random.Uint64N(1<<40)}
}
