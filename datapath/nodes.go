package datapath

import (
	"fmt"
	"path/filepath"

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
		Need: func() error { return d.need(needPrograms) },
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

// putWalkOn makes the program the one that goes on with frames that packet programs give back.
func (d *DataPath) putWalkOn() error {
	if err := d.maps.Walks.Put(uint32(0), d.programs.WalkOn); err != nil {
		return fmt.Errorf("put %s into its slot: %w", objectProgWalkOn, err)
	}
	return nil
}
