package plan

import (
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// outsidePart is the part of what nobody has reserved of a card that nodes may use for the outside, together.
const outsidePart = 4

// outsideShare is what nodes of this host may send to the outside, which leaves by the same card as tunnels do. The
// zero value is that of a card of which nobody has reserved anything, or whose rate is not known: each node has its
// rate.
type outsideShare struct {
	scale float64   // of what is reserved: less than 1 where the card has become a slower one since
	each  unit.Rate // what each node has beside what it has reserved
	sum   unit.Rate // what all may send; 0: the card is not divided
}

// shareOutside divides a card. What is shaped here is shaped at each node's own device, so what one leaves another one
// cannot use.
func shareOutside(at Place, inputs []Input) (share outsideShare) {
	var nodes []*slice.Node
	var reserved unit.Rate
	for _, one := range inputs {
		if one.Corrupt != nil || at.Card == 0 {
			continue
		}
		for i := range one.Spec.Nodes {
			if n := &one.Spec.Nodes[i]; at.Owns(n) && n.ReachesOutside() {
				nodes = append(nodes, n)
				reserved += n.ReservedOutside()
			}
		}
	}
	if len(nodes) == 0 {
		return share
	}
	for _, one := range inputs {
		if one.Corrupt == nil {
			reserved += NewShare(one.Spec, at).reservedOfCard(one.Spec)
		}
	}
	if reserved == 0 {
		return share
	}
	share.scale = min(1, float64(at.Card)/float64(reserved))
	share.each = (at.Card - min(at.Card, reserved)) / outsidePart / unit.Rate(len(nodes))
	for _, n := range nodes {
		share.sum += share.of(n)
	}
	return share
}

// of is what a node may send where the card is divided.
func (s outsideShare) of(n *slice.Node) unit.Rate {
	reserved := unit.Rate(float64(n.ReservedOutside()) * s.scale)
	return min(n.RateOutside(), max(reserved+s.each, unit.MinPolicedRate))
}

// rateOf is what a node may send to the outside, and get from there.
func (s outsideShare) rateOf(n *slice.Node) unit.Rate {
	if s.scale == 0 {
		return n.RateOutside()
	}
	return s.of(n)
}
