package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// The kinds of resource on a host, lowest first. Each line says what it is made of, and what it is named by.
const (
	KindHostNet reconcile.Kind = iota // network namespace and data path of all slices; ""
	KindCard                          // schedulers of all that leaves for other hosts; ""
	KindArea                          // a slice's directory, cgroup and hosts file; ""
	KindSliver                        // a container, created; the node
	KindSwitch                        // a bridge; its device
	KindPort                          // a veth pair with its addresses, or a proxy port; its device
	KindNodeNet                       // loopback addresses, routes and sysctls within a sliver; the node
	KindConfig                        // configuration of a routing daemon; the node
	KindWire                          // a port joined to a port or a switch, or a switch to a switch; the devices
	KindQueue                         // schedulers, impairments and reinjection of a link; the name of its wire
	KindProgram                       // a packet program on the fast path; the node
	KindOutside                       // a sliver's connection with the outside; the node
	KindProcess                       // the sliver's first process runs, or is frozen; the node
	KindBoot                          // the node's exec lines were begun; the node
)

var kindNames = [...]string{
	"substrate", "card", "area", "sliver", "switch", "port", "net", "config", "wire", "queue", "program", "outside",
	"process", "boot",
}

// KindName is a kind's name in log lines and metrics.
func KindName(k reconcile.Kind) string { return kindNames[k] }

// HostNetKey and CardKey name the one resource of their kinds.
var (
	HostNetKey = reconcile.Key{Kind: KindHostNet}
	CardKey    = reconcile.Key{Kind: KindCard}
)

// NodeID names a node on this host.
type NodeID struct {
	Slice uint16 `json:"slice"`
	Node  string `json:"node"`
}

// String is for messages.
func (id NodeID) String() string { return fmt.Sprintf("%d/%s", id.Slice, id.Node) }

// ParseNodeID is the reverse of String; ok is false where the text is none.
func ParseNodeID(text string) (id NodeID, ok bool) {
	number, node, ok := strings.Cut(text, "/")
	slice, err := strconv.ParseUint(number, 10, 16)
	return NodeID{Slice: uint16(slice), Node: node}, ok && err == nil && node != ""
}

// The details of resources, one type for each kind. KindWire has three, which implement Wire; KindPort has Port and
// Tunnel; that of KindConfig is routing.Rendered, those of KindQueue and KindCard are wiring.Link and wiring.Card.
//
// Digests cover the JSON of some of these types: a field that is renamed, moved or added changes the digest, and with
// it every resource of that kind is made anew when a host is upgraded.
type (
	// HostNet is the network namespace and data path of all slices.
	HostNet struct{}

	// Area is a slice's directory, cgroup and hosts file.
	Area struct {
		Name  string // of the slice
		Hosts []byte // the hosts file
	}

	// Sliver is the container of a node.
	Sliver struct {
		NodeID
		SliceName string
		Digest    string // of the fields that are part of the JSON
		Hostname  string
		Rootfs    slice.Rootfs
		Command   []string // empty: that of the image; without an image, a process that does nothing but reap
		Args      []string `json:",omitempty"` // of the image's entrypoint; empty: the image's own
		User      string   `json:",omitempty"` // of the first process; empty: that of the image, else root
		Stdin     bool     `json:",omitempty"` // standard input of the first process stays open
		Env       map[string]string
		Files     []slice.File
		Binds     []slice.Bind
		Volumes   []slice.Volume    `json:",omitempty"`
		Devices   []slice.Device    `json:",omitempty"`
		CapAdd    []string          `json:",omitempty"`
		Named     []string          `json:"-"` // sources of Devices that the operator has named
		Beneath   map[string]string `json:"-"` // by granted path of the machine: the directory it must stay in
		CPU       float64           // cores; 0: no limit
		CPUPeriod time.Duration     `json:",omitempty"` // in which it is; 0: slice.DefaultCPUPeriod
		Memory    int64             // bytes; 0: no limit
		PIDs      int64             // 0: slice.DefaultPIDs
		Sysctls   map[string]string // of namespaces other than the network's
		Socket    bool              `json:",omitempty"` // it has a control socket
		Notes     map[string]string `json:"-"`          // kept with the sliver from its creation on
	}

	// Bridge is a bridge of a switch or a LAN.
	Bridge struct {
		Name  string // of the device
		Owner string // slice/node or slice/link, for people
	}

	// Port is the veth pair of a node's interface.
	Port struct {
		*slice.Interface
		Device string // in the host's namespace
		Node   string // whose network namespace has the other end
		Uplink bool   // the machine's own namespace has the other end
	}

	// Tunnel is a proxy port: it represents a node's interface, or a switch's part, on another host.
	Tunnel struct {
		Name         string // of the device
		Slice        uint16
		Owner        string // slice/node:interface, or slice/link, for people
		Digest       string
		Kind         slice.TunnelKind
		Key          uint32
		Local        netip.Addr // of this machine
		Peer         netip.Addr // of the other one
		DSCP         bool       // see slice.Tunnel
		MTU          int        // of the interfaces at both ends, in bytes
		StormControl int        // broadcast and multicast frames a second that go in; 0: no limit
		Isolated     bool       // frames that come out of it go into no other isolated port of the same bridge
		// CountsMet: it counts the packet programs that frames have met. Left out, where it is false, so that
		// the digest of tunnels of other slices is as before.
		CountsMet bool `json:",omitempty"`
	}

	// NodeNet is what is configured in a node's network namespace beside the existence of its interfaces.
	NodeNet struct {
		Router     bool // forwards
		Sysctls    map[string]string
		Loopbacks  []netip.Prefix
		Interfaces []NodeInterface
		Routes     []slice.Route
	}

	// NodeInterface is an interface of a node, by its name there.
	NodeInterface struct {
		Name      string
		Addresses []netip.Prefix
	}

	// Join is a wire of two ports, A before B.
	Join struct{ A, B string }

	// Plug is a wire of a port and the bridge that it is in.
	Plug struct{ Port, Bridge string }

	// Cable is a wire of two bridges; A and B are the devices in them, A before B.
	Cable struct {
		A, B, BridgeA, BridgeB string
		Owner                  string
		MTU                    int // bytes
	}

	// Program is the packet program of a node, on the fast path.
	Program struct {
		File     string // that the user named, for messages
		Object   []byte
		Filters  []string
		SlowPath slice.SlowPath // empty: slice.SlowInterface
		Ports    []string       // devices of its interfaces, in the order of their numbers; "": it is down
		UDP      []UDPPort
		Reserve  slice.Reserve
		Digest   string // of all that the program is made from, but for its ports; kept with it
	}

	// UDPPort is an interface of a packet program that is a UDP port of this host.
	UDPPort struct {
		slice.UDPPort
		Interface int        // its number
		Local     netip.Addr // of this host
	}

	// Outside is a sliver's connection with what is outside of all slices.
	Outside struct {
		NAT   bool // it may make connections
		Ports []slice.HostPort
		Bind  slice.Ports // its processes reserve those of it that they bind
		Rate  unit.Rate   // of what it sends, and of what it gets
	}

	// Process is the first process of a sliver.
	Process struct {
		Frozen bool
		Delay  time.Duration   // since the sliver was made
		After  []slice.WaitFor // nodes of this host
	}

	// Boot is a node's exec lines.
	Boot struct{ Lines []string }
)

// Wire is a Join, a Plug or a Cable. The name is that of its resource.
type Wire interface{ Name() string }

// Name implements Wire.
func (j Join) Name() string { return j.A + "=" + j.B }

// Name implements Wire.
func (p Plug) Name() string { return p.Port + ">" + p.Bridge }

// Name implements Wire.
func (c Cable) Name() string { return c.A + "#" + c.B }

// NewJoin puts two ports in order.
func NewJoin(a, b string) Join { return Join{min(a, b), max(a, b)} }

// NewCable puts the ends of a cable in order.
func NewCable(c Cable) Cable {
	if c.B < c.A {
		c.A, c.B, c.BridgeA, c.BridgeB = c.B, c.A, c.BridgeB, c.BridgeA
	}
	return c
}

// Digest covers what a port cannot change while it lives; addresses belong to KindNodeNet.
func (p Port) Digest() string { return Digest(p.Name, p.MAC, p.MTU, p.Uplink) }

// Digest covers all of a connection.
func (o Outside) Digest() string {
	return Digest(o.NAT, o.Ports, o.Bind, o.Rate)
}

// Digest covers all of an area.
func (a Area) Digest() string { return Digest(a.Name, a.Hosts) }

// Digest says whether the process is frozen.
func (p Process) Digest() string {
	if p.Frozen {
		return "frozen"
	}
	return "running"
}

// ExecNote is the note of a sliver that has the results of its exec lines: slice.ExecResult, as JSON.
const ExecNote = "exec"

// Booted is the digest of exec lines: they run once, and not again when they change.
const Booted = "booted"

// ExitedDigest is that of a sliver whose first process ended: it differs from the digest of one that lives, so the
// sliver is made anew unless the restart policy leaves it so.
func ExitedDigest(digest string) string { return digest + " exited" }

// StaysEnded reports whether a restart policy leaves a node whose first process ended with the given status.
func StaysEnded(policy slice.Restart, code int) bool {
	return policy == slice.RestartNever || policy == slice.RestartOnFailure && code == 0
}

// NoteOf names the notes that are kept with a sliver, each with the digest of what was done in it, by kind.
var NoteOf = map[reconcile.Kind]string{KindNodeNet: "net", KindConfig: "config", KindBoot: "boot"}

// ChangedNote is the note of a sliver whose routing daemon was configured by hand, and then got another configuration
// beside that.
const ChangedNote = "changed"

// FenceNote is the note that marks slivers that the fence ends: an agent that starts without a store must find them.
const FenceNote = "fence"

// FenceMark is a node's value of FenceNote; empty where the node has none.
func FenceMark(n *slice.Node) string {
	if n.Placement.Reschedule == slice.RescheduleAlways {
		return string(slice.RescheduleAlways)
	}
	return ""
}

// SliceOf reads the slice's id out of a device's name: "s", the id, and a letter. It is 0 for a device that is not
// Pergola's.
func SliceOf(device string) uint16 {
	digits := strings.TrimPrefix(device, "s")
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = digits[:i]
	}
	id, _ := strconv.ParseUint(digits, 10, 16)
	return uint16(id)
}
