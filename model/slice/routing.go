package slice

import "net/netip"

// Daemon is the routing suite that a router runs, unmodified, from its root file system.
type Daemon string

// The routing suites.
const (
	FRR  Daemon = "frr"
	BIRD Daemon = "bird"
)

// Protocol is a routing protocol that Pergola can configure.
type Protocol string

// The protocols. Static stands for the routes of Routing.Static and nothing else.
const (
	OSPF   Protocol = "ospf" // OSPFv2 (RFC 2328) and, where the node has IPv6 addresses, OSPFv3 (RFC 5340)
	ISIS   Protocol = "isis" // RFC 1195, RFC 5308; FRR alone
	BGP    Protocol = "bgp"  // RFC 4271, RFC 4760
	RIP    Protocol = "rip"  // RFC 2453 and RFC 2080
	Static Protocol = "static"
)

// Routing is the configuration of a router's daemon. With Config, the user's files are used as they are, and the other
// fields are ignored.
type Routing struct {
	Daemon    Daemon     `json:"daemon"`
	Protocols []Protocol `json:"protocols,omitempty"`
	RouterID  netip.Addr `json:"router_id,omitzero"` // an IPv4 address, also where the node has none
	Timers    Timers     `json:"timers,omitzero"`
	ISIS      *ISISNode  `json:"isis,omitempty"`
	BGP       *BGPNode   `json:"bgp,omitempty"`
	Static    []Route    `json:"static,omitempty"`
	// Config holds the user's own configuration, by file name as the daemon's directory has it (frr.conf, daemons,
	// vtysh.conf; bird.conf).
	Config map[string][]byte `json:"config,omitempty"`
}

// Timers of link-state protocols, in seconds. FastHellos asks for sub-second detection where the daemon can.
type Timers struct {
	Hello      int  `json:"hello,omitempty"`
	Dead       int  `json:"dead,omitempty"`
	FastHellos bool `json:"fast_hellos,omitempty"`
}

// ISISNode holds IS-IS parameters of a router.
type ISISNode struct {
	NET   string `json:"net"`   // network entity title, such as 49.0001.0100.0000.0001.00
	Level int    `json:"level"` // 1, 2, or 12 for both
}

// BGPNode holds BGP parameters of a router.
type BGPNode struct {
	AS        uint32         `json:"as"`
	Neighbors []BGPNeighbor  `json:"neighbors,omitempty"`
	Networks  []netip.Prefix `json:"networks,omitempty"` // originated
}

// BGPNeighbor is one session. Interior sessions run between loopbacks.
type BGPNeighbor struct {
	Node         string     `json:"node"` // the neighbour's name, for descriptions
	Address      netip.Addr `json:"address"`
	AS           uint32     `json:"as"`
	Source       netip.Addr `json:"source,omitzero"`         // update source; for interior sessions, the loopback
	Client       bool       `json:"client,omitempty"`        // the neighbour is this reflector's client (RFC 4456)
	NextHopSelf  bool       `json:"next_hop_self,omitempty"` // rewrite the next hop of routes learnt from outside
	PointToPoint bool       `json:"point_to_point,omitempty"`
}

// Speaks reports whether the router runs the protocol under Pergola's configuration.
func (r *Routing) Speaks(p Protocol) bool {
	if r == nil || len(r.Config) > 0 {
		return false
	}
	for _, have := range r.Protocols {
		if have == p {
			return true
		}
	}
	return false
}
