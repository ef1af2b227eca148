package program

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Frame is one that comes to a program.
type Frame struct {
	Data       []byte
	Interface  uint32         // by which it comes: number of the node's own
	Interfaces uint64         // that the node has: bit i is interface i
	Outer      netip.AddrPort // sender of the UDP packet in which it came; zero: it came as a frame
	Time       uint64         // ns; 0: now
}

// Outcome is what a program made of a frame.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	Fault   string  `json:"fault,omitempty"` // why the platform dropped it, whatever the verdict is
	Table   uint32  `json:"table"`
	Key     []byte  `json:"key,omitempty"` // as parse left it
	Filter  int     `json:"filter"`        // that matched: number among all, from 1; 0: none
	Result  Result  `json:"result"`        // of the filter

	Output uint32         `json:"output,omitempty"` // Send
	Flood  uint64         `json:"flood,omitempty"`  // Flood
	To     netip.AddrPort `json:"to,omitzero"`      // UDP
	Queue  uint32         `json:"queue,omitempty"`
	Flow   uint32         `json:"flow,omitempty"`
	Reason uint32         `json:"reason,omitempty"` // Punt
	Start  int            `json:"start"`            // where it begins in the frame that came
	Data   []byte         `json:"-"`                // the frame that leaves

	Copies []Outcome `json:"copies,omitempty"` // of the frame, one for each further filter that sends it
}

// Leaves reports whether a frame goes out.
func (o Outcome) Leaves() bool { return o.Verdict.Leaves() && o.Fault == "" }

// Faults names why the platform drops frames that a program meant to send, by number (enum program_fault).
var Faults = sync.OnceValues(func() ([]string, error) {
	spec, err := alone.read()
	if err != nil {
		return nil, err
	}
	var list *btf.Enum
	if err := spec.Types.TypeByName("program_fault", &list); err != nil {
		return nil, fmt.Errorf("read the names of faults: %w", err)
	}
	names := make([]string, stagesProgramFaultPROGRAM_FAULTS)
	for _, v := range list.Values {
		if v.Value > 0 && v.Value < uint64(len(names)) {
			names[v.Value] = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(v.Name, "PROGRAM_"),
				"_", " "))
		}
	}
	return names, nil
})

// OnOneCPU runs f on a thread that stays on one CPU, whose number it is given: what a program leaves behind is one
// record for each.
func OnOneCPU(f func(cpu int) error) error {
	runtime.LockOSThread()
	var was, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("ask on which CPUs the thread may run: %w", err)
	}
	cpu := 0
	for !was.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("keep the thread on CPU %d: %w", cpu, err)
	}
	err := f(cpu)
	if back := unix.SchedSetaffinity(0, &was); back != nil {
		return errors.Join(err, back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// Run sends one frame through the program. Call it in OnOneCPU, with the CPU's number.
func (p *Program) Run(hook Hook, cpu int, f Frame) (Outcome, error) {
	if err := p.maps[stagesMapProgramInputs].Put(uint32(0), f.input()); err != nil {
		return Outcome{}, fmt.Errorf("say where the frame comes from: %w", err)
	}
	const grown = 256 // that the kernel gives; no frame grows by more
	opts := ebpf.RunOptions{Data: f.Data, DataOut: make([]byte, len(f.Data)+grown)}
	if _, err := p.programs[hook].Run(&opts); err != nil {
		return Outcome{}, fmt.Errorf("run the program with a frame of %d bytes: %w", len(f.Data), err)
	}
	var records []stagesProgramRecord
	if err := p.maps[stagesMapProgramRecords].Lookup(uint32(0), &records); err != nil {
		return Outcome{}, fmt.Errorf("read what became of the frame: %w", err)
	}
	// Who looks for copies leaves what was found in the record, if it is nothing, too.
	r := &records[cpu]
	if c := &r.Outcome; c.Copies > 0 || c.More != 0 && Verdict(c.Verdict) == Send && c.Fault == 0 {
		return p.copied(int(c.Copies), f, opts.DataOut)
	}
	return p.outcome(r, opts.DataOut)
}

// outcome is what the record says. frame is the one that leaves, if one does.
func (p *Program) outcome(r *stagesProgramRecord, frame []byte) (Outcome, error) {
	o, err := r.outcome()
	if o.Leaves() {
		o.Data = frame
	}
	if o.Filter > 0 {
		o.Filter = p.numbers[place{o.Table, r.Match.Rank}]
	}
	return o, err
}

// copied is what became of a frame and its copies. What the program can write of each is in its window.
func (p *Program) copied(copies int, f Frame, frame []byte) (o Outcome, err error) {
	for i := range uint32(copies) + 1 {
		var r stagesProgramRecord
		if err := p.maps[stagesMapProgramCopies].Lookup(i, &r); err != nil {
			return o, fmt.Errorf("read what became of copy %d: %w", i, err)
		}
		data := bytes.Clone(frame)
		written := min(p.Object.reach.window, len(f.Data))
		copy(data, r.Packet.Window[headroom+int(r.Outcome.Start):headroom+written])
		one, err := p.outcome(&r, data)
		if err != nil {
			return o, err
		}
		if i == 0 {
			o = one
			continue
		}
		o.Copies = append(o.Copies, one)
	}
	return o, nil
}

func (f Frame) input() stagesProgramInput {
	return stagesProgramInput{Interface: f.Interface, Interfaces: f.Interfaces, Time: f.Time,
		OuterAddress: as16(f.Outer.Addr()), OuterPort: f.Outer.Port(), Tables: MaxTables}
}

func (r *stagesProgramRecord) outcome() (Outcome, error) {
	faults, err := Faults()
	if err != nil {
		return Outcome{}, err
	}
	c := &r.Outcome
	o := Outcome{Verdict: Verdict(c.Verdict), Table: r.Packet.Table, Filter: int(c.Matched), Reason: c.Reason,
		Queue: c.Queue, Flow: c.Flow, Start: int(c.Start), Key: append([]byte{}, r.Packet.Key[:]...)}
	if int(c.Fault) < len(faults) {
		o.Fault = faults[c.Fault]
	}
	switch o.Verdict {
	case Send:
		o.Output = c.Output
	case Flood:
		o.Flood = c.Flood
	case UDP:
		o.To = netip.AddrPortFrom(netip.AddrFrom16(c.Address).Unmap(), c.Port)
	default:
	}
	if o.Filter > 0 {
		o.Result = r.Match.Result.decode()
	}
	return o, nil
}

func (e *stagesPergolaResult) decode() Result {
	r := Result{Verdict: Verdict(e.Verdict), Interface: e.Interface, Queue: e.Queue, Arguments: e.Arguments}
	switch r.Verdict {
	case Send:
		r.More = e.More != 0
	case Flood:
		r.Flood = nativeOrder.Uint64(e.Address[:])
	case UDP:
		r.To = netip.AddrPortFrom(netip.AddrFrom16(e.Address).Unmap(), e.Port)
	default:
	}
	return r
}

// ReadCounters sums each counter over all CPUs, by name.
func (p *Program) ReadCounters() (map[string]uint64, error) {
	sums := map[string]uint64{}
	if len(p.Object.Counters) == 0 {
		return sums, nil
	}
	var perCPU [][]byte
	if err := p.maps[prefix+countersMap].Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	for i, name := range p.Object.Counters {
		for _, values := range perCPU {
			sums[name] += nativeOrder.Uint64(values[8*i:])
		}
	}
	return sums, nil
}

// When is the frame's time as a date, where it is that of a capture.
func (f Frame) When() time.Time { return time.Unix(0, int64(f.Time)) }
