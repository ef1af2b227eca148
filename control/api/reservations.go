package api

import "github.com/pergola-net/pergola/model/unit"

// HostReservations is what nodes have reserved of one machine.
type HostReservations struct {
	Host string `json:"host,omitempty"` // empty on a machine that is in no cluster
	// Resources has every kind that the machine has, or that a node has reserved there.
	Resources []Reservation `json:"resources"`
	// Nodes are those that have reserved something, by slice and name.
	Nodes []NodeReservation `json:"nodes"`
}

// Reservation is one kind of resource: cores and fastpath in cores, memory and buffer in bytes, bandwidth in bit/s of
// the card that carries tunnels, the others counted.
type Reservation struct {
	Kind     string  `json:"kind"`
	Capacity float64 `json:"capacity"` // 0 of cores, memory and bandwidth: not known
	Reserved float64 `json:"reserved"`
}

// Bandwidth is the kind of a Reservation of a machine's card: what links need that leave the machine.
const Bandwidth = "bandwidth"

// NodeReservation is what one node has reserved, by kind.
type NodeReservation struct {
	Slice    string             `json:"slice"`
	Node     string             `json:"node"`
	Reserved map[string]float64 `json:"reserved"`
	Ports    []string           `json:"ports,omitempty"`   // of the machine's addresses: tcp/8080; all of them
	Outside  bool               `json:"outside,omitempty"` // it makes connections to outside of all slices
	// Bandwidth is in bit/s of the machine's card, for what the node sends, by interface.
	Bandwidth map[string]uint64 `json:"bandwidth,omitempty"`
	// Claims are the ports, and the interfaces with bandwidth, that the node asked for while it ran.
	Claims []string `json:"claims,omitempty"`
	Bound  []string `json:"bound,omitempty"` // ports that its processes have bound
}

// ReservationRelease is what a user takes back of what a node asked for while it ran: all of it, or nothing.
type ReservationRelease struct {
	Ports      []string `json:"ports,omitempty" doc:"Of the machine's addresses: tcp/8080."`
	Interfaces []string `json:"interfaces,omitempty" doc:"Whose bandwidth is released."`
}

// ReservationChange is what a node asks for while it runs: all of it, or nothing.
type ReservationChange struct {
	Reserve []string `json:"reserve,omitempty"` // ports of the machine's addresses: tcp/8080
	Release []string `json:"release,omitempty"`
	// Bound says that processes of the node bound what it reserves, of the range that the topology gives, and bind
	// what it releases no longer.
	Bound bool `json:"bound,omitempty"`
	// Bandwidth is in bit/s of the machine's card, by interface, in place of what the topology says; 0: that again.
	Bandwidth map[string]unit.Rate `json:"bandwidth,omitempty"`
}
