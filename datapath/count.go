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
	Handed  Traffic           // to the node, past the port's device: not in the device's own statistics
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

// Reasons names why frames are dropped, by number; it is the enum of bpf/reasons.h.
var Reasons = sync.OnceValues(func() ([]string, error) {
	spec, err := loadObject()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	var list *btf.Enum
	if err := spec.Types.TypeByName("reason", &list); err != nil {
		return nil, fmt.Errorf("read reasons: %w", err)
	}
	names := make([]string, objectReasonREASONS)
	for _, v := range list.Values {
		if v.Value < uint64(len(names)) {
			name := strings.TrimPrefix(v.Name, "REASON_")
			names[v.Value] = strings.ToLower(strings.ReplaceAll(name, "_", " "))
		}
	}
	return names, nil
})
