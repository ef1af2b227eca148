package fastpath_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

// drawID gives identifiers with few keys, whose suffixes have long prefixes in common.
func drawID(t *rapid.T) ident.ID {
	id := ident.ID{0: rapid.SampledFrom([]byte{1, 2}).Draw(t, "key")}
	id[16] = rapid.SampledFrom([]byte{0, 0x80, 0xc0, 0xc1, 0xff}).Draw(t, "suffix begins")
	id[31] = rapid.SampledFrom([]byte{0, 1, 2, 3, 0x80}).Draw(t, "suffix ends")
	return id
}

// wanted says what the triggers that an identifier matches mean for a packet.
func wanted(g trigger.Group, l fastpath.Limits) string {
	direct := 0
	for _, o := range g.Triggers {
		if o.Direct() {
			direct++
		}
	}
	switch {
	case len(g.Triggers) == 1 && direct == 1:
		return fmt.Sprint("deliver ", g.Triggers[0].Receiver)
	case len(g.Triggers) > 1 && direct == len(g.Triggers) && direct <= l.Copies:
		text := "multicast"
		for _, o := range g.Triggers {
			text += fmt.Sprint(" ", o.Receiver)
		}
		return text
	case len(g.Triggers) == 1 && len(g.Triggers[0].Stack) <= l.Depth:
		return fmt.Sprint("redirect ", g.Triggers[0].Stack)
	}
	return "punt"
}

func done(m *fastpath.Memory, id ident.ID) string {
	a, _ := m.Match(id)
	switch a.Kind {
	case fastpath.Deliver, fastpath.Multicast:
		text := a.Kind.String()
		for _, to := range a.To {
			text += fmt.Sprint(" ", to)
		}
		return text
	case fastpath.Redirect:
		return fmt.Sprint("redirect ", a.Stack)
	default:
		return "punt"
	}
}

// faulty is a fast path that refuses some calls, and looks at the filters after each.
type faulty struct {
	*fastpath.Memory
	refuses func() bool
	after   func()
}

var errRefused = errors.New("refused")

func (f faulty) do(call func() error) error {
	if f.refuses() {
		return errRefused
	}
	err := call()
	f.after()
	return err
}

func (f faulty) Set(filter fastpath.Filter) error {
	return f.do(func() error { return f.Memory.Set(filter) })
}
func (f faulty) Delete(p ident.Prefix) error { return f.do(func() error { return f.Memory.Delete(p) }) }
func (f faulty) SetRoutes(r chord.Routes) error {
	return f.do(func() error { return f.Memory.SetRoutes(r) })
}
func (f faulty) Replace(r chord.Routes, filters []fastpath.Filter) error {
	return f.do(func() error { return f.Memory.Replace(r, filters) })
}

// Triggers come and go. The fast path does with every identifier what the triggers say; within the change of one
// trigger it does what they said before, what they say after, or punts. That holds if the fast path has too little
// room, or refuses calls; when it does so no more, nothing is punted that need not be.
func TestMirrorDoesWhatTheTableSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := fastpath.Limits{Copies: rapid.SampledFrom([]int{0, 2}).Draw(t, "copies"),
			Depth: rapid.SampledFrom([]int{0, 1}).Draw(t, "depth")}
		memory := &fastpath.Memory{Can: l, Capacity: rapid.SampledFrom([]int{0, 0, 3, 8}).Draw(t, "capacity")}
		table := trigger.New(trigger.Limits{})
		probes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ident.ID {
			id := drawID(t)
			copy(id[17:], rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "suffix"))
			return id
		}), 20, 20).Draw(t, "probes")
		var before []string
		say := func() (said []string) {
			for _, id := range probes {
				said = append(said, wanted(table.Match(id), l))
			}
			return said
		}
		var mirror *fastpath.Mirror
		now := say()
		faults := 0
		path := faulty{Memory: memory, refuses: func() bool { faults--; return faults == 0 },
			after: func() {
				for i, id := range probes {
					got := done(memory, id)
					// Once broken, the filters do not matter: the routes have no key.
					if got != "punt" && got != before[i] && got != now[i] && !mirror.Broken() {
						t.Fatalf("%s: %s; before %s, after %s", id, got, before[i], now[i])
					}
				}
			}}
		before = now
		mirror, err := fastpath.NewMirror(path)
		if err != nil {
			t.Fatal(err)
		}
		whole := chord.Routes{Own: chord.OwnAll}
		if err := mirror.SetRoutes(whole); err != nil {
			t.Fatal(err)
		}
		change := func(k ident.Key) {
			before, now = now, say()
			faults = rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 3}).Draw(t, "refused call")
			err := mirror.Update(k, table.Bucket(k))
			if err == nil && !mirror.Broken() && mirror.Missing() == 0 {
				before = now
				path.after()
			}
			faults = 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				small := rapid.ByteRange(1, 3)
				receiver := netip.AddrFrom4([4]byte{192, 0, 2, small.Draw(t, "receiver")})
				n := trigger.Trigger{ID: drawID(t), Handle: wire.Handle{small.Draw(t, "handle")},
					Receiver: netip.AddrPortFrom(receiver, 9)}
				if rapid.IntRange(0, 3).Draw(t, "leads to") == 0 {
					n.Stack = rapid.SliceOfN(rapid.Custom(drawID), 1, 2).Draw(t, "stack")
				}
				if err := table.Insert(n); err != nil {
					t.Fatal(err)
				}
				change(n.ID.Key())
			},
			"remove": func(t *rapid.T) {
				for _, k := range table.Keys() {
					g := rapid.SampledFrom(table.Bucket(k)).Draw(t, "group")
					table.Remove(g.ID, rapid.SampledFrom(g.Triggers).Draw(t, "trigger").Handle)
					change(k)
					return
				}
			},
			"retry": func(t *rapid.T) {
				memory.Capacity = 0
				if err := mirror.Retry(table.Bucket); err != nil {
					t.Fatal(err)
				}
				for i, id := range probes {
					if got := done(memory, id); got != now[i] {
						t.Fatalf("%s: %s, want %s", id, got, now[i])
					}
				}
				if mirror.Missing() > 0 || mirror.Broken() {
					t.Fatal("something is still missing")
				}
			},
		})
	})
}

func TestSecondTriggerReplacesTheFirstOnesFilterInOneCall(t *testing.T) {
	calls := 0
	memory := &fastpath.Memory{}
	path := faulty{Memory: memory, refuses: func() bool { calls++; return false }, after: func() {}}
	mirror, err := fastpath.NewMirror(path)
	if err != nil {
		t.Fatal(err)
	}
	table := trigger.New(trigger.Limits{})
	id := ident.FromName("radio")
	want := []string{"deliver 192.0.2.1:9", "punt", "deliver 192.0.2.1:9", "punt"}
	insert := func(handle byte, receiver string) error {
		to := netip.MustParseAddrPort(receiver)
		return table.Insert(trigger.Trigger{ID: id, Handle: wire.Handle{handle}, Receiver: to})
	}
	for i, change := range []func() error{
		func() error { return insert(1, "192.0.2.1:9") },
		func() error { return insert(2, "192.0.2.2:9") },
		func() error { table.Remove(id, wire.Handle{2}); return nil },
		func() error { table.Remove(id, wire.Handle{1}); return nil },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		calls = 0
		if err := mirror.Update(id.Key(), table.Bucket(id.Key())); err != nil || calls != 1 {
			t.Errorf("change %d takes %d calls: %v", i, calls, err)
		}
		if got := done(memory, id); got != want[i] {
			t.Errorf("after change %d: %s, want %s", i, got, want[i])
		}
	}
	if memory.Len() != 0 {
		t.Errorf("%d filters are left", memory.Len())
	}
}

func TestEachIdentifierCostsOneFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := trigger.New(trigger.Limits{})
		ids := rapid.SliceOfDistinct(rapid.Custom(drawID), rapid.ID[ident.ID]).Draw(t, "ids")
		for _, id := range ids {
			n := trigger.Trigger{ID: id, Receiver: netip.MustParseAddrPort("192.0.2.1:9")}
			if err := table.Insert(n); err != nil {
				t.Fatal(err)
			}
		}
		prefixes := make(map[ident.Prefix]bool)
		for _, k := range table.Keys() {
			for _, f := range fastpath.Compile(table.Bucket(k), fastpath.Limits{}) {
				prefixes[f.Prefix] = true
			}
		}
		if len(prefixes) != len(ids) {
			t.Fatalf("%d identifiers have %d filters", len(ids), len(prefixes))
		}
	})
}

func TestProcessPuntsWhatItCannotDo(t *testing.T) {
	id := ident.FromName("a")
	packet := func(change func(p wire.Packet)) []byte {
		p := wire.New(wire.Data, []ident.ID{id, id, id, id, id, id, id}, []byte("x"))
		change(p)
		return p
	}
	m := &fastpath.Memory{}
	if err := m.Replace(chord.Routes{Own: chord.OwnAll}, []fastpath.Filter{{Prefix: ident.PrefixOf(id, 128),
		Action: fastpath.Action{Kind: fastpath.Redirect, Stack: []ident.ID{id, id, id}}}}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"garbage":                   []byte("garbage"),
		"hop limit 1":               packet(func(p wire.Packet) { p.SetHopLimit(1) }),
		"no copies":                 packet(func(p wire.Packet) { p.SetCopies(0) }),
		"an insertion":              wire.Removal{ID: id}.Packet(),
		"a delivery":                packet(func(p wire.Packet) { p.SetType(wire.Delivery) }),
		"a stack that grows to 9":   packet(func(wire.Packet) {}),
		"an identifier of no group": wire.New(wire.Data, []ident.ID{ident.FromName("b")}, nil),
	} {
		sent, punt := m.Process(b)
		if len(sent) > 0 || cmp.Diff(b, punt) != "" {
			t.Errorf("%s: sends %d, punts %x", name, len(sent), punt)
		}
	}
}
