package wiring

import (
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Card is the machine's network card as slices share it: all that leaves the machine for other machines waits at the
// inner end of the uplink, where each slice that has reserved some of the card has a class. What it leaves, and what
// no reservation is of, others may take, up to the card's rate. The zero Card is one of which nobody has reserved
// anything: nothing waits.
type Card struct {
	Rate   unit.Rate            // of the card
	Slices map[uint16]unit.Rate // what slices have reserved, by ID; outer headers count
	// Outside is what leaves by the card and not by the uplink, for it is shaped elsewhere: what slivers send to
	// the outside.
	Outside unit.Rate
}

// IsZero reports whether nobody has reserved anything.
func (c Card) IsZero() bool { return len(c.Slices) == 0 && c.Outside == 0 }

// largest is the bytes of the longest super-frame.
const largest = 65535

// Tree is the qdiscs of the uplink's inner end:
//
//	htb 1:           class 1:1 has the card's rate, but for what leaves elsewhere
//	  class 1:10     what no class has: the rest
//	  class 1:10+n   slice n: what it has reserved
//
// Each may borrow what others leave. Reservations that are more than the card, because it is another one than when they
// were admitted, are all cut in the same proportion.
func (c Card) Tree() Tree {
	if c.IsZero() {
		return Tree{}
	}
	left := c.Rate - min(c.Rate, c.Outside)
	card, sum := left.BytesPerSecond(), uint64(0)
	for _, reserved := range c.Slices {
		sum += reserved.BytesPerSecond()
	}
	whole := classOf(max(left, unit.MinRate), largest)
	t := Tree{Default: FirstClass, Classes: []Class{whole}}
	leaf := func(minor uint16, rate uint64) {
		class := whole
		class.Minor, class.Parent, class.Queue = minor, RootClass, slice.DefaultQueue
		// sch_htb has no class without a rate.
		class.Rate = max(rate, unit.MinRate.BytesPerSecond())
		class.Burst = burst(largest, class.Rate)
		t.Classes = append(t.Classes, class)
	}
	leaf(FirstClass, card-min(sum, card))
	for _, id := range slices.Sorted(maps.Keys(c.Slices)) {
		rate := c.Slices[id].BytesPerSecond()
		if sum > card {
			rate = uint64(float64(rate) * float64(card) / float64(sum))
		}
		leaf(FirstClass+id, rate)
	}
	return t
}
