package slice

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/unit"
)

// HostPort is a port of a machine's own addresses.
type HostPort struct {
	Protocol string `json:"protocol"` // tcp or udp
	Port     uint16 `json:"port"`
}

// The protocols of ports.
const (
	TCP = "tcp"
	UDP = "udp"
)

// OutsideInterface is a node's interface to its machine.
const OutsideInterface = "outside"

// What one node may have of its machine's ports.
const (
	MaxHostPorts = 12
	// Connections from slivers to the outside have source ports in this range, which nobody can reserve.
	FirstNATPort = 61000
	LastNATPort  = 65095
)

// DefaultOutsideRate is what a node may send to the outside in a second, and get from there, in bits.
const DefaultOutsideRate unit.Rate = 100_000_000

// RateOutside is what a node may send to the outside, and what it may get from there.
func (n *Node) RateOutside() unit.Rate { return cmp.Or(n.OutsideRate, DefaultOutsideRate) }

// ReservedOutside is what a node has of its host's card for itself, for what it sends to the outside and gets from
// there.
func (n *Node) ReservedOutside() unit.Rate {
	if !n.ReachesOutside() {
		return 0
	}
	return n.OutsideReserve
}

// String writes it as users do: tcp/8080.
func (p HostPort) String() string { return p.Protocol + "/" + strconv.Itoa(int(p.Port)) }

// ParseHostPort reads tcp/8080.
func ParseHostPort(text string) (HostPort, error) {
	protocol, number, ok := strings.Cut(text, "/")
	if !ok || protocol != TCP && protocol != UDP {
		return HostPort{}, fmt.Errorf("%q is no port: write tcp/8080 or udp/5610", text)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return HostPort{}, fmt.Errorf("%q is no number of a port", number)
	}
	if protocol == UDP && port == constants.VXLANPort {
		return HostPort{}, fmt.Errorf("port udp/%d is that of tunnels between machines (VXLAN)", port)
	}
	if port >= FirstNATPort && port <= LastNATPort {
		return HostPort{}, fmt.Errorf("ports %d to %d are those of connections that nodes make to the outside",
			FirstNATPort, LastNATPort)
	}
	return HostPort{protocol, uint16(port)}, nil
}

// String writes a range as ParsePorts reads it.
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Contains reports whether all of another range is in this one.
func (p Ports) Contains(other Ports) bool { return p.First <= other.First && other.Last <= p.Last }

// Has reports whether a port is in the range.
func (p Ports) Has(port uint16) bool { return p.Contains(Ports{port, port}) }

// ParsePorts reads 20000-29999, or 8080.
func ParsePorts(text string) (Ports, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || a == 0 || a > b {
		return Ports{}, fmt.Errorf("%q is no range of ports: write such as 20000-29999", text)
	}
	return Ports{uint16(a), uint16(b)}, nil
}

// Compare orders ports.
func (p HostPort) Compare(other HostPort) int {
	if c := strings.Compare(p.Protocol, other.Protocol); c != 0 {
		return c
	}
	return int(p.Port) - int(other.Port)
}

// ReachesOutside reports whether a node has an interface to its machine: to reach the outside, or to be reached.
func (n *Node) ReachesOutside() bool {
	return n.Outside || n.BindPorts != (Ports{}) || len(n.Ports)+len(n.Claims)+len(n.BoundPorts) > 0
}

// HostPorts are the ports that lead to the node, sorted: those of the topology, and those that it asked for or bound
// while it ran.
func (n *Node) HostPorts() []HostPort {
	all := slices.Concat(n.Ports, n.Claims, n.BoundPorts)
	slices.SortFunc(all, HostPort.Compare)
	return slices.Compact(all)
}
