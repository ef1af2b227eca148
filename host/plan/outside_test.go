package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// outsideRates gives what the nodes of host A may send to the outside, by slice and name, and the card's schedulers.
func outsideRates(t *testing.T, rate unit.Rate, all ...*slice.Slice) (map[string]unit.Rate, wiring.Card) {
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
	rates := map[string]unit.Rate{}
	for _, r := range w.Resources {
		if o, ok := w.Detail(r.Key).(Outside); ok {
			rates[r.Key.Name] = o.Rate
		}
	}
	card, _ := w.Detail(CardKey).(wiring.Card)
	return rates, card
}

func TestNodesHaveTheirRatesToTheOutside(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "h3"}, []string{"h1", "h4"})
	plantest.Spread(s, map[string]string{"h1": "A", "h2": "A", "h3": "A", "h4": "B"})
	s.Node("h1").Outside, s.Node("h1").OutsideRate = true, 20e6
	s.Node("h2").Ports = []slice.HostPort{{Protocol: slice.TCP, Port: 80}}
	s.Node("h4").Outside, s.Node("h4").OutsideReserve = true, 50e6 // at another host
	rates, card := outsideRates(t, 1e9, s)
	want := map[string]unit.Rate{"h1": 20e6, "h2": slice.DefaultOutsideRate}
	if diff := cmp.Diff(want, rates); diff != "" || !card.IsZero() {
		t.Errorf("nobody has reserved anything: %s, card %v", diff, card)
	}
}

// What is reserved of the card, for tunnels and for the outside, and what others may send to the outside, is never more
// than the card.
func TestTheOutsideAndTunnelsShareOneCard(t *testing.T) {
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "h3"})
	plantest.Spread(s, map[string]string{"h1": "A", "h2": "A", "h3": "B"})
	s.Node("h1").Interfaces[1].Reserve = 300e6 // to h3
	s.Node("h1").Outside, s.Node("h1").OutsideReserve, s.Node("h1").OutsideRate = true, 100e6, 500e6
	s.Node("h2").Outside = true
	rates, card := outsideRates(t, 1e9, s)
	// Of the 600 Mbit/s that nobody has reserved, a quarter is for the outside, half of it for each of both nodes.
	want := map[string]unit.Rate{"h1": 175e6, "h2": 75e6}
	if diff := cmp.Diff(want, rates); diff != "" {
		t.Errorf("rates: %s", diff)
	}
	wantCard := wiring.Card{Rate: 1e9, Outside: 250e6, Slices: map[uint16]unit.Rate{7: 300e6}}
	if diff := cmp.Diff(wantCard, card); diff != "" {
		t.Errorf("card: %s", diff)
	}
	rates, card = outsideRates(t, 200e6, s) // a slower card than that of admission
	if diff := cmp.Diff(map[string]unit.Rate{"h1": 50e6, "h2": unit.MinPolicedRate}, rates); diff != "" {
		t.Errorf("rates of a slower card: %s", diff)
	}
	if card.Outside != 50e6+unit.MinPolicedRate {
		t.Errorf("a slower card: %v", card)
	}
}
