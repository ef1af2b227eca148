package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Obstacle is why a router did not send a packet with labels on.
type Obstacle objectReason

// Obstacles of which the programs tell.
const (
	TTLExpired  = Obstacle(objectReasonREASON_LABEL_TTL)
	TooBig      = Obstacle(objectReasonREASON_TOO_BIG)
	RouterAlert = Obstacle(objectReasonREASON_ROUTER_ALERT) // label 1 (RFC 3032, 2.1)
)

// What is told of each router: so many packets a second, and so many at once (bpf/unwalked.h).
const (
	unwalkedRate  = 20
	unwalkedBurst = 40
)

// Unwalked is a packet with labels that a router has dropped.
type Unwalked struct {
	Space uint32 // the router's label space
	Port  int    // ifindex of the router's port by which the packet came,
	From  int    // and of the port by which it had left the node before
	Why   Obstacle
	Room  int // TooBig: of how many bytes it would have fit, with these labels

	Labels []StackEntry // with which it came to the router, the outermost first
	Packet []byte       // the first bytes of the IP packet behind them, as it came to the router
}

// StackEntry is a label as a packet carries it (RFC 3032, 2.1).
type StackEntry struct {
	Label uint32
	Class uint8
	TTL   uint8
}

// UnwalkedReader reads what the programs tell.
type UnwalkedReader struct {
	ring   *ringbuf.Reader
	frames *ebpf.Map
	record ringbuf.Record
	clock  func() (time.Duration, error) // that of the records
}

// tellFor is how long packets are of interest: what is there when an agent starts may be of any age.
const tellFor = time.Second

// ReadUnwalked begins to read packets that routers could not send on. All readers together get each packet once.
func (d *DataPath) ReadUnwalked() (*UnwalkedReader, error) {
	frames, err := d.maps.UnwalkedFrames.Clone() // outlives the data path
	if err != nil {
		return nil, fmt.Errorf("read packets that could not be sent on: %w", err)
	}
	ring, err := ringbuf.NewReader(frames)
	if err != nil {
		return nil, fmt.Errorf("read packets that could not be sent on: %w", errors.Join(err, frames.Close()))
	}
	return &UnwalkedReader{ring: ring, frames: frames, clock: coarseClock}, nil
}

// Read waits for a packet. It fails with os.ErrClosed after Close. What cannot be read (no IP behind the labels, or
// more labels than are told) and what is older than a second is left out.
func (r *UnwalkedReader) Read() (Unwalked, error) {
	for {
		if err := r.ring.ReadInto(&r.record); err != nil {
			return Unwalked{}, fmt.Errorf("read a packet that could not be sent on: %w", err)
		}
		var u objectUnwalked
		if err := binary.Read(bytes.NewReader(r.record.RawSample), binary.NativeEndian, &u); err != nil {
			return Unwalked{}, fmt.Errorf("read a packet that could not be sent on: %w", err)
		}
		now, err := r.clock()
		if err != nil {
			return Unwalked{}, fmt.Errorf("read the clock: %w", err)
		}
		if now-time.Duration(u.Time) > tellFor {
			continue
		}
		if p, ok := u.packet(); ok {
			return p, nil
		}
	}
}

// coarseClock is bpf_ktime_get_coarse_ns().
func coarseClock() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now)
	return time.Duration(now.Nano()), err
}

// Close ends Read.
func (r *UnwalkedReader) Close() error { return errors.Join(r.ring.Close(), r.frames.Close()) }

const (
	entryBytes  = 4
	bottomBit   = 1 << 8 // of an entry: the last one
	ethernetLen = 14
)

// packet works out the packet as it came to the router: its labels are those that the frame came to the program with,
// less those that routers before have taken off, and behind those that they have put on.
func (u *objectUnwalked) packet() (Unwalked, bool) {
	p := Unwalked{
		Space: u.Space, Port: int(u.At), From: int(u.From), Why: Obstacle(u.Why),
	}
	if p.Why == TooBig { // else it is another packet's
		p.Room = int(u.Room)
	}
	var bottom bool
	push := func(entry uint32) {
		p.Labels = append(p.Labels, StackEntry{entry >> 12, uint8(entry >> 9 & 7), uint8(entry)})
		bottom = entry&bottomBit != 0
	}
	for i := min(int(u.Edit.Pushed), MaxLabels) - 1; i >= 0; i-- {
		var entry [entryBytes]byte
		binary.NativeEndian.PutUint32(entry[:], u.Edit.Entry[i])
		push(binary.BigEndian.Uint32(entry[:]))
	}
	rest := u.Bytes[:min(int(u.Captured), len(u.Bytes))]
	popped := ethernetLen + int(u.Edit.Popped)*entryBytes
	if len(rest) < popped {
		return p, false
	}
	rest = rest[popped:]
	for !bottom {
		if len(rest) < entryBytes {
			return p, false
		}
		push(binary.BigEndian.Uint32(rest))
		rest = rest[entryBytes:]
	}
	p.Packet = bytes.Clone(rest)
	return p, lowerTTL(p.Packet, int(u.Edit.Lowered))
}

// lowerTTL lowers the TTL of an IP packet, and reports whether it is one.
func lowerTTL(ip []byte, by int) bool {
	const (
		leastIPv4, leastIPv6 = 20, 40
		ttl, checksum        = 8, 10 // IPv4
		hopLimit             = 7     // IPv6
	)
	switch {
	case len(ip) >= leastIPv4 && ip[0]>>4 == 4:
		ip[ttl] -= uint8(by)
		sum := uint32(binary.BigEndian.Uint16(ip[checksum:])) + uint32(by)<<8 // RFC 1624
		binary.BigEndian.PutUint16(ip[checksum:], uint16(sum+sum>>16))
		return true
	case len(ip) >= leastIPv6 && ip[0]>>4 == 6:
		ip[hopLimit] -= uint8(by)
		return true
	}
	return false
}

// SendOn makes an IP packet go on along the LSP in the place of one that the router could not send on (RFC 3032,
// 2.3.2): with the same labels, whose TTL is 255, it comes to the router by the same way. The calling thread must be in
// the namespace of the ports.
func (d *DataPath) SendOn(u *Unwalked, ip []byte) error {
	var to objectLeg
	if err := d.maps.Legs.Lookup(uint32(u.Port), &to); err != nil {
		return fmt.Errorf("send along an LSP: read port %d: %w", u.Port, err)
	}
	from, ok, err := d.Port(u.From)
	if err != nil || !ok || to.Router == 0 {
		return fmt.Errorf("send along an LSP: port %d or %d is gone: %w", u.From, u.Port,
			errors.Join(err, unix.ENODEV))
	}
	frame := append(to.Mac[:], from.MAC[:]...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_MPLS_UC)
	for i, l := range u.Labels {
		entry := l.Label<<12 | uint32(l.Class)<<9 | 255
		if i == len(u.Labels)-1 {
			entry |= bottomBit
		}
		frame = binary.BigEndian.AppendUint32(frame, entry)
	}
	if err := d.enter(u.From, append(frame, ip...)); err != nil {
		return fmt.Errorf("send along an LSP: %w", err)
	}
	return nil
}

// enter makes a frame enter at a port, as if the port's node had sent it.
func (d *DataPath) enter(port int, frame []byte) error {
	d.programming.RLock()
	defer d.programming.RUnlock()
	verdict, err := d.programs.EnterPort.Run(&ebpf.RunOptions{
		Data: frame, Context: &entering{CB: [5]uint32{uint32(port)}},
	})
	if err != nil {
		return err
	}
	if verdict != 0 {
		return fmt.Errorf("enter port %d: %w", port, unix.Errno(-int32(verdict)))
	}
	return nil
}

// entering is struct __sk_buff up to cb.
type entering struct {
	_  [12]uint32
	CB [5]uint32
}
