package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Mode says what becomes of the frames that a node sends into its port.
type Mode uint32

// The modes.
const (
	None   = Mode(objectModeMODE_NONE)   // dropped
	Kernel = Mode(objectModeMODE_KERNEL) // left to the device's master, a bridge
	Peer   = Mode(objectModeMODE_PEER)   // handed to the peer port's node at once
	Queue  = Mode(objectModeMODE_QUEUE)  // queued at the peer port's device, whose qdisc shapes them
	// Tunnelled: sent into the tunnel that begins at the peer port, of whose veth pair this is the far end.
	Tunnelled = Mode(objectModeMODE_TUNNEL)
)

// Port is what the data path knows of a port.
type Port struct {
	Mode Mode
	Peer int     // ifindex of the port joined with; modes Peer, Queue and Tunnelled
	MTU  int     // of the node's interface; never 0
	MAC  [6]byte // of the node's interface

	// External says that there is no node: the device itself leads out of the machine, and frames to the port leave
	// by it; or by the tunnel that begins at the port (SetTunnel).
	External bool

	// Classified says that rules choose the class of frames that the node sends (SetRules).
	Classified bool

	// Queues is how many queues a packet program has to choose from for frames that the node sends: 0 to Queues - 1
	// are the classes FirstQueue and up of the qdisc that they go to. 0: it has no choice.
	Queues int

	// Reserves says that frames within a reservation of their LSP have the class ReservedQueue.
	Reserves bool

	Police Policer // bounds what the node sends; the zero value: nothing does

	// Plain is, of a link with a packet program at the other end, the ifindex of a device that makes frames plain
	// which the program is to see: it has no segmentation offload, and its far end is a port of mode Peer that
	// leads to the program's port, whose record names that far end as its own Plain. 0: there is none, and
	// super-frames that come to the program are dropped.
	Plain int
}

// Classes of a port, major and minor number: that of queue number 0, behind which the next queue has the next class,
// and that of frames within a reservation.
const (
	FirstQueue    = 1<<16 | 0x10
	ReservedQueue = 1<<16 | 2
)

// MaxPorts bounds the ifindexes of ports: each is below.
const MaxPorts = 16384

// Add takes a new port into care: its counters start at zero, and no tunnel leads to it that an earlier port of this
// number left.
func (d *DataPath) Add(ifindex int, p Port) error {
	err := errors.Join(d.leaveProgram(ifindex), d.DeleteTunnel(ifindex), d.clearCounters(ifindex),
		d.SetNote(NoteProcess, ifindex, 0))
	if err != nil {
		return err
	}
	return d.Set(ifindex, p)
}

// Set writes a port's record, for frames that arrive from now on.
func (d *DataPath) Set(ifindex int, p Port) error {
	if err := d.need(p.needs()); err != nil {
		return fmt.Errorf("write port record %d: %w", ifindex, err)
	}
	if err := d.setPolicer(ifindex, p.Police); err != nil {
		return fmt.Errorf("police port %d: %w", ifindex, err)
	}
	record := objectPort{
		Mode: objectMode(p.Mode), Peer: uint32(p.Peer), Mtu: uint32(p.MTU), Mac: p.MAC,
		External:   flag(p.External),
		Classified: flag(p.Classified), Policed: flag(p.Police != Policer{}), Single: flag(p.Police.Single),
		Plain: uint16(p.Plain), Queues: uint16(p.Queues), Reserves: flag(p.Reserves),
	}
	if err := d.maps.Ports.Put(uint32(ifindex), record); err != nil {
		return fmt.Errorf("write port record %d: %w", ifindex, err)
	}
	return nil
}

// Port reads a port's record. ok is false where there is none.
func (d *DataPath) Port(ifindex int) (p Port, ok bool, err error) {
	if ifindex <= 0 || ifindex >= MaxPorts {
		return Port{}, false, nil
	}
	var record objectPort
	if err = d.maps.Ports.Lookup(uint32(ifindex), &record); err != nil {
		return Port{}, false, fmt.Errorf("read port record %d: %w", ifindex, err)
	}
	p, err = d.portOf(ifindex, record)
	return p, record.Mtu != 0, err
}

// Ports reads all port records, by ifindex. Records that are written meanwhile may be in it or not.
func (d *DataPath) Ports() (map[int]Port, error) {
	var (
		at       ebpf.MapBatchCursor
		indexes  = make([]uint32, MaxPorts)
		records  = make([]objectPort, MaxPorts)
		all      = map[int]Port{}
		n, err   = d.maps.Ports.BatchLookup(&at, indexes, records, nil)
		complete = err == nil || errors.Is(err, ebpf.ErrKeyNotExist) // there are no more
	)
	if !complete {
		return nil, fmt.Errorf("read port records: %w", err)
	}
	for i, record := range records[:n] {
		if record.Mtu == 0 {
			continue
		}
		index := int(indexes[i])
		if all[index], err = d.portOf(index, record); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Forget deletes what is kept of a port. It is no error if nothing is.
func (d *DataPath) Forget(ifindex int) error {
	if ifindex <= 0 || ifindex >= MaxPorts {
		return nil
	}
	return errors.Join(d.leaveProgram(ifindex), d.DeleteTunnel(ifindex), d.Set(ifindex, Port{}),
		d.SetRules(ifindex, nil), d.SetNote(NoteProcess, ifindex, 0))
}

// Router gives the id (package fib) of the router that a port belongs to; 0: none that the fast path knows.
func (d *DataPath) Router(port int) (uint32, error) {
	var leg objectLeg
	if err := d.maps.Legs.Lookup(uint32(port), &leg); err != nil {
		return 0, fmt.Errorf("read leg %d: %w", port, err)
	}
	if leg.Kind != legRouter {
		return 0, nil
	}
	return leg.Router, nil
}

func (d *DataPath) portOf(ifindex int, r objectPort) (Port, error) {
	police, err := d.policer(ifindex, r)
	return Port{
		Mode: Mode(r.Mode), Peer: int(r.Peer), MTU: int(r.Mtu), MAC: r.Mac, External: r.External != 0,
		Classified: r.Classified != 0, Police: police, Plain: int(r.Plain), Queues: int(r.Queues),
		Reserves: r.Reserves != 0,
	}, err
}
