package trigger_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

var start = time.Unix(1e9, 0)

// drawID gives identifiers with few keys, whose suffixes have long prefixes in common.
func drawID(t *rapid.T) ident.ID {
	id := ident.ID{0: rapid.SampledFrom([]byte{1, 2}).Draw(t, "key")}
	id[16] = rapid.SampledFrom([]byte{0, 0x80, 0xc0, 0xc1}).Draw(t, "suffix begins")
	id[31] = rapid.SampledFrom([]byte{0, 1, 2}).Draw(t, "suffix ends")
	return id
}

func drawTrigger(t *rapid.T) trigger.Trigger {
	receiver := netip.AddrFrom4([4]byte{192, 0, 2, rapid.ByteRange(1, 3).Draw(t, "receiver")})
	n := trigger.Trigger{ID: drawID(t), Handle: wire.Handle{rapid.ByteRange(1, 4).Draw(t, "handle")},
		Receiver: netip.AddrPortFrom(receiver, 9),
		Expires:  start.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "lifetime")) * time.Second)}
	if rapid.IntRange(0, 3).Draw(t, "leads to") == 0 {
		n.Stack = []ident.ID{drawID(t)}
	}
	return n
}

// plain is the table as a list, searched from end to end.
type plain struct {
	limits   trigger.Limits
	triggers []trigger.Trigger
}

func (p *plain) insert(n trigger.Trigger) error {
	replaces := func(o trigger.Trigger) bool {
		return o.ID == n.ID && (o.Handle == n.Handle || o.Direct() && n.Direct() && o.Receiver == n.Receiver)
	}
	var left []trigger.Trigger
	for _, o := range p.triggers {
		if !replaces(o) {
			left = append(left, o)
		}
	}
	ids := make(map[ident.ID]int)
	receivers := make(map[netip.Addr]int)
	for _, o := range p.triggers {
		receivers[o.Receiver.Addr()]++
		if o.ID.Key() == n.ID.Key() {
			ids[o.ID]++
		}
	}
	grows := len(left) == len(p.triggers)
	// The one that makes room is that with the same handle, if there is one.
	var goes *trigger.Trigger
	for i, o := range p.triggers {
		if replaces(o) && (goes == nil || o.Handle == n.Handle) {
			goes = &p.triggers[i]
		}
	}
	switch {
	case grows && len(p.triggers) >= p.limits.Triggers:
		return trigger.ErrFull
	case (goes == nil || goes.Receiver != n.Receiver) && receivers[n.Receiver.Addr()] >= p.limits.PerReceiver:
		return trigger.ErrReceiverFull
	case grows && ids[n.ID] == 0 && len(ids) >= p.limits.Bucket, grows && ids[n.ID] >= p.limits.Group:
		return trigger.ErrGroupFull
	}
	p.triggers = append(left, n)
	return nil
}

func (p *plain) remove(id ident.ID, h wire.Handle) {
	p.triggers = slices.DeleteFunc(p.triggers, func(o trigger.Trigger) bool { return o.ID == id && o.Handle == h })
}

// match gives the handles of the triggers that an identifier matches, sorted.
func (p *plain) match(id ident.ID) []wire.Handle {
	var best *ident.ID
	for i, o := range p.triggers {
		if ident.Common(o.ID, id) < ident.Exact {
			continue
		}
		if best != nil {
			longer := ident.Common(o.ID, id) - ident.Common(*best, id)
			if longer < 0 || longer == 0 && o.ID.Compare(*best) >= 0 {
				continue
			}
		}
		best = &p.triggers[i].ID
	}
	var handles []wire.Handle
	for _, o := range p.triggers {
		if best != nil && o.ID == *best {
			handles = append(handles, o.Handle)
		}
	}
	return sorted(handles)
}

func sorted(handles []wire.Handle) []wire.Handle {
	slices.SortFunc(handles, func(a, b wire.Handle) int { return slices.Compare(a[:], b[:]) })
	return handles
}

func handlesOf(g trigger.Group) []wire.Handle {
	var handles []wire.Handle
	for _, o := range g.Triggers {
		handles = append(handles, o.Handle)
	}
	return sorted(handles)
}

func TestTableDoesWhatAListDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := trigger.Limits{
			Triggers:    rapid.IntRange(4, 30).Draw(t, "triggers"),
			Group:       rapid.IntRange(1, 4).Draw(t, "group"),
			Bucket:      rapid.IntRange(2, 20).Draw(t, "bucket"),
			PerReceiver: rapid.IntRange(2, 12).Draw(t, "per receiver")}
		table, list := trigger.New(limits), &plain{limits: limits}
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				n := drawTrigger(t)
				n.Expires = now.Add(n.Expires.Sub(start))
				got, want := table.Insert(n), list.insert(n)
				if !errors.Is(got, want) {
					t.Fatalf("inserting %+v: %v, want %v", n, got, want)
				}
			},
			"remove": func(t *rapid.T) {
				n := drawTrigger(t)
				before := len(list.triggers)
				list.remove(n.ID, n.Handle)
				if found, ok := table.Find(n.ID, n.Handle); ok != (len(list.triggers) < before) ||
					ok && (found.ID != n.ID || found.Handle != n.Handle) {
					t.Fatalf("finding %s %x says %t", n.ID, n.Handle, ok)
				}
				if _, ok := table.Remove(n.ID, n.Handle); ok != (len(list.triggers) < before) {
					t.Fatalf("removing says %t", ok)
				}
			},
			"expire": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
				for {
					gone, ok := table.Expire(now)
					if !ok {
						break
					}
					list.remove(gone.ID, gone.Handle)
				}
				for _, o := range list.triggers {
					if !o.Expires.After(now) {
						t.Fatalf("%+v has not expired at %s", o, now)
					}
				}
			},
			"": func(t *rapid.T) {
				if table.Len() != len(list.triggers) {
					t.Fatalf("the table has %d triggers, want %d", table.Len(), len(list.triggers))
				}
				id := drawID(t)
				if rapid.Bool().Draw(t, "anywhere") {
					copy(id[16:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "suffix"))
				}
				got := handlesOf(table.Match(id))
				if d := cmp.Diff(list.match(id), got, cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("%s matches other triggers (-want +got):\n%s", id, d)
				}
				count := 0
				for _, k := range table.Keys() {
					for _, g := range table.Bucket(k) {
						count += len(g.Triggers)
					}
				}
				if count != table.Len() {
					t.Fatalf("the buckets have %d triggers, the table %d", count, table.Len())
				}
			},
		})
	})
}

func TestReceiverThatMovesKeepsOneTrigger(t *testing.T) {
	table := trigger.New(trigger.Limits{})
	id := ident.FromName("camera")
	home := trigger.Trigger{ID: id, Receiver: netip.MustParseAddrPort("192.0.2.1:9"), Expires: start}
	away := home
	away.Receiver = netip.MustParseAddrPort("198.51.100.1:9")
	for _, n := range []trigger.Trigger{home, away} {
		if err := table.Insert(n); err != nil {
			t.Fatal(err)
		}
	}
	if g := table.Match(id); len(g.Triggers) != 1 || g.Triggers[0].Receiver != away.Receiver {
		t.Errorf("after the move, packets go to %+v", g.Triggers)
	}
}

func TestReceiverThatMovesToWhereItsOldSelfIsGetsPacketsOnce(t *testing.T) {
	table := trigger.New(trigger.Limits{})
	id := ident.FromName("camera")
	for i, n := range []struct {
		handle   byte
		receiver string
		want     int
	}{{1, "192.0.2.1:9", 1}, {2, "192.0.2.2:9", 2}, {1, "192.0.2.2:9", 1}} {
		receiver := netip.MustParseAddrPort(n.receiver)
		err := table.Insert(trigger.Trigger{ID: id, Handle: wire.Handle{n.handle}, Receiver: receiver})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(table.Match(id).Triggers); got != n.want || table.Len() != n.want {
			t.Errorf("after insertion %d there are %d triggers, want %d", i, got, n.want)
		}
	}
}

func TestReceiverWithANewHandleGetsPacketsOnce(t *testing.T) {
	table := trigger.New(trigger.Limits{})
	n := trigger.Trigger{ID: ident.FromName("camera"), Receiver: netip.MustParseAddrPort("192.0.2.1:9")}
	for h := range byte(3) {
		n.Handle = wire.Handle{h}
		if err := table.Insert(n); err != nil {
			t.Fatal(err)
		}
	}
	if g := table.Match(n.ID); len(g.Triggers) != 1 || g.Triggers[0].Handle != (wire.Handle{2}) {
		t.Errorf("packets go to %+v", g.Triggers)
	}
}

func TestRefreshedTriggerLivesOn(t *testing.T) {
	table := trigger.New(trigger.Limits{})
	n := trigger.Trigger{ID: ident.FromName("camera"), Receiver: netip.MustParseAddrPort("192.0.2.1:9"),
		Expires: start.Add(time.Second)}
	for range 2 {
		if err := table.Insert(n); err != nil {
			t.Fatal(err)
		}
		n.Expires = start.Add(time.Minute)
	}
	if _, ok := table.Expire(start.Add(30 * time.Second)); ok || table.Len() != 1 {
		t.Error("it expired at its first time")
	}
	if due, ok := table.Due(); !ok || !due.Equal(n.Expires) {
		t.Errorf("it is due at %s, want %s", due, n.Expires)
	}
	if _, ok := table.Expire(n.Expires); !ok || table.Len() != 0 {
		t.Error("it did not expire")
	}
	if _, ok := table.Due(); ok {
		t.Error("an empty table has something due")
	}
}

// The longest prefix wins: the rest of an identifier says which member of a group is wanted.
func TestAnycastChoosesTheLongestCommonPrefix(t *testing.T) {
	table := trigger.New(trigger.Limits{})
	member := func(suffix ...byte) ident.ID {
		id := ident.FromName("printers")
		clear(id[16:])
		copy(id[16:], suffix)
		return id
	}
	for i, suffix := range []byte{0x00, 0x40, 0x80} {
		n := trigger.Trigger{ID: member(suffix), Handle: wire.Handle{byte(i)}, Expires: start,
			Receiver: netip.MustParseAddrPort("192.0.2.1:9")}
		if err := table.Insert(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ asks, gets byte }{
		{0x00, 0x00}, {0x3f, 0x00}, {0x41, 0x40}, {0x7f, 0x40}, {0x81, 0x80}, {0xff, 0x80},
	} {
		if g := table.Match(member(c.asks, 0xff)); g.ID != member(c.gets) {
			t.Errorf("%x goes to %x, want %x", c.asks, g.ID[16], c.gets)
		}
	}
	if g := table.Match(ident.FromName("scanners")); len(g.Triggers) != 0 {
		t.Errorf("another key goes to %s", g.ID)
	}
}

func BenchmarkInsertAndMatch(b *testing.B) {
	table := trigger.New(trigger.Limits{Triggers: 1 << 20, PerReceiver: 1 << 20})
	ids := make([]ident.ID, 50000)
	for i := range ids {
		ids[i] = ident.FromName(time.Duration(i).String())
	}
	for i := 0; b.Loop(); i++ {
		n := trigger.Trigger{ID: ids[i%len(ids)], Receiver: netip.MustParseAddrPort("192.0.2.1:9"),
			Expires: start.Add(time.Duration(i))}
		if err := table.Insert(n); err != nil {
			b.Fatal(err)
		}
		if len(table.Match(n.ID).Triggers) != 1 {
			b.Fatal("no match")
		}
	}
}
