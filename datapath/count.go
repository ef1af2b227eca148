package datapath

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Traffic counts frames as the kernel does for devices: a GSO super-frame is one frame of its own length.
type Traffic struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"` // with Ethernet headers
}

// Counters are one port's, summed over all CPUs. They hold what the device's own statistics do not have.
type Counters struct {
	Handed Traffic // to the node, past the port's device: not in the device's own statistics
	// Through a router on the fast path, so that its kernel did not see them: they entered or left the router here.
	WalkedIn, WalkedOut Traffic

	Emerged Traffic           // out of the tunnel that begins here, without outer headers
	Dropped map[string]uint64 // frames from the node, by reason; reasons that never were are absent
}

// Counters reads the counters of all ports, by ifindex; 0 stands for frames that entered at unknown devices.
func (d *DataPath) Counters() (map[int]Counters, error) {
	reasons, err := Reasons()
	if err != nil {
		return nil, err
	}
	ports, err := d.Ports()
	if err != nil {
		return nil, err
	}
	ports[nobody] = Port{}
	all := make(map[int]Counters, len(ports))
	for ifindex := range ports {
		var perCPU []objectCounters
		if err := d.maps.Counts.Lookup(uint32(ifindex), &perCPU); err != nil {
			return nil, fmt.Errorf("read counters of device %d: %w", ifindex, err)
		}
		all[ifindex] = sum(perCPU, reasons)
	}
	return all, nil
}

// nobody is the ifindex under which frames of unknown ports are counted.
const nobody = 0

func sum(perCPU []objectCounters, reasons []string) Counters {
	total := Counters{Dropped: map[string]uint64{}}
	for _, c := range perCPU {
		total.Handed.add(c.Handed)
		total.WalkedIn.add(c.WalkedIn)
		total.WalkedOut.add(c.WalkedOut)
		total.Emerged.add(c.Emerged)
		for reason, n := range c.Dropped {
			if n > 0 {
				total.Dropped[reasons[reason]] += n
			}
		}
	}
	return total
}

func (t *Traffic) add(u objectTraffic) {
	t.Frames += u.Frames
	t.Bytes += u.Bytes
}

func (d *DataPath) clearCounters(ifindex int) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	if err := d.maps.Counts.Put(uint32(ifindex), make([]objectCounters, cpus)); err != nil {
		return fmt.Errorf("clear counters of device %d: %w", ifindex, err)
	}
	return nil
}

// Punted says how many frames the fast path handed to a router's kernel, by reason; reasons that never were are
// absent. router is a router's id (package fib).
func (d *DataPath) Punted(router uint32) (map[string]uint64, error) {
	punts, err := Punts()
	if err != nil {
		return nil, err
	}
	var perCPU []objectPunted
	if err := d.maps.Punts.Lookup(router, &perCPU); err != nil {
		return nil, fmt.Errorf("read punts of router %d: %w", router, err)
	}
	total := map[string]uint64{}
	for _, c := range perCPU {
		for punt, n := range c.Frames {
			if n > 0 {
				total[punts[punt]] += n
			}
		}
	}
	return total, nil
}

// SetPunted makes a router's counts begin at these, by reason: its id may have been another's, and it may have had
// another. The programs must not be counting under it yet.
func (d *DataPath) SetPunted(router uint32, counts map[string]uint64) error {
	punts, err := Punts()
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	perCPU := make([]objectPunted, cpus)
	for punt, name := range punts {
		perCPU[0].Frames[punt] = counts[name]
	}
	if err := d.maps.Punts.Put(router, perCPU); err != nil {
		return fmt.Errorf("set punts of router %d: %w", router, err)
	}
	return nil
}

// Reasons names why frames are dropped, by number; it is the enum of bpf/reasons.h.
var Reasons = sync.OnceValues(func() ([]string, error) { return names("reason", "REASON_", objectReasonREASONS) })

// Punts names why frames are handed to routers' kernels, by number; it is the enum of bpf/punt.h.
var Punts = sync.OnceValues(func() ([]string, error) { return names("punt", "PUNT_", objectPuntPUNTS) })

// names reads an enum of so many values out of the object: REASON_NOT_WIRED is "not wired".
func names[N ~uint32](enum, prefix string, n N) ([]string, error) {
	spec, err := loadObject()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	var list *btf.Enum
	if err := spec.Types.TypeByName(enum, &list); err != nil {
		return nil, fmt.Errorf("read names of enum %s: %w", enum, err)
	}
	names := make([]string, n)
	for _, v := range list.Values {
		if v.Value < uint64(len(names)) {
			words := strings.ReplaceAll(strings.TrimPrefix(v.Name, prefix), "_", " ")
			names[v.Value] = strings.ToLower(words)
		}
	}
	return names, nil
}
