package api

// Volumes are the volumes of nodes, on all machines.
type Volumes struct {
	Volumes []Volume `json:"volumes"` // by slice, node, name and host
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// Volume is a directory of a node that outlives it.
type Volume struct {
	Host  string `json:"host,omitempty"` // that has it; empty where the server is in no cluster
	Slice string `json:"slice"`
	Node  string `json:"node"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // on the disk
	// Unused says that there is no such slice any more.
	Unused bool `json:"unused"`
}
