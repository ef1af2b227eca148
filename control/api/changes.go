package api

import "github.com/pergola-net/pergola/model/slice"

// ChangesQuery says which changes of a slice's nodes are asked for.
type ChangesQuery struct {
	Nodes   []string // of the slice; none: all
	Content bool     // with what is in configurations and files; else they are named
}

// SliceChanges is what was changed in nodes while they ran. A node that starts anew does not have it.
type SliceChanges struct {
	Nodes []NodeChanges `json:"nodes"` // those of which there is something to say, by name
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// NodeChanges is what was changed in one node.
type NodeChanges struct {
	Node string `json:"node"`
	Host string `json:"host,omitempty"` // empty where the server is in no cluster
	// Routing says that the routing daemon is configured otherwise than it was when the node started.
	Routing bool `json:"routing"`
	// Config is how it is configured, if that was changed: files, by their names in the daemon's directory.
	Config map[string][]byte `json:"config,omitempty"`
	// Difference are lines of that configuration that went (- LINE) and came (+ LINE), the first ones of many, each
	// behind the contexts that it stands in.
	Difference []string `json:"difference,omitempty"`
	// Files of the topology that were changed; with content their data, and also files that are new below /etc.
	Files []slice.File `json:"files,omitempty"`
	// Unknown says why there is more that may have changed; empty: there is not.
	Unknown string `json:"unknown,omitempty"`
}

// IsLost reports whether anything would be lost if the node started anew.
func (c NodeChanges) IsLost() bool { return c.Routing || len(c.Files) > 0 }
