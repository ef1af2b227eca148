package api

// SlicePrograms are the packet programs of a slice's nodes, and what they count.
type SlicePrograms struct {
	Programs []NodeProgram `json:"programs"` // by node
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// NodeProgram is the packet program of a node.
type NodeProgram struct {
	Node    string       `json:"node"`
	Host    string       `json:"host,omitempty"` // that the node runs on; empty where the server is in no cluster
	Program string       `json:"program"`        // the file that the topology names
	Object  string       `json:"object"`         // SHA-256 of the object that is wanted
	State   ProgramState `json:"state"`
	// Verified counts the instructions of the running program that the kernel's verifier looked at, those of the
	// platform left out: so many a frame costs at most. Stack is in bytes.
	Verified int `json:"verified"`
	Stack    int `json:"stack"`
	Filters  int `json:"filters"` // of the topology
	// Interfaces are the names of the interfaces that the program knows by numbers, from 1.
	Interfaces []string `json:"interfaces"`
	// Counters are the program's own, by the names of its PERGOLA_COUNTERS.
	Counters map[string]uint64 `json:"counters,omitempty"`
	// Platform counts what became of the node's frames: names have a space, and are those of node.Nodes.Counters.
	Platform map[string]uint64 `json:"platform,omitempty"`
}

// ProgramState says whether a node's packet program runs.
type ProgramState string

// The states.
const (
	ProgramRuns    ProgramState = "running"
	ProgramOlder   ProgramState = "older version" // the wanted one was refused, or is not there yet
	ProgramMissing ProgramState = "none"
)
