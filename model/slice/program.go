package slice

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"github.com/pergola-net/pergola/model/unit"
)

// Limits of packet programs.
const (
	MaxObject            = 256 << 10 // bytes of an object
	MaxProgramInterfaces = 63        // of a node; a program has one bit for each
)

// PacketProgram is the code of a node of kind Program, with what it looks up. Package datapath/program says what it may
// do.
type PacketProgram struct {
	Name   string `json:"name"`   // of the file that the user named, for messages
	Object string `json:"object"` // key of Slice.Programs: SHA-256 in hex
	// Filters are one a line, as program.ParseFilters reads them.
	Filters []string `json:"filters,omitempty"`
	// SlowPath is where frames go that it punts; empty: SlowInterface.
	SlowPath SlowPath `json:"slowpath,omitempty"`
	// Interfaces gives the names of the node's interfaces in the order in which the program numbers them, from 1.
	Interfaces []string `json:"interfaces,omitempty"`
	// UDP are those of these interfaces that are no ends of links, but ports of the machine. They are in
	// Node.Ports, too.
	UDP []UDPPort `json:"udp,omitempty"`
}

// UDPPort is a UDP port of the machine that is an interface of a packet program.
type UDPPort struct {
	Interface string `json:"interface"`
	Port      uint16 `json:"port"`
	// Peers are where the program may send; none: nowhere. At most MaxUDPPeers, of IPv4.
	Peers []netip.Prefix `json:"peers,omitempty"`
	Rate  unit.Rate      `json:"rate"` // bit/s that it may send, with headers from Ethernet's on
}

// sends reports whether the program may send by the port.
func (p UDPPort) sends() bool { return len(p.Peers) > 0 }

// What a UDP port may send.
const (
	MaxUDPPeers    = 16
	DefaultUDPRate = 100_000_000 // bits a second
)

// SlowPath says where frames go that a packet program punts.
type SlowPath string

// The slow paths.
const (
	SlowInterface SlowPath = "interface" // to the interface by which they came, as they came
	SlowSocket    SlowPath = "socket"    // to a process that has asked the node's control socket for them
	SlowNone      SlowPath = "none"      // nowhere: they are dropped, and counted
)

// ObjectName is the key of an object in Slice.Programs.
func ObjectName(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}
