package datapath

import "fmt"

// handoverPin is where the BPF link is pinned that keeps the device of AttachHandover taking frames from XDP.
const handoverPin = "handover-"

// AttachHandover makes a veth pair in the thread's namespace the way from XDP to tc for frames that packet programs
// have changed (bpf/handover.h): XDP sends into the device with index from, and they come out at to. The second one
// must not make super-frames of them (generic receive offload), and both must be up. Until this has been called, line
// cards leave all frames of packet programs to tc, as they came. Nodes must have packet programs already, and a process
// that adopts the data path has to call it again.
func (d *DataPath) AttachHandover(from, to int) error {
	if err := d.attachUnderlay(to, objectProgTakenOver); err != nil {
		return err
	}
	d.programming.RLock()
	defer d.programming.RUnlock()
	// A veth device takes frames from XDP where its other end has a program, too.
	const native = true
	if err := d.attachXDP(to, native, handoverPin, d.programs.PassXdp); err != nil {
		return fmt.Errorf("attach %s to device %d: %w", objectProgPassXdp, to, err)
	}
	if err := d.maps.Handovers.Put(uint32(0), uint32(from)); err != nil {
		return fmt.Errorf("let XDP hand frames over by device %d: %w", from, err)
	}
	return nil
}
