// Package trigger has the table of a server's triggers. It does no I/O and knows no clock: time is a value.
//
// A packet's identifier matches the triggers of one identifier: of those whose first 128 bits are equal to the
// packet's, the one that has the longest prefix in common with it; if several have, the smallest. All triggers of that
// identifier match, so several are multicast, and triggers of different identifiers that share the key are anycast.
package trigger

import (
	"cmp"
	"container/heap"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// Trigger says where packets with an identifier go.
type Trigger struct {
	ID       ident.ID
	Handle   wire.Handle
	Receiver netip.AddrPort // who keeps the trigger alive; gets the packets, if there is no stack
	Stack    []ident.ID     // identifiers that take the place of ID in packets
	Sequence uint64         // as in wire.Trigger; the table does not look at it
	Expires  time.Time

	place int // in the table's heap
}

// Direct reports whether packets go to the receiver, rather than on to a stack.
func (t *Trigger) Direct() bool { return len(t.Stack) == 0 }

// Group is all triggers of one identifier. They are in the order in which they were inserted.
type Group struct {
	ID       ident.ID
	Triggers []*Trigger
}

// Limits bound a table. 0 stands for the default.
type Limits struct {
	Triggers    int // in the table; default 65536
	Group       int // of one identifier: copies that one packet can become here; default 64
	Bucket      int // identifiers with one key; default 1024
	PerReceiver int // of one receiver's address, whatever the port; default 4096
}

func (l Limits) withDefaults() Limits {
	return Limits{Triggers: cmp.Or(l.Triggers, 65536), Group: cmp.Or(l.Group, 64), Bucket: cmp.Or(l.Bucket, 1024),
		PerReceiver: cmp.Or(l.PerReceiver, 4096)}
}

// Why Insert refuses a trigger.
var (
	ErrFull         = errors.New("the table has as many triggers as it may have")
	ErrGroupFull    = errors.New("the identifier, or its key, has as many triggers as it may have")
	ErrReceiverFull = errors.New("the receiver has as many triggers as it may have")
)

// Table holds triggers. It is not safe for concurrent use.
//
// Invariants: no two triggers have the same identifier and handle; no two direct ones have the same identifier and
// receiver. Groups are in the order of their identifiers, and none is empty.
type Table struct {
	limits    Limits
	buckets   map[ident.Key][]Group
	receivers map[netip.Addr]int
	expiry    expiry
}

// New gives an empty table.
func New(l Limits) *Table {
	return &Table{limits: l.withDefaults(),
		buckets: make(map[ident.Key][]Group), receivers: make(map[netip.Addr]int)}
}

// Len gives the number of triggers.
func (t *Table) Len() int { return len(t.expiry) }

// Insert stores a trigger, or renews it. It takes the place of a trigger with the same identifier and handle, as when a
// receiver has moved; and of a direct one with the same identifier and receiver, as when a receiver was started anew
// and does not know its old handle. In both cases there is no moment at which none or both match.
func (t *Table) Insert(n Trigger) error {
	n.Stack = slices.Clone(n.Stack)
	bucket := t.buckets[n.ID.Key()]
	at, found := find(bucket, n.ID)
	if !found {
		if err := t.room(&n, nil); err != nil {
			return err
		}
		if len(bucket) >= t.limits.Bucket {
			return ErrGroupFull
		}
		e := t.add(&n)
		t.buckets[n.ID.Key()] = slices.Insert(bucket, at, Group{ID: n.ID, Triggers: []*Trigger{e}})
		return nil
	}
	group := &bucket[at]
	old := slices.IndexFunc(group.Triggers, func(o *Trigger) bool { return o.Handle == n.Handle })
	same := slices.IndexFunc(group.Triggers, func(o *Trigger) bool {
		return o.Handle != n.Handle && o.Direct() && n.Direct() && o.Receiver == n.Receiver
	})
	if old < 0 {
		old, same = same, -1
	}
	if old < 0 {
		if err := t.room(&n, nil); err != nil {
			return err
		}
		if len(group.Triggers) >= t.limits.Group {
			return ErrGroupFull
		}
		group.Triggers = append(group.Triggers, t.add(&n))
		return nil
	}
	if err := t.room(&n, group.Triggers[old]); err != nil {
		return err
	}
	t.drop(group.Triggers[old])
	group.Triggers[old] = t.add(&n)
	if same >= 0 {
		t.drop(group.Triggers[same])
		group.Triggers = slices.Delete(group.Triggers, same, same+1)
	}
	return nil
}

// room says whether a trigger may be added, if another one goes for it.
func (t *Table) room(n, goes *Trigger) error {
	if goes == nil && t.Len() >= t.limits.Triggers {
		return ErrFull
	}
	receiver := n.Receiver.Addr()
	if (goes == nil || goes.Receiver.Addr() != receiver) && t.receivers[receiver] >= t.limits.PerReceiver {
		return ErrReceiverFull
	}
	return nil
}

func (t *Table) add(n *Trigger) *Trigger {
	t.receivers[n.Receiver.Addr()]++
	heap.Push(&t.expiry, n)
	return n
}

func (t *Table) drop(o *Trigger) {
	if t.receivers[o.Receiver.Addr()]--; t.receivers[o.Receiver.Addr()] == 0 {
		delete(t.receivers, o.Receiver.Addr())
	}
	heap.Remove(&t.expiry, o.place)
}

// Find gives the trigger with an identifier and a handle. The caller does not change it.
func (t *Table) Find(id ident.ID, h wire.Handle) (found *Trigger, ok bool) {
	bucket := t.buckets[id.Key()]
	if at, is := find(bucket, id); is {
		for _, o := range bucket[at].Triggers {
			if o.Handle == h {
				return o, true
			}
		}
	}
	return nil, false
}

// Remove takes a trigger out, and returns it.
func (t *Table) Remove(id ident.ID, h wire.Handle) (removed *Trigger, ok bool) {
	bucket := t.buckets[id.Key()]
	at, found := find(bucket, id)
	if !found {
		return nil, false
	}
	group := &bucket[at]
	i := slices.IndexFunc(group.Triggers, func(o *Trigger) bool { return o.Handle == h })
	if i < 0 {
		return nil, false
	}
	removed = group.Triggers[i]
	t.drop(removed)
	group.Triggers = slices.Delete(group.Triggers, i, i+1)
	if len(group.Triggers) == 0 {
		bucket = slices.Delete(bucket, at, at+1)
	}
	if t.buckets[id.Key()] = bucket; len(bucket) == 0 {
		delete(t.buckets, id.Key())
	}
	return removed, true
}

// Expire takes out one trigger whose time is over at now; ok is false if there is none.
func (t *Table) Expire(now time.Time) (removed *Trigger, ok bool) {
	if len(t.expiry) == 0 || now.Before(t.expiry[0].Expires) {
		return nil, false
	}
	return t.Remove(t.expiry[0].ID, t.expiry[0].Handle)
}

// Due gives the time at which the next trigger expires; ok is false if the table is empty.
func (t *Table) Due() (at time.Time, ok bool) {
	if len(t.expiry) == 0 {
		return time.Time{}, false
	}
	return t.expiry[0].Expires, true
}

// Match gives the triggers that a packet's identifier matches; the group is empty if there are none. The caller does
// not change it.
func (t *Table) Match(id ident.ID) Group {
	bucket := t.buckets[id.Key()]
	if len(bucket) == 0 {
		return Group{}
	}
	// The longest common prefix is with a neighbour in the order of identifiers.
	at, found := find(bucket, id)
	if found {
		return bucket[at]
	}
	longest := 0
	for _, neighbour := range bucket[max(at-1, 0):min(at+1, len(bucket))] {
		longest = max(longest, ident.Common(neighbour.ID, id))
	}
	at, _ = find(bucket, ident.PrefixOf(id, longest).ID)
	return bucket[at]
}

// Bucket gives all groups that have a key, in the order of their identifiers. The caller does not change them.
func (t *Table) Bucket(k ident.Key) []Group { return t.buckets[k] }

// Keys gives the keys that have triggers, in order.
func (t *Table) Keys() []ident.Key {
	keys := make([]ident.Key, 0, len(t.buckets))
	for k := range t.buckets {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, ident.Key.Compare)
	return keys
}

// find gives the place of an identifier in a bucket, or that at which it would stand.
func find(bucket []Group, id ident.ID) (at int, found bool) {
	return slices.BinarySearchFunc(bucket, id, func(g Group, id ident.ID) int { return g.ID.Compare(id) })
}
