// Package traffic makes frames and counts them: the generators and sinks of Pergola's benchmarks.
//
// Each works in a network namespace that it is given, without a process there: a socket, or a program's run, belongs
// to the namespace in which it was opened.
package traffic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Port is the UDP port of what is counted.
const Port = 7007

// MaxDestinations bounds a generator's.
const MaxDestinations = 1 << 20

// MaxOuter bounds what comes before a frame.
const MaxOuter = 80

// MaxBody is the length of a body.
const MaxBody = 40

// FrameSize is the length of small frames, with the Ethernet header: the shortest that Ethernet has, less its
// checksum, is 60.
const FrameSize = 64

// MaxDevices bounds those of a generator.
const MaxDevices = 64

// Flow says what a generator's frames look like. They belong to 256 flows, by source port.
type Flow struct {
	Device       int   // ifindex that they leave by
	Devices      []int // in place of Device: those that they leave by in turn; as many as a power of two
	From, To     [6]byte
	Source       netip.Addr
	Destinations []netip.Addr // taken in turn; as many as a power of two
	Size         int          // of a frame
	// what comes before it: the headers of a tunnel, from Ethernet on, for frames of this size
	Outer []byte
	Body  []byte // what the datagram begins with: none, or MaxBody bytes
	Mixed bool   // of two devices and destinations, the first ones get frames without the body (Mix)
	// The first device gets all frames, but for those that the others get in turn: each with the destination of the
	// same number (Generator.Crowd).
	Crowd bool
	Keys  Keys // of tunnels; none: the one in Outer is that of all
	Batch int  // frames that are made, and then sent at once; 0: 32
}

// Keys are those of tunnels that frames take in turn: First, First+Step, ...
type Keys struct {
	At          int // offset in Outer, where a key has 32 bits
	Count       int
	First, Step uint32
	Mix         int // one frame in so many has one of the other keys in turn, the rest have First; 0: all in turn
}

// Generator sends frames out of a device as a NIC's driver would get them from the wire: through XDP, without a socket.
type Generator struct {
	ns   *os.File
	flow Flow
	obj  objectObjects
}

// NewGenerator makes one for a device of a namespace. The device's other end must take XDP frames: have GRO or an XDP
// program.
func NewGenerator(ns *os.File, f Flow) (*Generator, error) {
	if n := len(f.Destinations); bits.OnesCount(uint(n)) != 1 || n > MaxDestinations {
		return nil, fmt.Errorf("make a generator: %d destinations are no power of two up to %d", n,
			MaxDestinations)
	}
	if len(f.Outer) > MaxOuter {
		return nil, fmt.Errorf("make a generator: %d bytes before a frame", len(f.Outer))
	}
	if n := len(f.Body); n != 0 && n != MaxBody {
		return nil, fmt.Errorf("make a generator: a body of %d bytes, not %d", n, MaxBody)
	}
	if f.Keys.Count > 1 && f.Keys.At+4 > len(f.Outer) {
		return nil, fmt.Errorf("make a generator: keys at %d of %d bytes", f.Keys.At, len(f.Outer))
	}
	if len(f.Devices) == 0 {
		f.Devices = []int{f.Device}
	}
	if n := len(f.Devices); bits.OnesCount(uint(n)) != 1 || n > MaxDevices {
		return nil, fmt.Errorf("make a generator: %d devices are no power of two up to %d", n, MaxDevices)
	}
	if f.Crowd && (len(f.Devices) < 2 || len(f.Devices) != len(f.Destinations)) {
		return nil, fmt.Errorf("make a generator: %d devices of a crowd have %d destinations", len(f.Devices),
			len(f.Destinations))
	}
	g := &Generator{ns: ns, flow: f}
	if err := g.load(); err != nil {
		return nil, fmt.Errorf("make a generator: %w", err)
	}
	return g, nil
}

func (g *Generator) load() error {
	spec, err := loadObject()
	if err != nil {
		return err
	}
	spec.Maps["destinations"].MaxEntries = uint32(len(g.flow.Destinations))
	var outer [MaxOuter]byte
	copy(outer[:], g.flow.Outer)
	var body [MaxBody]byte
	copy(body[:], g.flow.Body)
	var devices [MaxDevices]uint32
	for i, device := range g.flow.Devices {
		devices[i] = uint32(device)
	}
	for name, value := range map[string]any{
		"body": body, "has_body": uint32(min(len(g.flow.Body), 1)), "mixed": flag(g.flow.Mixed),
		"crowd": flag(g.flow.Crowd) * uint32(len(g.flow.Devices)-1),
		"outer": outer, "outer_size": uint32(len(g.flow.Outer)),
		"devices": devices, "devices_mask": uint32(len(g.flow.Devices) - 1), "from": g.flow.From,
		"to":   g.flow.To,
		"keys": uint32(g.flow.Keys.Count), "key_at": uint32(g.flow.Keys.At), "key_first": g.flow.Keys.First,
		"key_step": g.flow.Keys.Step, "mix": uint32(g.flow.Keys.Mix),
		"source": word(g.flow.Source), "destinations_mask": uint32(len(g.flow.Destinations) - 1),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&g.obj, nil); err != nil {
		return err
	}
	indexes := make([]uint32, len(g.flow.Destinations))
	words := make([]uint32, len(indexes))
	for i, a := range g.flow.Destinations {
		indexes[i], words[i] = uint32(i), word(a)
	}
	_, err = g.obj.Destinations.BatchUpdate(indexes, words, nil)
	return err
}

func flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// word is an IPv4 address as it is in memory, in network byte order.
func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// Send sends so many frames as fast as they are taken, on the calling thread's core.
func (g *Generator) Send(frames int) error {
	const (
		liveFrames = unix.BPF_F_TEST_XDP_LIVE_FRAMES
		// What comes at once is handled at once by all routers on the way. With more than this, the kernel's
		// own forwarding across 16 routers fills its backlog (net.core.netdev_max_backlog) and loses half-way
		// what it worked for: at 256, two thirds.
		batch = 32
	)
	err := netns.In(g.ns, func() error {
		_, err := g.obj.Generate.Run(&ebpf.RunOptions{
			Data: make([]byte, len(g.flow.Outer)+g.flow.Size), Repeat: uint32(frames), Flags: liveFrames,
			BatchSize: uint32(cmp.Or(g.flow.Batch, batch)),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("generate frames: %w", err)
	}
	return nil
}

// Close lets go of the program.
func (g *Generator) Close() error { return g.obj.Close() }

// Sink counts the frames of generators and floods that arrive at a device, and drops them.
type Sink struct {
	obj    objectObjects
	detach func() error
}

func newSink(variables map[string]any, attach func(*objectObjects) (detach func() error, err error)) (*Sink, error) {
	s := &Sink{}
	spec, err := loadObject()
	for name, value := range variables {
		if err == nil {
			err = spec.Variables[name].Set(value)
		}
	}
	if err == nil {
		err = spec.LoadAndAssign(&s.obj, nil)
	}
	if err == nil {
		s.detach, err = attach(&s.obj)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a sink: %w", err), s.obj.Close())
	}
	return s, nil
}

// NewNICSink attaches one to the driver of a namespace's device.
func NewNICSink(ns *os.File, device int) (*Sink, error) { return NewTunnelSink(ns, device, 0) }

// NewTunnelSink is NewNICSink for frames in a tunnel, before which so many bytes are.
func NewTunnelSink(ns *os.File, device, outer int) (*Sink, error) {
	return newNICSink(ns, device, map[string]any{"outer_size": uint32(outer)})
}

// NewEchoSink is NewNICSink, and sends requests of pingers of kind UDP back.
func NewEchoSink(ns *os.File, device int) (*Sink, error) {
	return newNICSink(ns, device, map[string]any{"reflects": uint8(1)})
}

func newNICSink(ns *os.File, device int, variables map[string]any) (*Sink, error) {
	return newSink(variables, func(o *objectObjects) (detach func() error, err error) {
		err = netns.In(ns, func() error {
			l, err := link.AttachXDP(link.XDPOptions{Program: o.SinkXdp, Interface: device,
				Flags: link.XDPDriverMode})
			if err == nil {
				detach = l.Close
			}
			return err
		})
		return detach, err
	})
}

// NewHostSink attaches one where a device's frames enter the stack of its namespace: no socket wakes up for them.
func NewHostSink(ns *os.File, device int) (*Sink, error) { return newHostSink(ns, device, nil) }

// NewHostEchoSink is NewHostSink, and sends requests of pingers of kind UDP back.
func NewHostEchoSink(ns *os.File, device int) (*Sink, error) {
	return newHostSink(ns, device, map[string]any{"reflects": uint8(1)})
}

func newHostSink(ns *os.File, device int, variables map[string]any) (*Sink, error) {
	return newSink(variables, func(o *objectObjects) (detach func() error, err error) {
		return attachTC(ns, device, o.SinkTc)
	})
}

func attachClsact(ns *os.File, device int, p *ebpf.Program) (detach func() error, err error) {
	clsact := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	filter := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: device, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
	}, Fd: p.FD(), Name: "traffic", DirectAction: true}
	if err := netlink.QdiscAdd(clsact); err != nil {
		return nil, err
	}
	if err := netlink.FilterAdd(filter); err != nil {
		return nil, errors.Join(err, netlink.QdiscDel(clsact))
	}
	return func() error { return netns.In(ns, func() error { return netlink.QdiscDel(clsact) }) }, nil
}

// Seen is what a sink counted since its last Reset.
type Seen struct {
	Frames int
	Took   time.Duration // from the first frame to the last, to a timer tick (4 ms where the kernel has 250 Hz)
	TTL    int           // of the last frame
}

// Rate is in frames a second.
func (s Seen) Rate() float64 { return float64(s.Frames) / s.Took.Seconds() }

// Seen reads the counters.
func (s *Sink) Seen() (Seen, error) {
	var perCPU []objectSeen
	if err := s.obj.Counts.Lookup(uint32(0), &perCPU); err != nil {
		return Seen{}, fmt.Errorf("read a sink: %w", err)
	}
	return total(perCPU), nil
}

func total(perCPU []objectSeen) Seen {
	var first, last uint64
	var sum Seen
	for _, c := range perCPU {
		if c.Frames == 0 {
			continue
		}
		if sum.Frames == 0 || c.First < first {
			first = c.First
		}
		if c.Last >= last {
			last, sum.TTL = c.Last, int(c.Ttl)
		}
		sum.Frames += int(c.Frames)
	}
	sum.Took = time.Duration(last - first)
	return sum
}

// Reset sets the counters to zero.
func (s *Sink) Reset() error {
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		err = s.obj.Counts.Put(uint32(0), make([]objectSeen, cpus))
	}
	if err != nil {
		return fmt.Errorf("reset a sink: %w", err)
	}
	return nil
}

// Close takes the sink from its device.
func (s *Sink) Close() error { return errors.Join(s.detach(), s.obj.Close()) }
