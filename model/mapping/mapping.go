// Package mapping decides which node of a virtual network runs on which host: virtual network embedding (Lu and Turner,
// "Efficient Mapping of Virtual Networks onto a Shared Substrate", 2006).
//
// It is pure: values in, values out, equal outputs for equal inputs.
package mapping

import "errors"

// Mapping names the host of each node.
type Mapping map[string]string

// Substrate is the hosts that nodes can be placed on.
type Substrate struct {
	Hosts []Host
}

// Host is one machine. The paths between hosts are not modelled: a path is assumed to carry what the interfaces at
// both of its ends carry (the hose model: Duffield et al., SIGCOMM 1999).
type Host struct {
	Name     string
	Labels   map[string]string
	Features []string // of its kernel; the caller chooses the words
	Capacity Resources
	Rate     uint64            // bit/s that the interface carries in each direction; 0: not known, no constraint
	MTU      int               // bytes of a packet that the interface carries; 0: not known, no constraint
	Used     Resources         // held by other slices
	UsedRate uint64            // bit/s reserved by other slices' links that leave the host
	Ports    map[string]string // of its addresses, that other slices have: whose they are
	Busy     float64           // measured load in cores; decides between hosts that are equal otherwise
	Closed   string            // why it takes no new nodes, such as "is lost"; its nodes stay. Empty: it takes them
	Cordoned bool              // takes no new nodes; its nodes stay
	Draining bool              // takes no new nodes; its nodes leave, except those that are pinned to it
}

// Request is a virtual network, as far as its mapping depends on it.
type Request struct {
	Nodes    []Node
	Links    []Link
	Together [][]string // nodes that have to be on one host; no node is in two lists
	Strategy Strategy
}

// Node is one node and what it asks of its host.
type Node struct {
	Name   string
	Demand Resources
	Host   string            // the only host it may run on; empty: any
	Labels map[string]string // the host must have all of these
	Needs  []string          // features that the host must have, all of them
	Ports  []string          // of the host's addresses, that no other node may have there
	Rate   uint64            // bit/s that its host's interface carries, wherever its neighbours are
	Barred map[string]string // hosts that do not let it have what it wants of them: why
}

// Link joins two nodes, or more (a LAN). If its nodes are on several hosts, each of these carries what Carries says;
// otherwise no interface carries it.
type Link struct {
	Nodes []string
	Rate  uint64 // bit/s that the fastest of the nodes sends; 0: nothing is reserved
	// Reserved is what nodes have reserved for what they send, in bit/s, by node: each at most Rate.
	Reserved map[string]uint64
	// MTU is the size of the packets that carry it between hosts, in bytes. It constrains nodes that are placed,
	// not those that keep their host.
	MTU int
}

// Carries is the rate of a link that leaves a host on whose nodes so much is reserved of it together, in the busier
// direction: what these have reserved is there for all of them at the same time, and for the fastest of all to be
// received.
func (l *Link) Carries(reserved uint64) uint64 { return max(l.Rate, reserved) }

// Strategy says which of several possible mappings is preferred.
type Strategy string

// The strategies. Both place neighbours on one host where they leave a choice.
const (
	Spread Strategy = "spread" // all hosts, in proportion to their cores
	Pack   Strategy = "pack"   // few hosts
)

// ErrImpossible is wrapped by every *Impossible.
var ErrImpossible = errors.New("no mapping found")
