package node

import (
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/datapath/program"
)

// Counters are what a node has counted, over all replacements: those of its program, by their names, and those of the
// platform, whose names have a space, as no program's have:
//
//	frames in, bytes in    that came to the node
//	verdict send, ...      how many of them the program gave this verdict
//	copies flooded         that floods made beside the frame itself
//	copies lost            for which the kernel had no room
//	no such queue          frames for a queue that the interface has not: they were put into queue 0
//	slow path handed       that were put to the tap device
//	slow path wrote        that came from there, and were in order
//	fault no room, ...     why the platform dropped frames that the program did not mean to drop
func (n *Nodes) Counters(name string) (map[string]uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return nil, fmt.Errorf("count frames of %s: it has no packet program that runs", name)
	}
	all, err := x.loaded.ReadCounters()
	if err != nil {
		return nil, err
	}
	faults, err := program.Faults()
	if err != nil {
		return nil, err
	}
	var perCPU []objectNodeTraffic
	if err := x.loaded.Maps()[objectMapNodeCounts].Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("count frames of %s: %w", name, err)
	}
	for _, c := range perCPU {
		all["frames in"] += c.Frames
		all["bytes in"] += c.Bytes
		all["copies flooded"] += c.Copies
		all["copies lost"] += c.Lost
		if c.NoQueue > 0 {
			all["no such queue"] += c.NoQueue
		}
		all["slow path handed"] += c.Handed
		all["slow path wrote"] += c.Written
		for verdict, frames := range c.Verdicts {
			if frames > 0 {
				all["verdict "+program.Verdict(verdict).String()] += frames
			}
		}
		for fault, frames := range c.Faults {
			if frames > 0 && fault < len(faults) {
				all["fault "+strings.TrimSpace(faults[fault])] += frames
			}
		}
	}
	return all, nil
}
