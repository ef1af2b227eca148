package api

// Traffic counts frames, and their bytes with Ethernet headers.
type Traffic struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

// SliceTraffic is the traffic of the interfaces of a slice's nodes.
type SliceTraffic struct {
	Interfaces []InterfaceTraffic `json:"interfaces"` // in the order of their names
	// Tunnels are those to other hosts, as each of both counts them.
	Tunnels []TunnelTraffic `json:"tunnels,omitempty"`
	// Punts counts the frames that the fast path handed to routers' kernels, by node and reason.
	Punts map[string]map[string]uint64 `json:"punts"`
	// ProgramTime is the processor time of the slice's packet programs, of each host that has some.
	ProgramTime []ProgramTime `json:"program_time,omitempty"`
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// ProgramTime is the processor time that all packet programs of a slice took on a host.
type ProgramTime struct {
	Host     string  `json:"host,omitempty"`
	Reserved float64 `json:"reserved"` // cores
	Seconds  float64 `json:"seconds"`  // since the first program was there; measured at one frame in 16
	Metered  uint64  `json:"metered"`  // frames dropped because there was no time left
}

// InterfaceTraffic is the traffic of an interface of a node. A GSO super-frame counts as one frame of its own length.
type InterfaceTraffic struct {
	Node      string  `json:"node"`
	Interface string  `json:"interface"`
	Host      string  `json:"host,omitempty"` // that the node runs on; empty where the server is in no cluster
	Received  Traffic `json:"received"`       // by the node, walked frames included
	Sent      Traffic `json:"sent"`
	// WalkedIn and WalkedOut are the parts of Received and Sent that passed by the node's kernel: `ip -s link` in
	// the node does not show them.
	WalkedIn  Traffic `json:"walked_in"`
	WalkedOut Traffic `json:"walked_out"`
	// Dropped counts frames from the node, and those behind a queue that led to it, by reason.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// TunnelTraffic is the traffic of a tunnel, as one of its hosts counts it: frames of the slice, without the tunnel's
// headers.
type TunnelTraffic struct {
	To       string  `json:"to"`   // the interface at the other end, or a switch's or LAN's part: b:eth1, lan at h2
	Port     string  `json:"port"` // the device that stands for it on the host
	Host     string  `json:"host,omitempty"`
	Received Traffic `json:"received"` // out of the tunnel
	Sent     Traffic `json:"sent"`     // to the tunnel, also frames that it did not take
	// Dropped counts frames by reason: received frames that went no further, and for a switch or a LAN those that
	// the tunnel did not take. For a link of two nodes, the latter are counted at the interface that sent them.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// UnderlayTraffic counts packets of a host's tunnels, of all slices, since its data path was made.
type UnderlayTraffic struct {
	Received   uint64            `json:"received"`          // that carried frames
	ByLineCard uint64            `json:"by_line_card"`      // those forwarded in XDP alone, or to a packet program
	Sent       uint64            `json:"sent"`              // that carry frames
	Dropped    map[string]uint64 `json:"dropped,omitempty"` // packets of no known tunnel, by reason
}
