package datapath

import (
	"errors"
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

// Counters reads all counters, by ifindex; 0 stands for frames that entered at unknown devices.
func (d *DataPath) Counters() (map[int]Counters, error) {
	reasons, err := Reasons()
	if err != nil {
		return nil, err
	}
	var (
		ifindex uint32
		perCPU  []objectCounters
		all     = map[int]Counters{}
		records = d.counts.Iterate()
	)
	for records.Next(&ifindex, &perCPU) {
		all[int(ifindex)] = sum(perCPU, reasons)
	}
	if err := records.Err(); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	return all, nil
}

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

// makeCounters makes a port's counters, at zero, unless they are there.
func (d *DataPath) makeCounters(ifindex int) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	err = d.counts.Update(uint32(ifindex), make([]objectCounters, cpus), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("make counters of device %d: %w", ifindex, err)
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
