package slice

import (
	"maps"
	"slices"
)

// Strategy says what is preferred among hosts that could all take a node.
type Strategy string

// The strategies.
const (
	Spread Strategy = "spread"
	Pack   Strategy = "pack"
)

// Placement says which hosts a node may run on, and what becomes of it when its host dies.
type Placement struct {
	Host       string            `json:"host,omitempty"`   // the only one; empty: any
	Labels     map[string]string `json:"labels,omitempty"` // all of which the host must have
	Reschedule Reschedule        `json:"reschedule,omitempty"`
	// Since is the generation from which on Reschedule is as it is, where the node ran on its host before with another
	// one: a host that was lost without having seen that version goes by the older one. 0: from the start.
	Since int64 `json:"since,omitempty"`
}

// Reschedule says whether a node starts elsewhere when its host is lost. A host that may have lost the cluster ends
// such nodes by itself before the cluster starts them anew, so that there is never more than one of them.
type Reschedule string

// The policies. Empty means RescheduleNever.
const (
	RescheduleNever  Reschedule = "never"
	RescheduleAlways Reschedule = "always"
)

// Awaits names a host that may still run the node, though the node was moved away from it; empty: none may, so it can
// be started. reported gives the generation of a host's status of the slice, 0 without one, and whether there is such
// a host in the cluster. A host that a node left reports until the node's record of it goes.
func (n *Node) Awaits(reported func(host string) (generation int64, exists bool)) string {
	for _, host := range slices.Sorted(maps.Keys(n.Left)) {
		if generation, exists := reported(host); exists && generation < n.Left[host] {
			return host
		}
	}
	return ""
}

// TunnelKind is an encapsulation.
type TunnelKind string

// The kinds. Empty means EGRE.
const (
	EGRE  TunnelKind = "egre"  // Ethernet over GRE with a key: RFC 2784, RFC 2890, protocol 0x6558
	VXLAN TunnelKind = "vxlan" // RFC 7348
)

// Tunnel says how frames of a link, or of a switch, go from host to host.
type Tunnel struct {
	Kind TunnelKind `json:"kind,omitempty"`
	// Number tells the slice's tunnels apart: 1 to MaxTunnels. It belongs to this link or switch as long as that reaches
	// over several hosts, and is 0 where all is on one.
	Number uint16 `json:"number,omitempty"`
	// DSCP copies the inner packet's DSCP to the outer header (RFC 2983, uniform model); else it is 0 there.
	DSCP bool `json:"dscp,omitempty"`
	// StormControl is how many frames to groups, broadcast and multicast, go into each tunnel of a LAN or a switch in a
	// second; 0: DefaultStormControl.
	StormControl int `json:"storm_control,omitempty"`
}

// DefaultStormControl is more than a thousand nodes of one LAN send in the second in which they all start, and a few
// per cent of what a loop brings about.
const DefaultStormControl = 10_000

// NoStormControl lets all frames in.
const NoStormControl = -1

// StormLimit is how many frames to groups go in in a second; 0: as many as come.
func (t Tunnel) StormLimit() int {
	switch t.StormControl {
	case 0:
		return DefaultStormControl
	case NoStormControl:
		return 0
	}
	return t.StormControl
}

// MaxTunnels bounds the links and switches of one slice that reach over several hosts. MaxID and it share the 24 bits
// of a VNI.
const MaxTunnels = 4095

// MaxTunnelKey is the largest key: a VNI has 24 bits.
const MaxTunnelKey = 1<<24 - 1

// Key is the GRE key, or the VNI, in the slice of an ID: different ones for all tunnels of the substrate, without
// anybody handing them out. It is 0 where there is no tunnel.
func (t Tunnel) Key(id uint16) uint32 {
	if t.Number == 0 {
		return 0
	}
	return uint32(id)<<12 | uint32(t.Number)
}

// Overhead is how many bytes shorter an inner packet must be than what the path between the hosts carries: outer IP
// header, GRE with key (8) or UDP and VXLAN (16), inner Ethernet header.
func (k TunnelKind) Overhead(ipv6 bool) int {
	const ip4, ip6, gre, vxlan, ethernet = 20, 40, 8, 16, 14
	n := ethernet + ip4
	if ipv6 {
		n = ethernet + ip6
	}
	if k == VXLAN {
		return n + vxlan
	}
	return n + gre
}
