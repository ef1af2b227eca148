// Package wiring works out what a link is made of on a host: from how its ends are joined and what becomes of frames in
// each direction to devices, records of the data path, rules and qdisc trees. It is pure. All of it are values, in the
// units of the kernel: package wire makes a host have them and reads them back, and the agent compares the two.
package wiring

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Link is one link, as far as it is on this host:
//
//	node ── veth ── s1p3 ═══ s1p4 ── veth ── node     two ports: A and B
//	node ── veth ── s1p3 ── switch                    a port and a switch: A and Switch
//	switch ── s1p5 ── s1p6 ── switch                  a cable between two switches: A and B are its ends
type Link struct {
	A, B     End
	Switch   string // B has no port then, and its shape is that of what the switch sends to A
	Cable    bool
	Reinject bool // frames out of a queue or a switch enter the data path again, where the walk goes on
	// Program says that a node at an end has a packet program, or is a router that may send frames away with
	// labels. Super-frames are cut before they get there: by queue devices, which other frames do not take unless
	// the link has them for all.
	Program bool
}

// End is one end of a link.
type End struct {
	Port  string // name of the device
	MTU   int
	Shape slice.Shape // of what comes from there
	// Reserves says that a part of it may be within reservations of LSPs. Where it waits in a queue, it has a class
	// of its own, which has all of the rate that it wants.
	Reserves bool
}

// Mode says what becomes of the frames that enter at a device. See datapath.Mode.
type Mode string

// The modes.
const (
	ToNothing Mode = ""       // dropped
	ToSwitch  Mode = "switch" // left to the bridge that the device is in
	ToPeer    Mode = "peer"   // handed to the peer's node at once
	ToQueue   Mode = "queue"  // queued at the peer's device
)

// Record is a device's in the data path.
type Record struct {
	Mode Mode
	Peer string `json:",omitempty"`
	// Plain is the device by which frames leave that are not plain, if they come to a packet program.
	Plain string `json:",omitempty"`
	// Queues is how many queues the packet program of the device's node chooses from; 0: it chooses none.
	Queues int `json:",omitempty"`
	// Reserves says that frames within a reservation go to ReservedClass of the tree behind.
	Reserves bool `json:",omitempty"`
}

// Policer bounds the frames that enter at a device. See datapath.Policer.
type Policer struct {
	Rate   uint64 // bytes a second
	Burst  uint64 // bytes
	Single bool   // what exceeds it are single frames: super-frames are cut before
}

// Rule says which class frames belong to that enter at a port. The first rule that matches counts.
type Rule struct {
	Class uint16 // minor number of a class of the tree that the port leads to
	slice.Match
}

// Layout is what a link is made of. What a device does not have is not in the maps.
type Layout struct {
	Pairs    map[string]string // queue devices, veth pairs, by the end beside A; of two ends, the first by name
	Records  map[string]Record
	Switches map[string]string // the bridge that a device is in
	Trees    map[string]Tree
	Rules    map[string][]Rule // by port
	Policers map[string]Policer
	// Plain are queue devices that make frames plain.
	Plain map[string]bool `json:",omitempty"`
}

// QueueName is the device beside a port whose qdiscs treat what the port's node sends.
func QueueName(port string) string { return port + "q" }

// MemberName is the other end of a queue device: the switch's port.
func MemberName(port string) string { return port + "m" }

// Devices are the names that a link's devices can have, whatever its treatment.
func (l Link) Devices() []string {
	switch {
	case l.Cable:
		return []string{l.A.Port, l.B.Port}
	case l.Switch != "":
		return []string{l.A.Port, QueueName(l.A.Port), MemberName(l.A.Port)}
	}
	return []string{l.A.Port, l.B.Port, QueueName(l.A.Port), QueueName(l.B.Port)}
}

// Plain is the link with neither treatment nor reinjection.
func (l Link) Plain() Link {
	l.A.Shape, l.B.Shape, l.Reinject, l.Program = slice.Shape{}, slice.Shape{}, false, false
	l.A.Reserves, l.B.Reserves = false, false
	return l
}

// IsPlain reports whether the link needs nothing but its ends.
func (l Link) IsPlain() bool {
	return l.A.Shape.IsZero() && l.B.Shape.IsZero() && !l.Reinject && !l.Program
}

// Layout works out what the link is made of.
func (l Link) Layout() Layout {
	y := Layout{
		Pairs: map[string]string{}, Records: map[string]Record{}, Switches: map[string]string{},
		Trees: map[string]Tree{},
		Rules: map[string][]Rule{}, Policers: map[string]Policer{}, Plain: map[string]bool{},
	}
	switch {
	case l.Cable: // what a switch sends leaves by its own end
		y.shape(l.A.Port, l.A, l.A.MTU)
		y.shape(l.B.Port, l.B, l.B.MTU)
	case l.Switch != "":
		y.plug(l)
	default:
		y.join(l)
	}
	return y
}

// join lays out two ports. Without reinjection, what one node sends is shaped at the port of the other. With it, it
// needs a device whose far end is looked at again:
//
//	node ── veth ── s1p3 ═══ s1p3q ── s1p4q ═══ s1p4 ── veth ── node
//
// In either direction, frames leave by the qdisc of one end and enter at the other. Before a packet program, frames
// that are not plain take the same way, and others do not.
func (y *Layout) join(l Link) {
	a, b := l.A, l.B
	if QueueName(b.Port) < QueueName(a.Port) {
		a, b = b, a
	}
	y.classify(a)
	y.classify(b)
	y.police(a.Port, a.Shape.Police, a.MTU)
	y.police(b.Port, b.Shape.Police, b.MTU)
	if !l.Reinject {
		y.shape(b.Port, a, b.MTU)
		y.shape(a.Port, b, a.MTU)
		y.lead(a.Port, b.Port)
		y.lead(b.Port, a.Port)
		y.choose(a)
		y.choose(b)
		if l.Program {
			y.makePlain(a.Port, b.Port)
		}
		return
	}
	mtu := max(a.MTU, b.MTU) // what is too long for either, the ports drop and count
	qa, qb := QueueName(a.Port), QueueName(b.Port)
	y.Pairs[qa] = qb
	y.shape(qa, a, mtu)
	y.shape(qb, b, mtu)
	y.Records[a.Port], y.Records[qa] = Record{Mode: ToQueue, Peer: qa}, Record{Mode: ToPeer, Peer: a.Port}
	y.Records[b.Port], y.Records[qb] = Record{Mode: ToQueue, Peer: qb}, Record{Mode: ToPeer, Peer: b.Port}
	y.choose(a)
	y.choose(b)
	if l.Program {
		y.Plain[qa], y.Plain[qb] = true, true
	}
}

// makePlain adds queue devices beside the direct way.
func (y *Layout) makePlain(a, b string) {
	qa, qb := QueueName(a), QueueName(b)
	y.Pairs[qa] = qb
	for port, q := range map[string]string{a: qa, b: qb} {
		record := y.Records[port]
		record.Plain = q
		y.Records[port] = record
		y.lead(q, port)
		y.Plain[q] = true
	}
}

// plug lays out a port and a switch. What the node sends is shaped on the way to a queue device, whose other end is the
// switch's port; what the switch sends is shaped there too, and enters the data path at the queue device, where it is
// policed:
//
//	node ── veth ── s1p3 ═══ s1p3q ── s1p3m ── switch
func (y *Layout) plug(l Link) {
	a := l.A
	y.police(a.Port, a.Shape.Police, a.MTU)
	if !l.isPaired() {
		y.shape(a.Port, l.B, a.MTU)
		y.Records[a.Port] = Record{Mode: ToSwitch}
		y.Switches[a.Port] = l.Switch
		return
	}
	q, m := QueueName(a.Port), MemberName(a.Port)
	y.Pairs[q] = m
	y.classify(a)
	y.police(q, l.B.Shape.Police, a.MTU)
	y.shape(q, a, a.MTU)
	y.shape(m, l.B, a.MTU)
	y.Records[a.Port], y.Records[q] = Record{Mode: ToQueue, Peer: q}, Record{Mode: ToPeer, Peer: a.Port}
	y.Switches[m] = l.Switch
	y.choose(a)
	if l.Program {
		y.Plain[m] = true
	}
}

// isPaired reports whether there is a queue device between a port and a switch.
func (l Link) isPaired() bool {
	return l.A.Shape.NeedsQdisc() || l.B.Shape.Police.Rate != 0 || l.Reinject || l.Program
}

// shape gives a device the qdiscs for what comes from an end.
func (y *Layout) shape(device string, from End, mtu int) {
	t := TreeOf(from.Shape, mtu)
	if from.HasReservedClass() {
		t = t.withReserved(mtu)
	}
	if !t.IsZero() {
		y.Trees[device] = t
	}
}

// lead directs frames from one port to the other: by its qdiscs, if it has any.
func (y *Layout) lead(from, to string) {
	mode := ToPeer
	if _, shaped := y.Trees[to]; shaped {
		mode = ToQueue
	}
	y.Records[from] = Record{Mode: mode, Peer: to}
}

// choose says among how many queues the program of an end's node has the choice, and whether reservations have a class.
func (y *Layout) choose(e End) {
	record := y.Records[e.Port]
	record.Queues, record.Reserves = len(e.Shape.Queues), e.HasReservedClass()
	y.Records[e.Port] = record
}

// HasReservedClass reports whether there is a class of reservations: in a queue that has a rate, but for those of which
// a packet program chooses.
func (e End) HasReservedClass() bool {
	return e.Reserves && e.Shape.Rate != 0 && len(e.Shape.Queues) == 0
}

func (y *Layout) classify(e End) {
	for i, c := range e.Shape.Classes {
		for _, m := range c.Match {
			y.Rules[e.Port] = append(y.Rules[e.Port], Rule{FirstClass + uint16(i), m})
		}
	}
}

func (y *Layout) police(device string, p slice.Policer, mtu int) {
	if p.Rate == 0 {
		return
	}
	burst := p.Burst
	if burst == 0 {
		burst = slice.DefaultBurst(p.Rate, mtu+ethernetHeader)
	}
	y.Policers[device] = Policer{Rate: p.Rate.BytesPerSecond(), Burst: uint64(burst), Single: p.Rate < slow}
}

// policer is what was made into it.
func (y Layout) policer(device string, mtu int) slice.Policer {
	is := y.Policers[device]
	p := slice.Policer{Rate: unit.Rate(is.Rate * 8), Burst: int64(is.Burst)}
	if p.Burst == slice.DefaultBurst(p.Rate, mtu+ethernetHeader) {
		p.Burst = 0
	}
	return p
}

// Digest stands for the layout: equal layouts have equal digests.
func (y Layout) Digest() string { return digest(y) }

// Digest stands for the tree: equal trees have equal digests.
func (t Tree) Digest() string { return digest(t) }

func digest(plain any) string {
	text, err := json.Marshal(plain) // keys of maps are sorted
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", plain, err)) // plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Queues names the devices whose qdiscs treat the frames of each direction: those that A sends, and those that B or the
// switch sends. A device that has none, or does not exist, has no tree in the layout.
func (l Link) Queues() (fromA, fromB string) {
	switch {
	case l.Cable:
		return l.A.Port, l.B.Port
	case l.Switch != "" && l.isPaired():
		return QueueName(l.A.Port), MemberName(l.A.Port)
	case l.Reinject:
		return QueueName(l.A.Port), QueueName(l.B.Port)
	}
	return l.B.Port, l.A.Port
}

// Observed gives a link as it is read from a layout: with the treatment that its qdiscs give, as far as the kernel
// tells.
func (l Link) Observed(y Layout) Link {
	l = l.Plain()
	l.Program = len(y.Plain) > 0
	l.Reinject = len(y.Pairs) > 0 && y.Records[l.A.Port].Plain == ""
	fromA, fromB := l.Queues()
	l.A.Shape = y.Trees[fromA].Shape(y.Rules[l.A.Port], y.Records[l.A.Port].Queues > 0)
	l.B.Shape = y.Trees[fromB].Shape(y.Rules[l.B.Port], y.Records[l.B.Port].Queues > 0)
	l.A.Reserves, l.B.Reserves = y.Records[l.A.Port].Reserves, y.Records[l.B.Port].Reserves
	l.A.Shape.Police = y.policer(l.A.Port, l.A.MTU)
	if l.Switch != "" {
		l.B.Shape.Police = y.policer(QueueName(l.A.Port), l.A.MTU)
	} else {
		l.B.Shape.Police = y.policer(l.B.Port, l.B.MTU)
	}
	return l
}

const slow unit.Rate = 1e9 // above, single frames could not fill the link

// Single reports whether a node must send single frames, and no GSO super-frames of up to 64 KiB, into a treatment: a
// link that loses or queues frames or is slow takes each for one frame. What passes a switch first is not cut: a
// super-frame on its way to a shaped port of a LAN, or through a shaped cable, is lost, queued or policed as a whole.
func Single(s slice.Shape) bool {
	slowed := func(r unit.Rate) bool { return r != 0 && r < slow }
	return s.Loss != 0 || s.Queue != 0 || len(s.Classes)+len(s.Queues) != 0 || slowed(s.Rate) ||
		slowed(s.Police.Rate)
}

func name(minor uint16) string { return fmt.Sprintf("%x", minor) }
