package api

import (
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// UnreachableHost is a host that did not answer, and why.
type UnreachableHost struct {
	Host string `json:"host"`
	Why  string `json:"why"`
}

// Convergence says whether routing has converged in a slice, and if not, where. See docs/convergence.md.
type Convergence struct {
	Converged bool `json:"converged"`
	Routers   int  `json:"routers"` // that take part in routing, and run
	Pairs     int  `json:"pairs"`   // of a router and a prefix that it must reach
	Reached   int  `json:"reached"` // of Pairs
	// Missing describes the first pairs that are not reached, for a person.
	Missing []string `json:"missing,omitempty"`
	// Unjudged are nodes whose routing cannot be judged, each with the reason, for a person.
	Unjudged []string `json:"unjudged,omitempty"`
	// Down describes the nodes that should run and do not, for a person. Each text begins with the node's name.
	Down []string `json:"down,omitempty"`
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// CheckRequest selects what to check. The zero value means the file's checks, or all pairs where the file has none.
type CheckRequest struct {
	AllPairs bool          `json:"all_pairs,omitempty"`
	Names    []string      `json:"names,omitempty"`   // only these of the file's checks
	Timeout  time.Duration `json:"timeout,omitempty"` // ns, of each check that names none of its own
	// Addresses are those of nodes to which the topology gives none, where the caller knows them; the host that is
	// asked finds them out for itself and for the others.
	Addresses map[string][]netip.Addr `json:"addresses,omitempty"`
}

// NodeAddresses are the addresses that the kernels of nodes have to which the topology gives none, by node; the first
// one of a family is what the node's name means in checks.
type NodeAddresses struct {
	Addresses map[string][]netip.Addr `json:"addresses"`
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// CheckProgress counts checks that are done.
type CheckProgress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Failed int `json:"failed"`
}

// CheckResult is the outcome of one check.
type CheckResult struct {
	Name     string          `json:"name"`
	Kind     slice.CheckKind `json:"kind"`
	From     string          `json:"from"`
	To       string          `json:"to,omitempty"`
	Address  netip.Addr      `json:"address,omitzero"` // what To stood for
	OK       bool            `json:"ok"`
	Message  string          `json:"message,omitempty"`  // why it failed, or what was measured
	RTT      time.Duration   `json:"rtt,omitempty"`      // ns, of a ping that was answered
	Duration time.Duration   `json:"duration,omitempty"` // ns
}

// CheckOutcome is the last event of a check's stream.
type CheckOutcome struct {
	Results []CheckResult `json:"results"`
}
