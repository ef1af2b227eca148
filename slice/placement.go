package slice

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
}

// Reschedule says whether a node starts elsewhere when its host is lost. A host that may have lost the cluster ends
// such nodes by itself before the cluster starts them anew, so that there is never more than one of them.
type Reschedule string

// The policies. Empty means RescheduleNever.
const (
	RescheduleNever  Reschedule = "never"
	RescheduleAlways Reschedule = "always"
)

// TunnelKind is an encapsulation.
type TunnelKind string

// The kinds. Empty means EGRE.
const (
	EGRE  TunnelKind = "egre"  // Ethernet over GRE with a key: RFC 2784, RFC 2890, protocol 0x6558
	VXLAN TunnelKind = "vxlan" // RFC 7348
)

// Tunnel says how a link's frames go from host to host.
type Tunnel struct {
	Kind TunnelKind `json:"kind,omitempty"`
	// Key is the GRE key, or the VNI: of this link alone among all of the substrate, 1 to MaxTunnelKey. It is 0 where
	// all ends are on one host.
	Key uint32 `json:"key,omitempty"`
	// DSCP copies the inner packet's DSCP to the outer header (RFC 2983, uniform model); else it is 0 there.
	DSCP bool `json:"dscp,omitempty"`
}

// MaxTunnelKey is the largest key: a VNI has 24 bits.
const MaxTunnelKey = 1<<24 - 1

// Overhead is how many bytes shorter an inner packet must be than what the path between the hosts carries: outer IP header,
// GRE with key (8) or UDP and VXLAN (16), inner Ethernet header.
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
