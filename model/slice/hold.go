package slice

// Hold is something of the machine itself that a node uses. The machine's root has to allow it.
type Hold struct {
	Path  string `json:"path,omitempty"`  // of the machine; empty: the machine's network
	Write bool   `json:"write,omitempty"` // the node may write there
	Field string `json:"-"`               // the field of the node that asks for it, as users write it
}

// String names it in messages.
func (h Hold) String() string {
	switch {
	case h.Path == "":
		return "its network (kind: uplink)"
	case h.Write:
		return h.Path
	}
	return h.Path + " (to read)"
}

// Within reports whether this hold is part of another one.
func (h Hold) Within(other Hold) bool {
	return h.Path == other.Path && (other.Write || !h.Write)
}

// Holds lists what a node uses of its machine itself; most nodes use nothing.
func (n *Node) Holds() (all []Hold) {
	if n.Kind == Uplink {
		all = append(all, Hold{Field: "kind"})
	}
	for _, b := range n.Binds {
		all = append(all, Hold{Field: "binds", Path: b.Source, Write: !b.ReadOnly})
	}
	switch n.Rootfs.Kind {
	case RootfsDir: // the node writes to a layer above it
		all = append(all, Hold{Field: "rootfs", Path: n.Rootfs.Ref})
	case RootfsLayout:
		all = append(all, Hold{Field: "image", Path: n.Rootfs.Ref})
	case RootfsHost, RootfsTar, RootfsRegistry:
	}
	return all
}
