package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

const (
	// belowQueue is how many frames the queue of a thread of best effort takes. It is longer than what may wait
	// (MAX_WAITING in bpf/early.h), so that none is handed over in vain.
	belowQueue = 1024
	// bestEffortDepth is what a full bucket holds: the coarse clock moves by up to 10 ms.
	bestEffortDepth = 20 * time.Millisecond
	// leastBestEffort keeps what a frame takes of the bucket within 64 bits. It is next to nothing.
	leastBestEffort = 1e-6
)

// SetBestEffort says which share of each core, from a millionth to 1, frames without a reservation may have where line
// cards receive them (bpf/early.h). They then wait behind frames that have one, in a thread of the kernel for each core
// and kind of card, and are dropped where a core has no time for them. 0: line cards treat all frames alike, and the
// threads end when they have done what waits there.
//
// That those with a reservation are first is up to the caller: cards must be polled by real-time threads.
func (d *DataPath) SetBestEffort(share float64) error {
	if share != 0 && !(share >= leastBestEffort && share <= 1) {
		return fmt.Errorf("let best effort have %v of each core: want 0, or %v to 1", share, leastBestEffort)
	}
	if err := d.setBestEffort(share); err != nil {
		return fmt.Errorf("let best effort have %v of each core: %w", share, err)
	}
	return nil
}

// setBestEffort has the threads before frames are led to them, and until none is.
func (d *DataPath) setBestEffort(share float64) error {
	const one = 1 << meterScale
	if share == 0 {
		if err := d.maps.EarlyRules.Put(uint32(0), objectEarly{}); err != nil {
			return err
		}
		return d.endThreads()
	}
	var is objectEarly
	want := objectEarly{Cost: uint64(one / share), Depth: uint64(bestEffortDepth), On: 1}
	if err := d.maps.EarlyRules.Lookup(uint32(0), &is); err != nil || is == want {
		return err
	}
	if err := d.need(needEarly); err != nil {
		return err
	}
	if is.On == 0 {
		if err := d.startThreads(); err != nil {
			return err
		}
	}
	if err := d.forgetDebts(); err != nil {
		return err
	}
	return d.maps.EarlyRules.Put(uint32(0), want)
}

// forgetDebts begins the records of all cores anew. By another share, a core may owe hours.
func (d *DataPath) forgetDebts() error {
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("ask for the number of cores: %w", err)
	}
	return d.maps.BestEfforts.Put(uint32(0), make([]objectBestEffort, cores))
}

// BestEffort gives the share that SetBestEffort was told last, as far as the data path knows it.
func (d *DataPath) BestEffort() (share float64, err error) {
	var e objectEarly
	if err := d.maps.EarlyRules.Lookup(uint32(0), &e); err != nil {
		return 0, fmt.Errorf("read the share of best effort: %w", err)
	}
	if e.On == 0 || e.Cost == 0 {
		return 0, nil
	}
	return (1 << meterScale) / float64(e.Cost), nil
}

// ReservedWork is what line cards did with frames that have a reservation, since early demultiplexing has begun.
type ReservedWork struct {
	Sent uint64 // frames that left by XDP
	// Time is the processor time that they took. One frame in 16 is measured, so that it is an estimate.
	Time time.Duration
	Left uint64 // frames that were left to programs of tc, whose time is not known
}

// ReservedWork reads what all cores did.
func (d *DataPath) ReservedWork() (sum ReservedWork, err error) {
	var cores []objectBestEffort
	if err := d.maps.BestEfforts.Lookup(uint32(0), &cores); err != nil {
		return sum, fmt.Errorf("read what line cards did with reserved frames: %w", err)
	}
	for _, c := range cores {
		sum.Sent += c.Sent
		sum.Time += time.Duration(c.Time)
		sum.Left += c.Left
	}
	return sum, nil
}

// thread is struct bpf_cpumap_val.
type thread struct {
	Queue   uint32
	Program uint32 // its file descriptor
}

// below lists the maps of threads, and their programs.
func (d *DataPath) below() map[*ebpf.Map]*ebpf.Program {
	return map[*ebpf.Map]*ebpf.Program{
		d.maps.BelowPorts: d.programs.LinecardBelow, d.maps.BelowNics: d.programs.UnderlayLinecardBelow,
	}
}

// startThreads gives each core its threads, in the place of those that it has: these do what waits there first.
func (d *DataPath) startThreads() error {
	d.programming.RLock()
	defer d.programming.RUnlock()
	return d.startThreadsLocked()
}

func (d *DataPath) startThreadsLocked() error {
	for m, p := range d.below() {
		for core := range m.MaxEntries() {
			if err := m.Put(core, thread{belowQueue, uint32(p.FD())}); err != nil {
				return fmt.Errorf("start the thread of best effort on core %d: %w", core, err)
			}
		}
	}
	return nil
}

// replaceThreads gives the threads newer programs, where there are threads.
func (d *DataPath) replaceThreads() error {
	share, err := d.BestEffort()
	if err != nil || share == 0 {
		return err
	}
	return d.startThreadsLocked()
}

func (d *DataPath) endThreads() error {
	for m := range d.below() {
		for core := range m.MaxEntries() {
			if err := m.Delete(core); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("end the thread of best effort on core %d: %w", core, err)
			}
		}
	}
	return nil
}
