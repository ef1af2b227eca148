package plan

import (
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// addCard adds the schedulers of this host's card, if a slice has reserved some of it. A card whose rate is not known
// cannot be divided.
func (w *Wanted) addCard(at Place, inputs []Input) {
	c := wiring.Card{Rate: at.Card, Slices: map[uint16]unit.Rate{}}
	if len(at.Peers) > 0 { // else there are no tunnels that could take what is reserved for the outside
		c.Outside = w.outside.sum
	}
	for _, one := range inputs {
		s := w.shares[one.Spec.ID]
		if s == nil || at.Card == 0 {
			continue
		}
		if reserved := s.reservedOfCard(one.Spec); reserved != 0 {
			c.Slices[one.Spec.ID] = reserved
		}
	}
	if c.IsZero() {
		return
	}
	w.add(reconcile.Resource{
		Key: CardKey, Digest: c.Tree().Digest(), Needs: []reconcile.Key{HostNetKey}, Amend: true,
		Falls: reconcile.FallsWithAny,
	}, c)
}

// reservedOfCard is what a slice's nodes here have reserved of the card for what they send to other hosts, as admission
// counts it (mapping.Link): each on its own, also if several are on one LAN.
func (y *Share) reservedOfCard(s *slice.Slice) (sum unit.Rate) {
	for _, segment := range s.Segments() {
		var reserved unit.Rate
		leaves := false
		for _, l := range segment.Links {
			for _, e := range l.Ends {
				n := y.nodes[e.Node]
				switch i := n.Interface(e.Interface); {
				case n.Kind == slice.Switch:
				case !y.Owns(n):
					leaves = true
				case i != nil:
					reserved += i.Reserved()
				}
			}
		}
		if leaves {
			sum += reserved
		}
	}
	return sum
}
