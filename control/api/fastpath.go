package api

// FastPath is the state of the fast path of a slice; docs/fastpath.md explains the words.
type FastPath struct {
	Routers []RouterFastPath `json:"routers"` // by name
	// Memory is that of the host, which all slices share; of several hosts that run the routers, the sum.
	Memory FastPathMemory `json:"memory"`
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// RouterFastPath is the state of the fast path of one router.
type RouterFastPath struct {
	Node       string         `json:"node"`
	IPv4       FamilyFastPath `json:"ipv4"`
	IPv6       FamilyFastPath `json:"ipv6"`
	Routes     int            `json:"routes"`     // mirrored, of both families
	Neighbours int            `json:"neighbours"` // mirrored, of both families
	// Punts counts the frames that the fast path handed to the router's kernel, by reason.
	Punts map[string]uint64 `json:"punts,omitempty"`
	// Interfaces are those whose incoming frames the kernel forwards, though the router is on the fast path.
	Interfaces []InterfaceFastPath `json:"interfaces,omitempty"`
	// Resyncs counts how often the router was read again, off the fast path, because its mirror was suspect.
	Resyncs uint64 `json:"resyncs"`
	// Trouble is what keeps the router from being mirrored, for a person.
	Trouble string `json:"trouble,omitempty"`
}

// FamilyFastPath is whether the frames of an address family are walked past a router's kernel, and if not, why.
type FamilyFastPath struct {
	On  bool     `json:"on"`
	Why []string `json:"why,omitempty"` // for a person
	// Left counts how often the router left the fast path, for whatever reason.
	Left uint64 `json:"left,omitempty"`
}

// InterfaceFastPath is why frames of an address family that arrive at an interface are not walked past a router's
// kernel.
type InterfaceFastPath struct {
	Interface string   `json:"interface"`
	IPv4      []string `json:"ipv4,omitempty"` // for a person
	IPv6      []string `json:"ipv6,omitempty"`
}

// FastPathMemory is how much of the memory of the fast path is in use.
type FastPathMemory struct {
	Routers    Share `json:"routers"`
	Nexthops   Share `json:"nexthops"`
	Neighbours Share `json:"neighbours"`
	Bytes      Share `json:"bytes"` // of the routes
}

// Add adds the memory of another host.
func (m *FastPathMemory) Add(other FastPathMemory) {
	m.Routers.add(other.Routers)
	m.Nexthops.add(other.Nexthops)
	m.Neighbours.add(other.Neighbours)
	m.Bytes.add(other.Bytes)
}

// Share is a part of a whole.
type Share struct {
	Used  int64 `json:"used"`
	Bound int64 `json:"bound"`
}

func (s *Share) add(other Share) {
	s.Used += other.Used
	s.Bound += other.Bound
}

// Verification is the outcome of a comparison of the mirror with the routers' kernels.
type Verification struct {
	Routers     []string     `json:"routers"` // that were compared
	Differences []Difference `json:"differences"`
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// Difference is one entry that differs between the mirror and a router's kernel.
type Difference struct {
	Node   string `json:"node"`
	What   string `json:"what"`   // such as 192.0.2.0/24, or neighbour 192.0.2.1
	Kernel string `json:"kernel"` // the entry of the router's kernel
	Mirror string `json:"mirror"` // what the programs of the fast path find
}
