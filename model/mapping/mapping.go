// Package mapping embeds a request into a substrate: it says which node of a virtual network runs on which host
// (virtual network embedding; Lu and Turner, "Efficient Mapping of Virtual Networks onto a Shared Substrate", 2006,
// is where the name comes from).
//
// It is pure: values in, values out, equal values for equal inputs.
package mapping

import "errors"

// Mapping names the host of each node.
type Mapping map[string]string

// Substrate is what there is to map onto.
type Substrate struct {
	Hosts []Host
}

// Host is one machine. Its links' capacity is that of its interface into the substrate (the hose model: Duffield et
// al., SIGCOMM 1999): what lies between two hosts is taken to carry what both their interfaces can.
type Host struct {
	Name     string
	Labels   map[string]string
	Features []string // of its kernel, in words of the caller
	Capacity Resources
	Rate     uint64    // bit/s that the interface carries in each direction; 0: not known, no constraint
	MTU      int       // bytes of a packet that the interface carries; 0: not known, no constraint
	Used     Resources // held by other slices
	UsedRate uint64    // bit/s reserved by other slices' links that leave the host
	Busy     float64   // measured load in cores; decides between hosts that are otherwise equal
	Closed   string    // why it takes no new nodes, such as "is lost"; it keeps what it has. Empty: it is open
	Cordoned bool      // takes no new nodes; keeps what it has
	Draining bool      // takes no new nodes, and gives away what it has, but for nodes that are pinned to it
}

// Resources is what nodes need and hosts have. Zero in a Host's capacity means none; zero in a node's demand means that nothing is promised to it.
type Resources struct {
	Cores  float64
	Memory uint64 // bytes
}

// Request is a virtual network, as far as its mapping depends on it.
type Request struct {
	Nodes    []Node
	Links    []Link
	Strategy Strategy
}

// Node is one node and what it asks of its host.
type Node struct {
	Name   string
	Demand Resources
	Host   string            // the only host it may run on; empty: any
	Labels map[string]string // the host must have all of these
	Needs  []string          // features that the host must have, all of them
}

// Link joins two nodes, or more (a LAN). A link whose nodes share a host costs the substrate nothing; else each host with
// a node on it carries the link's rate.
type Link struct {
	Nodes []string
	Rate  uint64 // bit/s in the busier direction; 0: nothing is promised
	MTU   int    // bytes of a packet that carries it between hosts. It binds nodes that are placed, not those that are kept
}

// Strategy says what is preferred among mappings that are all possible.
type Strategy string

// The strategies. Both keep neighbours together where the choice is free.
const (
	Spread Strategy = "spread" // every host takes a like part
	Pack   Strategy = "pack"   // few hosts
)

// ErrImpossible is wrapped by every *Impossible.
var ErrImpossible = errors.New("no mapping found")
