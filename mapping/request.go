package mapping

// Request is a virtual network, as far as its mapping depends on it.
type Request struct {
	Nodes []Node
	Links []Link
	Apart [][]string // groups of nodes of which no two may be on one host
	// PerHost and PerSite are how many of the nodes may be on one host and at one site; 0: any number.
	PerHost, PerSite int
}

// Node is one node and what it asks of its host.
type Node struct {
	Name     string
	Demand   map[string]float64 // what it holds of its host's capacities, by name
	Host     string             // the only one it may run on; empty: any
	Kinds    []string           // of which the host must be; none: any
	Labels   map[string]string  // the host must have all of these
	Features []string           // the host must have all of these
	Near     *Near
}

// Near is a circle in which a node's host must be.
type Near struct {
	Position
	Kilometres float64
}

// Link joins two nodes. A LAN is a node without a demand, to which others are joined.
type Link struct {
	A, B      string
	Bandwidth float64 // bit/s in each direction, of each trunk on its path
	Delay     float64 // in seconds, that its path may have; 0: any
}
