package slice

// Hold is what a node gets of the machine itself that it runs on: for that machine's root to give.
type Hold struct {
	Path  string `json:"path,omitempty"`  // of the machine; empty: its network
	Write bool   `json:"write,omitempty"` // the node may write there
	Field string `json:"-"`               // of the node, as users write it: what asks for it
}

// String words it for a person.
func (h Hold) String() string {
	switch {
	case h.Path == "":
		return "its network (kind: uplink)"
	case h.Write:
		return h.Path
	}
	return h.Path + " (to read)"
}

// Within reports whether a node that has the other hold has this one too.
func (h Hold) Within(other Hold) bool {
	return h.Path == other.Path && (other.Write || !h.Write)
}

// Holds lists what a node gets of its machine itself; most nodes get nothing.
func (n *Node) Holds() (all []Hold) {
	if n.Kind == Uplink {
		all = append(all, Hold{Field: "kind"})
	}
	for _, b := range n.Binds {
		all = append(all, Hold{Field: "binds", Path: b.Source, Write: !b.ReadOnly})
	}
	switch n.Rootfs.Kind {
	case RootfsDir: // what the node changes lies in a layer above it
		all = append(all, Hold{Field: "rootfs", Path: n.Rootfs.Ref})
	case RootfsLayout:
		all = append(all, Hold{Field: "image", Path: n.Rootfs.Ref})
	case RootfsHost, RootfsTar, RootfsRegistry:
	}
	return all
}
