package mapping

// Substrate is the hosts that nodes can be placed on, and the network between them.
type Substrate struct {
	Hosts   []Host
	Routers []string // which join trunks and take no nodes
	Trunks  []Trunk
}

// Host is one machine.
type Host struct {
	Name     string
	Site     string // where it is, for a request with a limit of nodes at a site; empty: a site of its own
	Kind     string // of machine; the caller chooses the words
	Labels   map[string]string
	Features []string           // such as netem, XDP or rootless; the caller chooses the words
	Capacity map[string]float64 // what it has, by name: cores, clock rate, licences; what is not named is 0
	Used     map[string]float64 // what others hold of it, by name
	Position *Position          // nil: not known
	Closed   string             // why it takes no nodes, such as "is lost"; empty: it takes them
	Asleep   bool               // it is switched off: to use it costs Options.Wake
}

// Position is a point on the Earth, in degrees.
type Position struct{ Latitude, Longitude float64 }

// Trunk joins two hosts or routers. Frames of links cross it in both directions. Hosts pass on what crosses them.
type Trunk struct {
	A, B      string
	Bandwidth float64 // bit/s in each direction; 0: not known, no constraint
	Used      float64 // bit/s of it that others hold
	Delay     float64 // in seconds
}
