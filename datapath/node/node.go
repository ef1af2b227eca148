// Package node puts packet programs of nodes on the fast path: for each node a copy of the platform's program
// (bpf/node.c) with the slice's code in it, which the walk calls where a frame comes to one of the node's ports.
//
// All that belongs to a node is pinned in a directory of its own, with what it was made from: programs and memory
// outlive the process that loaded them, and Open adopts them. A replacement is complete before frames meet it, and
// then is one store. What a process that was killed left half made is finished or removed by Open.
package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/datapath/program"
)

// MaxNodes bounds the nodes of a host: MAX_NODES in bpf/node.h, whose number 0 is none.
const MaxNodes = 4096

// Config says where nodes are. DataPath.Nodes gives it.
type Config struct {
	Dir  string               // of a bpf file system, for the pins; it need not exist
	Maps map[string]*ebpf.Map // of the data path, by name; they must stay open
	// Need makes the data path call programs of nodes; udp: also by UDP ports.
	Need func(udp bool) error
	// Cores are how much processor time packet programs may take together; 0: as much as they want.
	Cores float64
	Log   *slog.Logger // nil: nowhere
}

// Node is what a node with a packet program is made from.
type Node struct {
	Slice      uint32
	Object     []byte // as program.Build made it
	Digest     string // of all that the node is made from; it is kept with the node
	Interfaces []int  // ifindex of the port of interface i+1; 0: it is not there now, or down
	SlowPath   SlowPath
	// Filters are in its tables when it is made, or replaced and they are others than before. What Nodes.Filters
	// changes stays as long as it is not made anew.
	Filters []program.Filter
	Bounds  Bounds
	UDP     []UDPPort // interfaces that are UDP ports of this machine
}

// SlowPath says where frames go that a program punts: enum slow_path in bpf/slow.h.
type SlowPath uint32

// The slow paths.
const (
	SlowNone      SlowPath = iota // they are dropped, and counted
	SlowInterface                 // as they came, to the interface by which they came
	SlowSocket                    // to the tap device of the node, behind a header (pergola/slow.h)
)

// FirstTap is FIRST_TAP in bpf/slow.h: the index of a node's tap device is FirstTap and the node's number.
const FirstTap = 0x40000000

// State is what is there of a node.
type State struct {
	// Digest is what Set was given. It is another one where what is there does not run, or not in the platform's
	// present program: Set makes it run, and keeps its memory. "": there is nothing to keep.
	Digest string
	Runs   bool  // false: its frames are dropped until Set makes it run; there are no counters
	Ports  []int // as Node.Interfaces, without zeros at the end
	Costs  map[program.Hook]program.Cost
}

// Nodes are the nodes with packet programs of a host. There is one process at a time that has them open. The methods
// may be called concurrently.
type Nodes struct {
	config Config

	mu      sync.Mutex
	legs    *legs
	filters *filter.Filters // of all nodes; nil until there is one: their memory is several MiB
	pool    filter.Budget   // of all nodes, for what they have without a reservation
	nodes   map[string]*node
	last    uint32             // number that was given last
	shared  map[uint32]float64 // cores of slices, as they were written last; nil: they were not
}

// node is one that is there.
type node struct {
	name   string
	number uint32
	about  about
	loaded *program.Program // nil: it cannot be opened
	table  uint32           // the first of its tables of filters
	holds  holding          // of tables of filters
	budget filter.Budget    // of these
	runs   bool             // it is what the walk calls, and all of it could be opened
	placed bool             // its pins are in their place
}

// holding says which tables of filters a node has. Nobody else gets these.
type holding uint8

const (
	noTables holding = iota // no frame meets its program
	itsTable                // node.table
	// unknownTables: the walk may call its program, and what it has could not be read.
	unknownTables
)

// Open adopts what is pinned, and removes what is half made.
func Open(c Config) (*Nodes, error) {
	l, err := openLegs(c.Maps[objectMapLegs])
	if err != nil {
		return nil, err
	}
	n := &Nodes{config: c, legs: l, nodes: map[string]*node{}, pool: newPool()}
	if err := n.adopt(); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt nodes with packet programs: %w", err), n.Close())
	}
	return n, nil
}

// Close lets go of what is open; all nodes stay as they are.
func (n *Nodes) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := []error{n.legs.close()}
	if n.filters != nil {
		errs = append(errs, n.filters.Close())
	}
	for _, x := range n.nodes {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

func (x *node) close() error {
	if x.loaded == nil {
		return nil
	}
	return x.loaded.Close()
}

// List says which nodes are there, by name.
func (n *Nodes) List() (map[string]State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]State{}
	for name, x := range n.nodes {
		if !x.runs {
			all[name] = State{Digest: x.digest()}
			continue
		}
		ports, err := x.ports()
		if err != nil {
			return nil, err
		}
		all[name] = State{
			Digest: x.digest(), Runs: true, Ports: trim(n.legs.those(x.number, ports)),
			Costs: x.about.Costs,
		}
	}
	return all, nil
}

func (x *node) digest() string {
	if x.loaded == nil || x.runs && x.about.Platform == platformDigest() {
		return x.about.Digest
	}
	return x.about.Digest + " of an older build"
}

// Delete takes a node off the fast path, with its memory and counters. It is no error if it is not there.
func (n *Nodes) Delete(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil {
		return nil
	}
	n.legs.keep(x.number, nil)
	if err := n.setOwners(x.number, nil); err != nil {
		return fmt.Errorf("delete the packet program of %s: %w", name, err)
	}
	for _, slot := range slots {
		if err := n.emptySlot(slot.name, x.number); err != nil {
			return fmt.Errorf("delete the packet program of %s: %w", name, err)
		}
	}
	x.runs, x.holds = false, noTables
	if err := errors.Join(os.RemoveAll(n.pin(x)), os.RemoveAll(n.newPin(x))); err != nil {
		return fmt.Errorf("unpin the packet program of %s: %w", name, err)
	}
	delete(n.nodes, name)
	return errors.Join(n.sweepTables(), n.forgetTime(x.about.Slice), x.close())
}
