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
)

// Port is what the data path knows of a port.
type Port struct {
	Mode Mode
	Peer int     // ifindex of the port joined with; modes Peer and Queue
	MTU  int     // of the node's interface
	MAC  [6]byte // of the node's interface
}

// Set writes a port's record, for frames that arrive from now on.
func (d *DataPath) Set(ifindex int, p Port) error {
	if err := d.makeCounters(ifindex); err != nil {
		return err
	}
	record := objectPort{Mode: objectMode(p.Mode), Peer: uint32(p.Peer), Mtu: uint32(p.MTU), Mac: p.MAC}
	if err := d.ports.Put(uint32(ifindex), record); err != nil {
		return fmt.Errorf("write port record %d: %w", ifindex, err)
	}
	return nil
}

// Port reads a port's record. ok is false where there is none.
func (d *DataPath) Port(ifindex int) (p Port, ok bool, err error) {
	var record objectPort
	err = d.ports.Lookup(uint32(ifindex), &record)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Port{}, false, nil
	}
	if err != nil {
		return Port{}, false, fmt.Errorf("read port record %d: %w", ifindex, err)
	}
	return portOf(record), true, nil
}

// Ports reads all port records, by ifindex. Records that are written or deleted meanwhile may be in it or not.
func (d *DataPath) Ports() (map[int]Port, error) {
	var (
		ifindex uint32
		record  objectPort
		all     = map[int]Port{}
		records = d.ports.Iterate()
	)
	for records.Next(&ifindex, &record) {
		all[int(ifindex)] = portOf(record)
	}
	if err := records.Err(); err != nil {
		return nil, fmt.Errorf("read port records: %w", err)
	}
	return all, nil
}

// Forget deletes what is kept of a port. It is no error if nothing is.
func (d *DataPath) Forget(ifindex int) error {
	for _, m := range []*ebpf.Map{d.ports, d.counts} {
		if err := m.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete port record %d: %w", ifindex, err)
		}
	}
	return nil
}

func portOf(r objectPort) Port {
	return Port{Mode: Mode(r.Mode), Peer: int(r.Peer), MTU: int(r.Mtu), MAC: r.Mac}
}
