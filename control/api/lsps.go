package api

import (
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

// SliceLSPs says how the label-switched paths of a slice are, router by router.
type SliceLSPs struct {
	Hops []LSPHop `json:"hops"` // of static LSPs, in the slice's order, and then along the path
	// Signalled are those that RSVP-TE sets up, as they are at their ingress, by name.
	Signalled []SignalledLSP `json:"signalled,omitempty"`
	// Wanted are those that were asked for by name, as they are stored.
	Wanted []slice.LSP `json:"wanted,omitempty"`
	// Generation is the version of the slice that the hosts have which have answered: the least. 0: not known.
	Generation int64 `json:"generation,omitempty"`
	// Outdated means that a host has not read the version that is stored yet.
	Outdated bool `json:"outdated,omitempty"`
	// Unreachable are the hosts whose routers are missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// LSPHop is a router on a label-switched path.
type LSPHop struct {
	LSP  string `json:"lsp"`
	Node string `json:"node"`
	Host string `json:"host,omitempty"` // empty where the server is in no cluster
	// Problem says why packets of the LSP do not go on here; empty: they do.
	Problem string `json:"problem,omitempty"`
}

// SignalledLSP is a label-switched path that routers have agreed on, or are to agree on.
type SignalledLSP struct {
	LSP  string `json:"lsp"`
	Host string `json:"host,omitempty"` // of the ingress; empty where the server is in no cluster
	Up   bool   `json:"up"`
	// Problem says why it is not up. Of one that is up: why what was asked for since is not.
	Problem   string      `json:"problem,omitempty"`
	ID        uint16      `json:"id,omitempty"`        // the LSP ID (RFC 3209, section 4.6.2)
	Number    uint16      `json:"number,omitempty"`    // slice.Signal.Number of what was asked for
	Bandwidth unit.Rate   `json:"bandwidth,omitempty"` // that each link has reserved for it, in bit/s
	Hops      []slice.Hop `json:"hops,omitempty"`      // the way that it has; as the routers recorded it
	Since     time.Time   `json:"since,omitzero"`      // when it was asked for
	Measured  *LSPTraffic `json:"measured,omitempty"`  // of one with a bandwidth, at the ingress
}

// LSPTraffic is what a label-switched path has carried: what was within its reservation, and what exceeded it.
type LSPTraffic struct {
	Frames       uint64 `json:"frames"`
	Bytes        uint64 `json:"bytes"` // with Ethernet headers and labels
	ExcessFrames uint64 `json:"excess_frames"`
	ExcessBytes  uint64 `json:"excess_bytes"`
	// Seconds is the processor time of both in the walks in which the LSP begins; measured at one frame in 16.
	Seconds float64 `json:"seconds"`
}

// LSPPatch changes a label-switched path. What is nil, or empty, stays as it is.
type LSPPatch struct {
	Path      []string          `json:"path,omitempty" doc:"routers on the way"`
	To        []string          `json:"to,omitempty" doc:"prefixes whose packets go this way, in place of match"`
	Match     []topology.Match  `json:"match,omitempty" doc:"rules, one of which has to match, in place of to"`
	Bandwidth *unit.Rate        `json:"bandwidth,omitempty" doc:"bit/s that each link reserves; 0: none"`
	Excess    *slice.Excess     `json:"excess,omitempty" enum:"demote,drop" doc:"what becomes of packets that exceed the bandwidth"`
	Protect   *slice.Protection `json:"protect,omitempty" enum:"link,none" doc:"what packets go round at once if it fails"`
	Setup     *int              `json:"setup_priority,omitempty" minimum:"0" maximum:"7" doc:"0 is the best"`
	Holding   *int              `json:"holding_priority,omitempty" minimum:"0" maximum:"7" doc:"0 is the best"`
}
