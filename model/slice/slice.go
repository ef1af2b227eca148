// Package slice is the resolved model of one virtual network. All other parts of Pergola use it.
//
// A topology file says what a user wants; package topology turns it into a Slice, in which every default is
// written out, every address is chosen and every file is present. A Slice has everything that a host needs to build
// the network, and nothing about how the host builds it. Values are plain data: JSON in the store and in the API.
//
// Order is part of the value: Nodes, Links and Interfaces are sorted by name, so that equal networks are equal
// bytes.
package slice

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/model/unit"
)

// Slice is one virtual network: the unit of ownership, quota and isolation.
type Slice struct {
	Name string `json:"name"`
	// ID numbers the slice on every host: device names, uid ranges and cgroups are made from it. The controller
	// allocates it at admission (1 to MaxID); it is 0 in a slice that was not admitted.
	ID uint16 `json:"id,omitempty"`
	// Generation counts the accepted versions of this slice, from 1.
	Generation int64   `json:"generation,omitempty"`
	Nodes      []Node  `json:"nodes"`
	Links      []Link  `json:"links"`
	LSPs       []LSP   `json:"lsps,omitempty"` // by name
	Checks     []Check `json:"checks,omitempty"`
	// Attribution is the licence note of imported data; it is shown wherever the network is drawn.
	Attribution string `json:"attribution,omitempty"`
	// Strategy says how nodes are placed on hosts: Spread or Pack; empty means Spread.
	Strategy Strategy `json:"strategy,omitempty"`
	// Programs are the objects of packet programs, by PacketProgram.Object: nodes may have the same one.
	Programs map[string][]byte `json:"programs,omitempty"`
}

// MaxID is the largest slice ID; each slice owns 65,536 user ids of the host (see host/sliver).
const MaxID = 4095

// Limits of one slice. They keep names of devices within IFNAMSIZ and a typing error from filling a host.
const (
	MaxNodes      = 10_000
	MaxInterfaces = 65_535 // ports of one slice
)

// Kind says what a node is.
type Kind string

// The kinds of node.
const (
	Router Kind = "router" // forwards packets; may run a routing daemon
	Host   Kind = "host"   // an end system: does not forward, has a default route
	Switch Kind = "switch" // a learning Ethernet switch in the substrate: has no sliver
	Uplink Kind = "uplink" // the machine's own network namespace: only for root; has no sliver
	// Program forwards frames by a packet program of the slice's own. Its sliver gets what the program punts.
	Program Kind = "program"
)

// Node is a virtual router, host or switch.
type Node struct {
	Name       string            `json:"name"`
	Kind       Kind              `json:"kind"`
	Labels     map[string]string `json:"labels,omitempty"`
	Position   *Position         `json:"position,omitempty"`
	Interfaces []Interface       `json:"interfaces,omitempty"`

	// The sliver: how a Router, Host or Program runs. Empty for Switch and Uplink.
	Rootfs    Rootfs            `json:"rootfs,omitzero"`
	Command   []string          `json:"command,omitempty"` // empty: what Kind and Routing call for
	Args      []string          `json:"args,omitempty"`    // of the image's entrypoint; empty: the image's own
	User      string            `json:"user,omitempty"`    // of the first process; empty: the image's, else root
	Stdin     bool              `json:"stdin,omitempty"`   // standard input of the first process stays open
	Env       map[string]string `json:"env,omitempty"`
	Files     []File            `json:"files,omitempty"`
	Binds     []Bind            `json:"binds,omitempty"` // of host paths: only for root
	Volumes   []Volume          `json:"volumes,omitempty"`
	Devices   []Device          `json:"devices,omitempty"` // of the host: only for root
	CapAdd    []string          `json:"cap_add,omitempty"` // beside Capabilities, sorted, without CAP_
	Sysctls   map[string]string `json:"sysctls,omitempty"`
	CPU       float64           `json:"cpu,omitempty"`        // cores; 0: no limit
	CPUPeriod time.Duration     `json:"cpu_period,omitempty"` // in which CPU is a limit; 0: DefaultCPUPeriod
	Memory    int64             `json:"memory,omitempty"`     // bytes; 0: no limit
	PIDs      int64             `json:"pids,omitempty"`       // processes; 0: the default (DefaultPIDs)
	Exec      []string          `json:"exec,omitempty"`       // shell commands run once after each start
	// StartDelay is the time between the making of the node and the start of its first process. WaitFor are other
	// nodes of its host that this process waits for, too.
	StartDelay time.Duration `json:"start_delay,omitempty"`
	WaitFor    []WaitFor     `json:"wait_for,omitempty"`
	Restart    Restart       `json:"restart,omitempty"`

	// FastPath is FastPathOff for a router that forwards in its own kernel only, else empty.
	FastPath FastPath `json:"fastpath,omitempty"`
	// Program is that of a node of this kind; nil for others.
	Program *PacketProgram `json:"program,omitempty"`
	// Reserve is what the node has of its host for itself.
	Reserve Reserve `json:"reserve,omitzero"`
	// Outside says that the node may make connections to outside of all slices, by its host's addresses.
	Outside bool `json:"outside,omitempty"`
	// OutsideRate is what it may send there, and what it may get, with what its ports send and get; 0: the default.
	// OutsideReserve is what it has of its host's card for that, for itself.
	OutsideRate    unit.Rate `json:"outside_rate,omitempty"`
	OutsideReserve unit.Rate `json:"outside_reserve,omitempty"`
	// Ports of its host's addresses lead to the node, sorted. Claims are those that it asked for while it ran.
	Ports  []HostPort `json:"ports,omitempty"`
	Claims []HostPort `json:"claims,omitempty"`
	// BindPorts are those that its processes reserve by binding them, and BoundPorts those that they have, sorted.
	BindPorts  Ports      `json:"bind_ports,omitzero"`
	BoundPorts []HostPort `json:"bound_ports,omitempty"`

	// Host is the machine that the sliver runs on. The controller chooses it as Placement allows. It is empty on a
	// machine that is in no cluster.
	Host      string    `json:"host,omitempty"`
	Placement Placement `json:"placement,omitzero"`
	// Left holds the hosts that the node was moved away from while they might still run it, each with the
	// generation of that move. The node starts when each of them realises that generation or is removed from the
	// cluster (Awaits).
	Left map[string]int64 `json:"left,omitempty"`
	// Tunnel carries a Switch's frames from host to host. Each cable of a switch is on one host.
	Tunnel Tunnel `json:"tunnel,omitzero"`

	// Loopbacks are the addresses of lo, beside 127.0.0.1 and ::1.
	Loopbacks []netip.Prefix `json:"loopbacks,omitempty"`
	// Routes are installed in the kernel by Pergola: default routes of hosts, static routes of routers without a
	// daemon.
	Routes []Route `json:"routes,omitempty"`
	// Routing is nil for nodes that run no routing daemon.
	Routing *Routing `json:"routing,omitempty"`
}

// DefaultCPUPeriod is the time in which a node may use its share of the processor, unless it says otherwise.
const DefaultCPUPeriod = 100 * time.Millisecond

// CPUQuota is the processor time that so many cores are in a period.
func CPUQuota(cores float64, period time.Duration) time.Duration {
	return time.Duration(cores * float64(period))
}

// DefaultPIDs bounds the processes of a node without a limit of its own.
const DefaultPIDs = 1024

// DefaultMTU is the MTU of an interface without a written one, unless a tunnel carries less.
const DefaultMTU = 1500

// Position is where a node is drawn: degrees (WGS 84).
type Position struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// Restart says what happens when the first process of a node ends by itself.
type Restart string

// The restart policies; the words are those of Docker.
const (
	RestartAlways    Restart = "always"
	RestartOnFailure Restart = "on-failure"
	RestartNever     Restart = "never"
)

// FastPath says whether the data path may forward frames past a router's kernel, as that kernel would forward them.
type FastPath string

// The settings. In a slice, on is the empty value.
const (
	FastPathOn  FastPath = "on"
	FastPathOff FastPath = "off"
)

// Interface is a node's end of a link.
type Interface struct {
	Name string `json:"name"` // as the node sees it: at most 15 bytes
	// Port numbers the interface within the slice (1 to MaxInterfaces). It never changes while the interface
	// exists: the substrate names its devices by it.
	Port uint16 `json:"port"`
	Link string `json:"link"`
	MAC  string `json:"mac"` // six bytes, colons, lower case
	MTU  int    `json:"mtu"` // bytes of payload, as `ip link` counts
	// FixedMTU is true where the user wrote the MTU. If a tunnel cannot carry it, it is an error; others are
	// reduced.
	FixedMTU  bool           `json:"fixed_mtu,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Reserve is in bit/s; see Reserved. Claim is what the node asked for while it ran, in place of Reserve; 0:
	// nothing.
	Reserve unit.Rate `json:"reserve,omitempty"`
	Claim   unit.Rate `json:"claim,omitempty"`
	// Routing parameters of this interface; the zero value means the protocol's default.
	Cost    int    `json:"cost,omitempty"`    // OSPF cost or IS-IS metric
	Area    string `json:"area,omitempty"`    // OSPF area, dotted
	Passive bool   `json:"passive,omitempty"` // announced, but no adjacency is made
	// PointToPoint is true where the link has two ends and neither is a switch.
	PointToPoint bool `json:"point_to_point,omitempty"`
	// Management is true of an interface that is not part of what the network is for: no check uses it.
	Management bool `json:"management,omitempty"`
}

// Link joins two interfaces, or more (a LAN).
type Link struct {
	Name string `json:"name"`
	Ends []End  `json:"ends"` // two: point-to-point, or a cable to a switch; more, or LAN: one Ethernet segment
	LAN  bool   `json:"lan,omitempty"`
	// Tunnel is what carries the link's frames from host to host. Its Number is 0 for a cable to a switch.
	Tunnel Tunnel `json:"tunnel,omitzero"`
}

// End is one end of a link. Shape is what the substrate does to frames that leave the node into the link.
type End struct {
	Node      string `json:"node"`
	Interface string `json:"interface"`
	Shape     Shape  `json:"shape,omitzero"`
}

// Is reports whether both are the same end of a link, whatever their shapes.
func (e End) Is(other End) bool { return e.Node == other.Node && e.Interface == other.Interface }

// String gives the end as users write it: node:interface.
func (e End) String() string { return e.Node + ":" + e.Interface }

// RootfsKind says where a node's root file system comes from.
type RootfsKind string

// The sources of a root file system.
const (
	// RootfsHost is the machine's own programs, read-only, with private /etc, /run, /var, /tmp, /root and /home.
	RootfsHost     RootfsKind = "host"
	RootfsDir      RootfsKind = "dir"      // a directory of the host: only for root
	RootfsTar      RootfsKind = "tar"      // a tar archive, sent with the topology
	RootfsLayout   RootfsKind = "layout"   // an OCI image layout of the host: only for root
	RootfsRegistry RootfsKind = "registry" // a reference such as docker.io/library/alpine:3.20
)

// Rootfs is where a node's root file system comes from. The zero value means RootfsHost.
type Rootfs struct {
	Kind RootfsKind `json:"kind,omitempty"`
	// Ref is a path, an image reference, or for RootfsTar the SHA-256 of the archive in hex.
	Ref string `json:"ref,omitempty"`
}

// FromMachine tells whether a node uses the machine's programs.
func (r Rootfs) FromMachine() bool { return r.Kind == "" || r.Kind == RootfsHost }

// File is put into a node's file system before its first process starts.
type File struct {
	Path string `json:"path"` // absolute, in the node
	Mode uint32 `json:"mode,omitempty"`
	Data []byte `json:"data"`
}

// Bind is a path of the host that a node sees. Only root may use it.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Volume is a directory of the node's own that outlives the node and the slice: only root may use it, for nothing
// bounds what is in it. It is on the host that the node runs on.
type Volume struct {
	Name     string `json:"name"` // among those of the node
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Route is one static route. Via is invalid (the zero Addr) for a route that is only bound to an interface.
type Route struct {
	To        netip.Prefix `json:"to"`
	Via       netip.Addr   `json:"via,omitzero"`
	Interface string       `json:"interface,omitempty"`
	Blackhole bool         `json:"blackhole,omitempty"`
}

// Node gives the node of that name, or nil.
func (s *Slice) Node(name string) *Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// Link gives the link of that name, or nil.
func (s *Slice) Link(name string) *Link {
	for i := range s.Links {
		if s.Links[i].Name == name {
			return &s.Links[i]
		}
	}
	return nil
}

// Interface gives the interface of that name, or nil.
func (n *Node) Interface(name string) *Interface {
	for i := range n.Interfaces {
		if n.Interfaces[i].Name == name {
			return &n.Interfaces[i]
		}
	}
	return nil
}

// HasSliver reports whether the node runs as a container.
func (n *Node) HasSliver() bool { return n.Kind == Router || n.Kind == Host || n.Kind == Program }

// Address is the address that the node's name means in a family: its first loopback, else the first address of its
// interfaces, those for management apart. ok is false where the node has none.
func (n *Node) Address(ipv6 bool) (addr netip.Addr, ok bool) {
	for _, p := range n.Loopbacks {
		if p.Addr().Is6() == ipv6 {
			return p.Addr(), true
		}
	}
	return n.interfaceAddress(ipv6, false)
}

// ManagementAddress is the first address of the node's interfaces for management.
func (n *Node) ManagementAddress(ipv6 bool) (addr netip.Addr, ok bool) {
	return n.interfaceAddress(ipv6, true)
}

func (n *Node) interfaceAddress(ipv6, management bool) (netip.Addr, bool) {
	for _, i := range n.Interfaces {
		if i.Management != management {
			continue
		}
		for _, p := range i.Addresses {
			if p.Addr().Is6() == ipv6 {
				return p.Addr(), true
			}
		}
	}
	return netip.Addr{}, false
}

// PortName is the name of the substrate's end of an interface: unique on a host.
func PortName(slice, port uint16) string { return fmt.Sprintf("s%dp%d", slice, port) }
