package wire

import (
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// rulesOut are rules as the data path has them.
func rulesOut(rules []wiring.Rule) []datapath.Rule {
	out := make([]datapath.Rule, len(rules))
	for i, r := range rules {
		out[i] = datapath.Rule{Class: wiring.HandleHTB | uint32(r.Class), Match: MatchOut(r.Match)}
	}
	return out
}

// MatchOut is what a rule asks, as the data path has it.
func MatchOut(m slice.Match) datapath.Match {
	out := datapath.Match{
		DSCP: -1, Protocol: uint8(m.Protocol), Source: m.Src, Destination: m.Dst,
		SourcePorts: datapath.PortRange(m.SrcPort), DestinationPorts: datapath.PortRange(m.DstPort),
		AnyPort: datapath.PortRange(m.Port),
	}
	if m.DSCP != nil {
		out.DSCP = *m.DSCP
	}
	return out
}

func rulesIn(rules []datapath.Rule) []wiring.Rule {
	in := make([]wiring.Rule, len(rules))
	for i, r := range rules {
		in[i] = wiring.Rule{Class: uint16(r.Class), Match: slice.Match{
			Protocol: int(r.Protocol), Src: r.Source, Dst: r.Destination,
			SrcPort: slice.Ports(r.SourcePorts), DstPort: slice.Ports(r.DestinationPorts),
			Port: slice.Ports(r.AnyPort),
		}}
		if r.DSCP >= 0 {
			in[i].DSCP = &r.DSCP
		}
	}
	return in
}
