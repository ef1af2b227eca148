package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/sliver"
	"github.com/pergola-net/pergola/i3/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/sdk/node"
)

// packetProgram is examples/programs/i3.c in the kernel, as the fast path of server 0.
type packetProgram struct {
	*sliver.FastPath
	program *program.Program
	memory  [1 + layout.Rings][]byte // of which the program's is a copy
	filters map[string]string        // by what they match
	stale   bool                     // the program has not these filters yet
	wrong   error                    // what the test cannot be told at once
}

// own is the Ethernet address of server 0's node, on its interface 1.
var own = layout.MAC{2, 0, 0, 0, 0, 1}

func loadProgram(t *testing.T) *packetProgram {
	t.Helper()
	testkit.Root(t)
	source := filepath.Join(testkit.ModuleRoot(t), "examples", "programs", "i3.c")
	file, err := program.Build(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	o, err := program.Read(source, file)
	if err != nil {
		t.Fatal(err)
	}
	k := &packetProgram{filters: map[string]string{}}
	if k.program, err = program.Load(o, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.program.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range k.memory {
		k.memory[i] = make([]byte, layout.Size)
	}
	return k
}

// reach knows the Ethernet addresses of all but two.
func reach(to netip.Addr) (layout.Neighbor, bool) {
	b := to.As4()
	n := layout.Neighbor{Interface: 1 + int(b[3]%2), From: own, To: layout.MAC{2, 1, b[0], b[1], b[2], b[3]}}
	return n, to != hostAddress(3).Addr() && to != serverAddress(4).Addr()
}

// start makes it new, for a server that begins.
func (k *packetProgram) start(ctx context.Context) (err error) {
	k.FastPath, err = sliver.New(ctx, k)
	return err
}

func (k *packetProgram) Look(context.Context) (layout.Node, error) {
	return layout.Node{Addr: serverAddress(0), MACs: []layout.MAC{own}, Reach: reach}, nil
}

func (k *packetProgram) Memory(context.Context) (sliver.Memory, error) { return k, nil }

// Close is that of the memory.
func (k *packetProgram) Close() error { return nil }

func (k *packetProgram) At(i int) []byte { return k.memory[i] }

func (k *packetProgram) ChangeFilters(_ context.Context, remove, insert []string) error {
	for _, name := range remove {
		if _, there := k.filters[name]; !there {
			return fmt.Errorf("filter %q is not there", name)
		}
		delete(k.filters, name)
	}
	for _, text := range insert {
		f, err := program.ParseFilter(text, k.program.Object.Key)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("priority %d %s", f.Priority, f.MatchText(k.program.Object.Key))
		if name+" -> "+f.Result.String() != text {
			return fmt.Errorf("filter %q is listed as %q -> %q", text, name, f.Result)
		}
		if _, there := k.filters[name]; there {
			return fmt.Errorf("filter %q is there already", name)
		}
		k.filters[name] = text
	}
	k.stale = true
	return nil
}

// catchUp is what i3d does beside the server.
func (k *packetProgram) catchUp() error {
	select {
	case <-k.Late():
		return k.Refresh()
	default:
		return nil
	}
}

// write makes the program's filters and memory those that it is to have. It takes its time, so packets ask for it.
func (k *packetProgram) write() error {
	if !k.stale {
		return k.program.WriteMemory(bytes.Join(k.memory[:], nil))
	}
	k.stale = false
	var all []program.Filter
	for _, text := range k.filters {
		f, err := program.ParseFilter(text, k.program.Object.Key)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	return errors.Join(k.program.SetFilters(all), k.program.WriteMemory(bytes.Join(k.memory[:], nil)))
}

func (k *packetProgram) ReplaceFilters(ctx context.Context, filters []string) error {
	clear(k.filters)
	return k.ChangeFilters(ctx, nil, filters)
}

func (k *packetProgram) Filters(context.Context) (node.Filters, error) { return node.Filters{}, nil }

// frame is an I3 packet on its way between two addresses.
func frame(to, from layout.MAC, source, destination netip.AddrPort, packet []byte) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: source.Addr().AsSlice(), DstIP: destination.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(source.Port()), DstPort: layers.UDPPort(destination.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{DstMAC: to[:], SrcMAC: from[:], EthernetType: layers.EthernetTypeIPv4}, ip, udp,
		gopacket.Payload(packet))
	return b.Bytes(), err
}

// Process sends a packet through the program, and compares the frame that leaves with what the server's kernel would
// send.
func (k *packetProgram) Process(b []byte) (sent []fastpath.Sent, punt []byte) {
	if len(b) > 1 && wire.Type(b[1]) >= wire.Handover {
		return nil, b // messages of the ring, of which there are many
	}
	o, err := k.run(b)
	if err != nil {
		k.wrong = err
		return nil, nil
	}
	if o.Verdict == program.Punt {
		return nil, b
	}
	for _, one := range append([]program.Outcome{o}, o.Copies...) {
		const headers = 14 + 20 + 8
		if !one.Leaves() || len(one.Data) < headers {
			k.wrong = fmt.Errorf("what is neither punted nor sent: %v", one)
			continue
		}
		to := netip.AddrPortFrom(
			netip.AddrFrom4([4]byte(one.Data[30:])),
			binary.BigEndian.Uint16(one.Data[36:]),
		)
		n, _ := reach(to.Addr())
		want, err := frame(n.To, n.From, serverAddress(0), to, one.Data[headers:])
		if diff := cmp.Diff(want, one.Data); err != nil || diff != "" || int(one.Output) != n.Interface {
			k.wrong = fmt.Errorf("the frame to %s by interface %d is not as it should be: %w%s", to,
				one.Output, err, diff)
		}
		sent = append(sent, fastpath.Sent{To: to, Packet: one.Data[headers:]})
	}
	return sent, nil
}

// run sends a packet through the program.
func (k *packetProgram) run(b []byte) (o program.Outcome, err error) {
	if err := errors.Join(k.catchUp(), k.write()); err != nil {
		return o, err
	}
	f, err := frame(own, layout.MAC{2, 9}, hostAddress(99), serverAddress(0), b)
	if err != nil {
		return o, err
	}
	err = program.OnOneCPU(func(cpu int) (err error) {
		o, err = k.program.Run(program.TC, cpu, program.Frame{Data: f, Interface: 1})
		return err
	})
	return o, err
}

// The packet program, as the server programs it, does to each packet what the server does, byte for byte.
func TestPacketProgramDoesWhatTheServerDoes(t *testing.T) {
	k := loadProgram(t)
	checks := flag.Lookup("rapid.checks").Value
	all := checks.String()
	defer func() { _ = checks.Set(all) }()
	if err := checks.Set("50"); err != nil { // a table of filters that is written anew takes 20 ms
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		configure := func(c *server.Config) {
			if c.Ring.Self.Addr != serverAddress(0) {
				return
			}
			if err := k.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.FastPath = k
		}
		compareWithServer(t, 30, configure, func(*machine, []byte, []string) {
			if k.wrong != nil {
				t.Fatal(k.wrong)
			}
		})
	})
	c, err := k.program.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c)
	// Few of the random packets are copied, in some runs none.
	for _, name := range []string{"passed", "delivered", "redirected", "not_data", "spent", "no_next_hop"} {
		if c[name] == 0 {
			t.Errorf("no packet was %s: the test compares little", name)
		}
	}
}

// Rings and filters of any kind are to the program in the kernel what they are to the plain fast path. It punts more:
// what goes to neighbors that it does not know, and what is redirected too often.
func TestMirrorDoesWhatTheTableSays(t *testing.T) {
	k := loadProgram(t)
	random := rand.New(rand.NewPCG(5, 0))
	sent := map[fastpath.Kind]int{}
	for round := range 40 {
		if err := k.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		plain := &fastpath.Memory{Can: layout.Limits}
		keys := randomKeys(random, 1+random.IntN(40))
		if round%10 == 9 {
			keys = randomKeys(random, 200) // more than the program has room for
		}
		routes, filters := randomRoutes(random, keys), randomFilters(random, keys)
		if err := errors.Join(k.Replace(routes, filters), plain.Replace(routes, filters)); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			id := near(random, keys)
			p := wire.New(wire.Data, []ident.ID{id, {1}}[:1+random.IntN(2)], make([]byte, random.IntN(300)))
			p.SetHopLimit([]int{64, 64, 3, 2, 1}[random.IntN(5)])
			p.SetCopies([]int{1024, 60000, 9, 3, 1, 0}[random.IntN(6)])
			got, punted := k.Process(p)
			if k.wrong != nil {
				t.Fatal(k.wrong)
			}
			want, left := plain.Process(p)
			a, _ := plain.Match(id)
			owns := routes.Owns(id.Key())
			if punted != nil {
				known := len(keys) < layout.Points/2
				for _, one := range want {
					known = known && mayReach(one.To)
				}
				if left == nil && known && (!owns || a.Kind != fastpath.Redirect) {
					t.Fatalf("round %d: %s is punted, and not sent %d times", round, id, len(want))
				}
				continue
			}
			again := a.Kind == fastpath.Redirect && owns && routes.Owns(a.Stack[0].Key())
			diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}))
			if diff != "" || left != nil {
				t.Fatalf("round %d, %s: %v, %v: %s", round, id, routes, a, diff)
			}
			switch {
			case !owns:
				sent[passed]++
			case again:
				sent[lookedUpAgain]++
			default:
				sent[a.Kind]++
			}
		}
	}
	t.Log(sent)
	for kind, least := range map[fastpath.Kind]int{fastpath.Deliver: 100, passed: 100, fastpath.Multicast: 20,
		fastpath.Redirect: 20, lookedUpAgain: 20} {
		if sent[kind] < least {
			t.Errorf("%s %d times: the test compares little", kind, sent[kind])
		}
	}
}

// What else a packet may be: not kinds of action.
const (
	passed        fastpath.Kind = 100 + iota // on by the ring
	lookedUpAgain                            // redirected to an identifier of the same server
)

func mayReach(to netip.AddrPort) bool {
	_, ok := reach(to.Addr())
	return ok
}

// randomKeys are in order. Many have their first or last half in common.
func randomKeys(random *rand.Rand, n int) (all []ident.Key) {
	for range n {
		var b [ident.KeySize]byte
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if random.IntN(2) == 0 {
			clear(b[:8])
		}
		if random.IntN(3) == 0 {
			copy(b[8:], bytes.Repeat([]byte{byte(-random.IntN(2))}, 8))
		}
		all = append(all, ident.KeyFrom(b))
	}
	slices.SortFunc(all, ident.Key.Compare)
	return slices.Compact(all)
}

// randomRoutes has hops around the ring, perhaps with a gap, and an interval of the server's own.
func randomRoutes(random *rand.Rand, keys []ident.Key) (r chord.Routes) {
	key := func() ident.Key { return keys[random.IntN(len(keys))] }
	r.Own, r.From, r.To = chord.Own(random.IntN(8)), key(), key()
	if r.Own > chord.OwnAll {
		r.Own = chord.OwnInterval
	}
	for i := range keys {
		h := chord.Hop{From: keys[i], To: keys[(i+1)%len(keys)], Next: chord.Peer{Addr: serverAddress(1 + i%9)}}
		if random.IntN(10) > 0 {
			r.Hops = append(r.Hops, h)
		}
	}
	return r
}

// near is an identifier whose key is one of these, or the next one to it.
func near(random *rand.Rand, keys []ident.Key) (id ident.ID) {
	b := keys[random.IntN(len(keys))].Bytes()
	copy(id[:], b[:])
	id[15] += byte(random.IntN(3) - 1)
	id[16], id[31] = byte(random.IntN(4))<<6, byte(random.IntN(2))
	return id
}

func randomFilters(random *rand.Rand, keys []ident.Key) (all []fastpath.Filter) {
	there := map[ident.Prefix]bool{}
	for range 3 * len(keys) {
		p := ident.PrefixOf(near(random, keys), []int{128, 128, 129, 130, 256}[random.IntN(5)])
		if there[p] {
			continue
		}
		there[p] = true
		a := fastpath.Action{Kind: fastpath.Kind(random.IntN(4))}
		switch a.Kind {
		case fastpath.Multicast:
			for range 2 + random.IntN(layout.Limits.Copies-1) {
				a.To = append(a.To, hostAddress([]int{0, 1, 2, 4, 5, 6, 7, 8, 3}[random.IntN(9)]))
			}
		case fastpath.Deliver:
			a.To = []netip.AddrPort{hostAddress(random.IntN(5))}
		case fastpath.Redirect:
			a.Stack = []ident.ID{near(random, keys)}
		case fastpath.Punt:
		}
		all = append(all, fastpath.Filter{Prefix: p, Action: a})
	}
	return all
}
