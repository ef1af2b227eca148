package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/model/slice"
)

// Program is a packet program of a node.
type Program struct {
	Slice    uint16
	File     string // that the user named, for messages
	Object   []byte
	Filters  []string // one each, as program.ParseFilters has them
	Ports    []string // devices of the node's interfaces, in the order of their numbers; "": it is down
	SlowPath slice.SlowPath
	UDP      []UDPPort // interfaces that are no devices
	Reserve  slice.Reserve
	Digest   string // of what it is made from; kept with it
}

// UDPPort is an interface of a packet program that is a UDP port of the machine. It takes an open underlay.
type UDPPort = node.UDPPort

// ProgramState is a packet program that runs.
type ProgramState struct {
	Digest   string // as SetProgram was given it; empty: it was left half made
	Runs     bool   // false: its frames are dropped until SetProgram makes it run
	Ports    []int  // indexes of devices, by the numbers of interfaces; 0: none. Zeros at the end are left out
	Verified int    // instructions that the kernel's verifier looked at
	Stack    int    // bytes
	// CutOff means that the way from XDP to tc is not there. The program runs, and line cards leave all of its
	// frames to tc, until SetProgram has made that way.
	CutOff bool
}

// ProgramCounters is what a packet program counted since it was first set.
type ProgramCounters struct {
	Own      map[string]uint64 // by the names of PERGOLA_COUNTERS
	Platform map[string]uint64 // frames, bytes, and what became of them
}

// TryProgram loads a packet program as SetProgram does, without a node, and forgets it: the kernel's verifier finds
// what no check of the object finds. The error is a *program.RefusedError where the program is to blame.
func TryProgram(file string, object []byte) error {
	o, err := program.Read(file, object)
	if err != nil {
		return err
	}
	p, err := program.Load(o, nil)
	if err != nil {
		return err
	}
	return p.Close()
}

// SetProgram makes a packet program run at its ports, or replaces it: then no frame is lost, and memory and counters
// are kept as far as they are the same. If it fails, what ran before goes on.
func (s *HostNetwork) SetProgram(ctx context.Context, name string, p Program) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o, err := program.Read(p.File, p.Object)
	if err != nil {
		return explainProgram(p, err)
	}
	w := node.Node{
		Slice: uint32(p.Slice), Object: p.Object, Digest: p.Digest, SlowPath: slowPaths[p.SlowPath],
		Interfaces: make([]int, len(p.Ports)), UDP: p.UDP,
		Bounds: node.Bounds{
			Filters: p.Reserve.Filters, Masks: p.Reserve.Masks, FastPath: p.Reserve.FastPath,
		},
	}
	if size := int64(o.Memory.Size()); size > p.Reserve.MemoryBound() {
		return fmt.Errorf("%s declares %d bytes of memory, and the node may have %d", o.Name, size,
			p.Reserve.MemoryBound())
	}
	if w.Filters, err = program.ParseFilterList(p.Filters, o.Key); err != nil {
		return fmt.Errorf("read the filters of %s: %w", p.File, err)
	}
	indexes, err := s.indexesOf(p.Ports)
	if err != nil {
		return fmt.Errorf("find the ports of %s: %w", name, err)
	}
	for i, device := range p.Ports {
		index, there := indexes[device]
		if !there && device != "" {
			return fmt.Errorf("find port %s of %s: %w", device, name, ErrNoDevice)
		}
		w.Interfaces[i] = index
	}
	for _, u := range p.UDP {
		if !u.Local.Is4() {
			return fmt.Errorf("UDP port %d of %s leads nowhere: this host has no IPv4 address by which "+
				"others reach it", u.Port, name)
		}
	}
	if err := s.setProgram(name, w); err != nil {
		return explainProgram(p, err)
	}
	if err := s.makeHandover(); err != nil {
		return &CutOffError{err}
	}
	return nil
}

// explainProgram adds to what is wrong with a program what to do about it.
func explainProgram(p Program, err error) error {
	var refused *program.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	refused.Object = filepath.Base(p.File)
	if refused.Advice == "" {
		return refused
	}
	return fmt.Errorf("%w (%s)", refused, refused.Advice)
}

// DeleteProgram takes a packet program off its ports, with its memory. It is no error if it is not there.
func (s *HostNetwork) DeleteProgram(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.deleteProgram(name)
}

// Programs lists the packet programs that run.
func (s *HostNetwork) Programs(ctx context.Context) (map[string]ProgramState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	running, err := s.programs.List()
	if err != nil {
		return nil, fmt.Errorf("list packet programs: %w", err)
	}
	if len(running) == 0 { // the way from XDP to tc is made with the first one
		return map[string]ProgramState{}, nil
	}
	reachable, err := s.hasHandover()
	if err != nil {
		return nil, fmt.Errorf("look for the way from XDP to tc: %w", err)
	}
	all := make(map[string]ProgramState, len(running))
	for name, is := range running {
		cost := is.Costs[program.TC]
		all[name] = ProgramState{
			Digest: is.Digest, Runs: is.Runs, Ports: is.Ports, Verified: cost.Verified, Stack: cost.Stack,
			CutOff: !reachable,
		}
	}
	return all, nil
}

// ProgramMemory is the memory that a packet program declares.
type ProgramMemory struct {
	Element int    // bytes of an element; elements begin at multiples of 8 bytes
	Count   int    // elements; 0: it declares none
	Number  uint32 // of this block: another one after a replacement that could not keep it
}

// ProgramMemory opens the memory of a packet program, to be mapped; nil where it declares none. The caller closes it.
func (s *HostNetwork) ProgramMemory(ctx context.Context, name string) (*os.File, ProgramMemory, error) {
	if err := ctx.Err(); err != nil {
		return nil, ProgramMemory{}, err
	}
	f, m, err := s.programs.Memory(name)
	return f, ProgramMemory{Element: m.Element, Count: m.Count, Number: m.Number}, err
}

// ProgramTime is the processor time of all packet programs of a slice.
type ProgramTime = node.Time

// ProgramTimes is the processor time of packet programs, by slice.
func (s *HostNetwork) ProgramTimes(ctx context.Context) (map[uint16]ProgramTime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	times, err := s.programs.Times()
	if err != nil {
		return nil, fmt.Errorf("read the processor time of packet programs: %w", err)
	}
	all := make(map[uint16]ProgramTime, len(times))
	for slice, t := range times {
		all[uint16(slice)] = t
	}
	return all, nil
}

// ProgramCounters reads what a packet program and its node counted. The platform's names have a space, as no program's
// have.
func (s *HostNetwork) ProgramCounters(ctx context.Context, name string) (ProgramCounters, error) {
	c := ProgramCounters{Own: map[string]uint64{}, Platform: map[string]uint64{}}
	if err := ctx.Err(); err != nil {
		return c, err
	}
	all, err := s.programs.Counters(name)
	if err == nil {
		err = s.countSlowPath(name, all)
	}
	for counter, n := range all {
		if strings.Contains(counter, " ") {
			c.Platform[counter] = n
		} else {
			c.Own[counter] = n
		}
	}
	return c, err
}
