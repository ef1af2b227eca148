package wire

// Program is a packet program of a node.
type Program struct {
	Slice    uint16
	File     string // that the user named, for messages
	Object   []byte
	Filters  []string // one each, as program.ParseFilters has them
	Ports    []string // devices of the node's interfaces, in the order in which the program numbers them
	SlowPath bool     // what the program punts goes to the node's kernel
	Digest   string   // of what it is made from; kept with it
}

// ProgramState is a packet program that runs.
type ProgramState struct {
	Digest   string // as SetProgram was given it; empty: it was left half made
	Ports    []int  // indexes of devices, by the numbers of interfaces; 0: none
	Verified int    // instructions that the kernel's verifier looked at
	Stack    int    // bytes
}

// ProgramCounters is what a packet program counted since it was first set.
type ProgramCounters struct {
	Own      map[string]uint64 // by the names of PERGOLA_COUNTERS
	Platform map[string]uint64 // frames, bytes, and what became of them
}
