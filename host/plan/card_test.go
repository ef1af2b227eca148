package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// cardOf gives what is reserved of the card of host A.
func cardOf(t *testing.T, rate unit.Rate, all ...*slice.Slice) map[uint16]unit.Rate {
	t.Helper()
	at := placeOf("A")
	at.Card = rate
	var inputs []Input
	for _, s := range all {
		inputs = append(inputs, Input{Spec: s})
	}
	w, broken := New(at, inputs)
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	if _, err := reconcile.Plan(w.Resources, nil, nil); err != nil {
		t.Fatal(err)
	}
	card, _ := w.Detail(CardKey).(wiring.Card)
	return card.Slices
}

func TestTheCardIsSharedByWhatIsReservedAndLeavesTheHost(t *testing.T) {
	reserve := func(s *slice.Slice, node string, number int, rate unit.Rate) {
		s.Node(node).Interfaces[number-1].Reserve = rate
	}
	first := plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "h3"}, []string{"h1", "h4"})
	plantest.Spread(first, map[string]string{"h1": "A", "h2": "B", "h3": "A", "h4": "C"})
	reserve(first, "h1", 1, 100e6)
	reserve(first, "h1", 2, 200e6) // to h3, which is here
	reserve(first, "h2", 1, 400e6) // at another host
	reserve(first, "h1", 3, 10e6)
	first.Node("h1").Interfaces[2].Claim = 20e6 // in its place
	lan := plantest.Slice(8, []string{"h1", "h2", "h3"}, []string{"h1", "s1"}, []string{"h2", "s1"})
	plantest.Spread(lan, map[string]string{"h1": "A", "h2": "A", "h3": "B"})
	reserve(lan, "h1", 1, 1e6)
	reserve(lan, "h2", 1, 3e6)
	reserve(lan, "h2", 2, 500e6) // the switch is here with all its nodes
	none := plantest.Spread(plantest.Slice(9, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})

	want := map[uint16]unit.Rate{7: 120e6, 8: 4e6}
	if diff := cmp.Diff(want, cardOf(t, 1e9, first, lan, none)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if have := cardOf(t, 1e9, none); have != nil {
		t.Errorf("nobody has reserved anything, but %v", have)
	}
	if have := cardOf(t, 0, first); have != nil {
		t.Errorf("a card of no known rate is divided: %v", have)
	}
	if have := cardOf(t, 1e9); have != nil {
		t.Errorf("without slices: %v", have)
	}
}

// While a node is off, what it has reserved stays its slice's: it can be switched on at any time.
func TestAReservationStaysWhileItsNodeIsOff(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	s.Node("h1").Interfaces[0].Reserve = 5e6
	at := placeOf("A")
	at.Card = 1e9
	off := slice.Overrides{Power: map[string]slice.Power{"h1": slice.PowerOff}}
	w, _ := New(at, []Input{{Spec: s, Overrides: off}})
	if card, _ := w.Detail(CardKey).(wiring.Card); card.Slices[7] != 5e6 {
		t.Errorf("%v", card)
	}
}
