package slice

import "slices"

// Hold is something of the machine itself that a node uses. The machine's root has to allow it.
type Hold struct {
	Path  string `json:"path,omitempty"`  // of the machine; empty: the machine's network, or what follows
	Write bool   `json:"write,omitempty"` // the node may write there
	// Device says that Path is opened as a device, which paths that nodes see are not otherwise.
	Device bool `json:"device,omitempty"`
	// Outside is connections to outside of all slices; Port is a port of the machine's addresses, as HostPort
	// writes it, or a range of TCP and UDP, as Ports writes it.
	Outside bool   `json:"outside,omitempty"`
	Volumes bool   `json:"volumes,omitempty"` // room on its disk that nothing bounds
	Port    string `json:"port,omitempty"`
	Field   string `json:"-"` // the field of the node that asks for it, as users write it
}

// String names it in messages.
func (h Hold) String() string {
	switch {
	case h.Outside:
		return "connections to the outside (outside: true, or peers: of a UDP port)"
	case h.Volumes:
		return "room on its disk (volumes)"
	case h.Port != "":
		if _, err := ParseHostPort(h.Port); err != nil {
			return "its ports " + h.Port
		}
		return "its port " + h.Port
	case h.Path == "":
		return "its network (kind: uplink)"
	case h.Device && h.Write:
		return "its device " + h.Path
	case h.Device:
		return "its device " + h.Path + " (to read)"
	case h.Write:
		return h.Path
	}
	return h.Path + " (to read)"
}

// Within reports whether this hold is part of another one.
func (h Hold) Within(other Hold) bool {
	return h.Path == other.Path && h.Device == other.Device && h.Outside == other.Outside &&
		h.Volumes == other.Volumes && (other.Write || !h.Write) &&
		(h.Port == other.Port || h.isOfPortsOf(other))
}

func (h Hold) isOfPortsOf(other Hold) bool {
	all, err := ParsePorts(other.Port)
	own, ok := h.Ports()
	return err == nil && ok && all.Contains(own)
}

// Ports gives the range of ports that it is; false where it is something else.
func (h Hold) Ports() (Ports, bool) {
	if p, err := ParseHostPort(h.Port); err == nil {
		return Ports{p.Port, p.Port}, true
	}
	all, err := ParsePorts(h.Port)
	return all, err == nil
}

// OfOneMachine reports whether it is something that only one machine has. Ports, the outside and room for volumes are
// had on any.
func (h Hold) OfOneMachine() bool { return !h.Outside && !h.Volumes && h.Port == "" }

// Holds lists what a node uses of its machine itself; most nodes use nothing.
func (n *Node) Holds() (all []Hold) {
	if n.Kind == Uplink {
		all = append(all, Hold{Field: "kind"})
	}
	if n.Outside {
		all = append(all, Hold{Field: "outside", Outside: true})
	} else if n.Program != nil && slices.ContainsFunc(n.Program.UDP, UDPPort.sends) {
		all = append(all, Hold{Field: "ports", Outside: true})
	}
	all = append(all, portHolds(n.Ports)...)
	if n.BindPorts != (Ports{}) {
		all = append(all, Hold{Field: "ports", Port: n.BindPorts.String()})
	}
	for _, b := range n.Binds {
		all = append(all, Hold{Field: "binds", Path: b.Source, Write: !b.ReadOnly})
	}
	for _, d := range n.Devices {
		if !d.InEveryNode() {
			all = append(all, Hold{Field: "devices", Path: d.Source, Write: d.Access != "r", Device: true})
		}
	}
	if len(n.Volumes) > 0 {
		all = append(all, Hold{Field: "volumes", Volumes: true})
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

// ClaimHolds lists what a node uses because it asked for it while it ran.
func (n *Node) ClaimHolds() []Hold { return portHolds(n.Claims) }

func portHolds(ports []HostPort) (all []Hold) {
	for _, p := range ports {
		all = append(all, Hold{Field: "ports", Port: p.String()})
	}
	return all
}
