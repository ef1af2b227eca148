package datapath

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/node"
)

// The kinds of legs: enum leg_kind in bpf/fib.h.
const (
	legRouter = iota
	legProgram
)

// Nodes is what packet programs of nodes are put into. The maps stay the data path's: they are closed with it.
func (d *DataPath) Nodes() node.Config {
	return node.Config{
		Dir: d.nodesDir(), Maps: d.mapsByName(),
		Need: func(udp bool) error {
			if udp {
				return d.need(needPrograms | needUDP)
			}
			return d.need(needPrograms)
		},
	}
}

// nodesDir is beside the directories of ABIs: a node's memory stays when they change.
func (d *DataPath) nodesDir() string { return filepath.Join(d.dir, "nodes") }

// leaveProgram takes a port away from the packet program that has it: the number comes to mean another port.
func (d *DataPath) leaveProgram(port int) error {
	var leg objectLeg
	if err := d.maps.Legs.Lookup(uint32(port), &leg); err != nil {
		return fmt.Errorf("read leg %d: %w", port, err)
	}
	if leg.Kind != legProgram {
		return nil
	}
	if err := d.maps.Legs.Put(uint32(port), objectLeg{}); err != nil {
		return fmt.Errorf("clear leg %d: %w", port, err)
	}
	return nil
}

// putWalks makes the programs those that go on with frames that packet programs, or their slow paths, give back: those
// of bpf/node.h.
func (d *DataPath) putWalks() error {
	for slot, p := range []*ebpf.Program{d.programs.WalkOn, d.programs.SlowInject} {
		if err := d.maps.Walks.Put(uint32(slot), p); err != nil {
			return fmt.Errorf("put %v into slot %d: %w", p, slot, err)
		}
	}
	if err := d.maps.WalksXdp.Put(uint32(0), d.programs.WalkOnXdp); err != nil {
		return fmt.Errorf("put %s into its slot: %w", objectProgWalkOnXdp, err)
	}
	return nil
}
