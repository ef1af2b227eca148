package topology

import (
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/describe"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/encode"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/resolve"
	"github.com/pergola-net/pergola/model/unit"
)

// The types of a topology file. Package file says what each field means.

type (
	// Topology is what a topology file says, before defaults, groups and addressing.
	Topology = file.Topology
	// Origin is the text of a topology file.
	Origin = file.Origin
	// Addressing says which address families are used, and the pools of automatic addresses.
	Addressing = file.Addressing
	// Defaults are the attributes of all nodes and of all links.
	Defaults = file.Defaults
	// Group gives attributes to some nodes.
	Group = file.Group
	// Node is one router, host or switch.
	Node = file.Node
	// Attributes are what defaults, groups and nodes can say.
	Attributes = file.Attributes
	// ISIS has the parameters of IS-IS.
	ISIS = file.ISIS
	// Interface is what a node says about one of its interfaces.
	Interface = file.Interface
	// LSP is a label-switched path of the file.
	LSP = file.LSP
	// Signalling is how the routers of an LSP learn its labels.
	Signalling = file.Signalling
	// LastLabel is the label that the last router of an LSP wants.
	LastLabel = file.LastLabel
	// Match is a rule about packets.
	Match = file.Match
	// Link joins two interfaces, or more (a LAN).
	Link = file.Link
	// LinkAttributes are what defaults and links can say.
	LinkAttributes = file.LinkAttributes
	// Shape is what happens to frames in one direction, or in both.
	Shape = file.Shape
	// Route is one static route.
	Route = file.Route
	// File is a file that is put into a node.
	File = file.File
	// Source is a file that the topology names.
	Source = file.Source
	// Filter is one filter of a packet program, or a file of them.
	Filter = file.Filter
	// Check is one statement about the running network.
	Check = file.Check
	// Strings is a list; the file may write a single element without brackets.
	Strings = file.Strings
	// Command is the arguments of a process; the file may write one line for the shell.
	Command = file.Command
	// End is an end of a link: node or node:interface.
	End = file.End
	// DSCP says which DSCP the packets of a tunnel have.
	DSCP = file.DSCP
	// Rate is a number of bits a second, as users write it.
	Rate = file.Rate
	// PolicedRate is a rate of a policer, as users write it.
	PolicedRate = file.PolicedRate
	// Burst is a number of bytes that may come at once, as users write it.
	Burst = file.Burst
	// QueueLength is how much a queue holds, as users write it.
	QueueLength = file.QueueLength
	// FrameRate is a number of frames a second, as users write it.
	FrameRate = file.FrameRate
	// Duration is a span of time, as users write it.
	Duration = file.Duration
	// Percent is a share, as users write it.
	Percent = file.Percent
	// Bytes is an amount of memory, as users write it.
	Bytes = file.Bytes
)

// The settings of DSCP.
const (
	DSCPCopy = file.DSCPCopy
	DSCPNone = file.DSCPNone
)

// SignallingRSVP is the setting of LSPs that RSVP-TE sets up.
const SignallingRSVP = file.SignallingRSVP

type (
	// Diagnostic is one thing that is wrong with a topology.
	Diagnostic = diagnostic.Diagnostic
	// Diagnostics is all that is wrong with a topology.
	Diagnostics = diagnostic.Diagnostics
)

// Describe is the reverse of Resolve: it gives a topology from which the same slice is resolved.
func Describe(s *slice.Slice) (*Topology, Diagnostics) { return describe.Slice(s) }

// SetLSPs gives a slice these label-switched paths in place of those that it has; prev is the version before, whose
// numbers and labels stay. Those named in byHand were added while the slice ran. Where anything is wrong, the slice
// stays as it is.
func SetLSPs(s, prev *slice.Slice, all []LSP, byHand map[string]bool) Diagnostics {
	return resolve.LSPs(s, prev, all, byHand)
}

// MatchOf writes a rule as a file would.
func MatchOf(m slice.Match) Match { return file.MatchOf(m) }

// ParseMatch reads a rule as it is written in a command: proto=udp,dport=5004.
func ParseMatch(text string) (Match, error) { return file.ParseMatch(text) }

// LSPOf writes a label-switched path as a file would.
func LSPOf(l *slice.LSP) LSP { return file.LSPOf(l) }

// NameOfLSP is the name of a label-switched path: that which is written, or one made of the routers at its ends.
func NameOfLSP(l *LSP) string { return resolve.NameOfLSP(l) }

// RateOf is the shortest way to write a rate.
func RateOf(r unit.Rate) Rate { return file.RateOf(r) }

// IsPath reports whether the source of a volume is a path of the host, and not a name.
func IsPath(source string) bool { return file.IsPath(source) }

// Marshal writes a topology as a person would: short forms, one line for what is short, sections apart. Parse reads
// the same topology back, without the data of its sources.
func Marshal(t *Topology) ([]byte, error) { return encode.Marshal(t) }
