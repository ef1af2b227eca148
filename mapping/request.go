package mapping

import "slices"

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
	// Parts is how many equal parts of the bandwidth may each have a path of their own, as flows have that are
	// spread over paths (ECMP). 0 and 1: it has one path.
	Parts int
}

// Divided is the request with a link for each part of a link that may be divided.
func (r *Request) Divided() Request {
	d := *r
	if !slices.ContainsFunc(r.Links, func(l Link) bool { return l.Parts > 1 }) {
		return d
	}
	d.Links = nil
	for _, l := range r.Links {
		parts := max(l.Parts, 1)
		l.Bandwidth, l.Parts = l.Bandwidth/float64(parts), 0
		d.Links = append(d.Links, slices.Repeat([]Link{l}, parts)...)
	}
	return d
}
