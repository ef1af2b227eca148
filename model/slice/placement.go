package slice

import (
	"maps"
	"slices"
)

// Strategy says which of several possible hosts is preferred for a node.
type Strategy string

// The strategies.
const (
	Spread Strategy = "spread"
	Pack   Strategy = "pack"
)

// Placement says which hosts a node may run on, and whether it is rescheduled when its host is lost.
type Placement struct {
	Host       string            `json:"host,omitempty"`   // the only one; empty: any
	Labels     map[string]string `json:"labels,omitempty"` // all of which the host must have
	Reschedule Reschedule        `json:"reschedule,omitempty"`
	// Since is the generation in which Reschedule changed while the node was on its host; 0: it did not change. A
	// host that was lost before it received that generation still applies the older policy.
	Since int64 `json:"since,omitempty"`
}

// Reschedule says whether a node is started on another host when its host is lost. A host that is cut off from the
// cluster ends such nodes by itself before the cluster starts them elsewhere: a node never runs twice.
type Reschedule string

// The policies. Empty means RescheduleNever.
const (
	RescheduleNever  Reschedule = "never"
	RescheduleAlways Reschedule = "always"
)

// Awaits names a host that may still run the node although the node was moved away from it; empty: there is none, and
// the node can be started. reported gives the generation in a host's status of the slice, 0 without a status, and
// whether the cluster has such a host. A host that a node left reports a status until it is removed from Left.
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
	// Number distinguishes the slice's tunnels: 1 to MaxTunnels. It stays with the link or switch while that is on
	// several hosts, and is 0 while it is on one.
	Number uint16 `json:"number,omitempty"`
	// DSCP copies the inner packet's DSCP to the outer header (RFC 2983, uniform model); else it is 0 there.
	DSCP bool `json:"dscp,omitempty"`
	// StormControl limits the broadcast and multicast frames that a LAN or a switch sends into each tunnel: frames
	// a second; 0: DefaultStormControl.
	StormControl int `json:"storm_control,omitempty"`
}

// DefaultStormControl is in frames a second. It is more than a thousand nodes of one LAN send in the second in which
// all of them start, and a few per cent of what a loop causes.
const DefaultStormControl = 10_000

// NoStormControl is the value without a limit.
const NoStormControl = -1

// StormLimit is the limit of StormControl, in frames a second; 0: no limit.
func (t Tunnel) StormLimit() int {
	switch t.StormControl {
	case 0:
		return DefaultStormControl
	case NoStormControl:
		return 0
	}
	return t.StormControl
}

// MaxTunnels bounds the links and switches of one slice that are on several hosts. A VNI has 24 bits: 12 for the slice
// (MaxID), 12 for the tunnel.
const MaxTunnels = 4095

// MaxTunnelKey is the largest key: a VNI has 24 bits.
const MaxTunnelKey = 1<<24 - 1

// Key is the GRE key, or the VNI, in the slice of an ID. It follows from slice and number, so that keys are unique in
// the cluster without an allocator. It is 0 where there is no tunnel.
func (t Tunnel) Key(id uint16) uint32 {
	if t.Number == 0 {
		return 0
	}
	return uint32(id)<<12 | uint32(t.Number)
}

// Overhead is the bytes that a tunnel adds to an inner IP packet: outer IP header, GRE with key (8) or UDP and VXLAN
// (16), inner Ethernet header.
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
