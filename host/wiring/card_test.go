package wiring

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func TestACardHasAClassForEachReservationAndOneForTheRest(t *testing.T) {
	c := Card{Rate: 1e9, Slices: map[uint16]unit.Rate{slice.MaxID: 100e6, 3: 300e6}}
	tree := c.Tree()
	rates := map[uint16]uint64{}
	for _, class := range tree.Classes {
		rates[class.Minor] = class.Rate * 8
		if class.Ceil*8 != 1e9 {
			t.Errorf("class %x gets %d bit/s at most", class.Minor, class.Ceil*8)
		}
		if class.IsInner() != (class.Minor == RootClass) {
			t.Errorf("class %x: packets wait in it %v", class.Minor, !class.IsInner())
		}
	}
	want := map[uint16]uint64{RootClass: 1e9, 0x10: 600e6, 0x13: 300e6, 0x10 + slice.MaxID: 100e6}
	if diff := cmp.Diff(want, rates); diff != "" || tree.Default != 0x10 {
		t.Errorf("rates by class, of which %x is the default: -want +got\n%s", tree.Default, diff)
	}
	if tree := (Card{Rate: 1e9}).Tree(); !tree.IsZero() {
		t.Errorf("without reservations: %+v", tree)
	}
	elsewhere := Card{Rate: 1e9, Outside: 200e6}.Tree()
	if len(elsewhere.Classes) != 2 || elsewhere.Classes[1].Rate*8 != 800e6 || elsewhere.Classes[1].Ceil*8 != 800e6 {
		t.Errorf("of what leaves elsewhere, tunnels have something: %+v", elsewhere)
	}
	more := Card{Rate: 1e9, Slices: map[uint16]unit.Rate{slice.MaxID: 100e6, 3: 200e6, 5: 1e6}}.Tree()
	if !tree.Alike(more) {
		t.Error("other reservations do not leave what waits where it is")
	}
}

// The card is not promised twice, also where it was replaced by a slower one.
func TestTheRatesOfACardsClassesAreNeverMoreThanTheCard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(uint64(unit.MinRate), uint64(unit.MaxRate))
		c := Card{Rate: unit.Rate(rate.Draw(t, "card")), Slices: map[uint16]unit.Rate{}}
		ids := rapid.SliceOfNDistinct(rapid.Uint16Range(1, slice.MaxID), 1, 20, rapid.ID)
		for _, id := range ids.Draw(t, "slices") {
			c.Slices[id] = unit.Rate(rate.Draw(t, "reserved"))
		}
		c.Outside = min(unit.Rate(rate.Draw(t, "outside")), c.Rate)
		tree, sum := c.Tree(), c.Outside.BytesPerSecond()
		for _, class := range tree.Classes[1:] {
			sum += class.Rate
		}
		least := uint64(len(tree.Classes)) // a class has a byte a second
		if have := c.Rate.BytesPerSecond(); sum > have+least {
			t.Errorf("classes and the outside have %d byte/s of %d", sum, have)
		}
	})
}
