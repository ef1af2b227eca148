package te

import (
	"fmt"
	"math/bits"
)

// Thresholds say when a change of what a link has unreserved is worth telling all routers: if what is reserved, in
// percent of the reservable bandwidth, passes one of them. What is not told is wrong by less than the distance between
// two thresholds. The owner also tells it from time to time, and at once when an LSP was refused because of it.
type Thresholds struct {
	Down []uint8 // for bandwidth that becomes less: the reserved percentage reaches one
	Up   []uint8 // for bandwidth that becomes more: the reserved percentage falls below one
}

// DefaultThresholds lie close together where a link is nearly full, because a wrong value there costs refused LSPs.
// They are those of other routers.
func DefaultThresholds() Thresholds {
	list := []uint8{15, 30, 45, 60, 75, 80, 85, 90, 95, 96, 97, 98, 99, 100}
	return Thresholds{Down: list, Up: list}
}

// Validate tells whether all are percentages.
func (t Thresholds) Validate() error {
	for _, list := range [][]uint8{t.Down, t.Up} {
		for _, p := range list {
			if p < 1 || p > 100 {
				return fmt.Errorf("flooding threshold of %d %%: 1 to 100", p)
			}
		}
	}
	return nil
}

// Flood tells whether the difference between what routers were told and what there is now, of one link, is to be told.
func (t Thresholds) Flood(reservable uint64, told, now [Priorities]uint64) bool {
	for p := range now {
		before, after := reservable-min(told[p], reservable), reservable-min(now[p], reservable)
		if passed(t.Down, after, reservable) > passed(t.Down, before, reservable) ||
			passed(t.Up, after, reservable) < passed(t.Up, before, reservable) {
			return true
		}
	}
	return false
}

// passed is how many thresholds a part of a whole reaches.
func passed(percents []uint8, part, whole uint64) (n int) {
	hi, lo := bits.Mul64(part, 100)
	for _, p := range percents {
		if h, l := bits.Mul64(whole, uint64(p)); hi > h || hi == h && lo >= l {
			n++
		}
	}
	return n
}
