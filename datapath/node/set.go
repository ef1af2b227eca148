package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/program"
)

// platforms are bpf/node.c: of nodes with UDP ports, and of others. What a program costs is what it costs beside one.
var platforms = map[bool]*program.Platform{false: newPlatform(false), true: newPlatform(true)}

func newPlatform(udp bool) *program.Platform {
	load := func() (*ebpf.CollectionSpec, error) {
		spec, err := loadObject()
		if err != nil {
			return nil, err
		}
		return spec, spec.Variables[objectVarHasUdp].Set(flag(udp))
	}
	return program.NewPlatform(load, map[program.Hook]string{
		program.XDP: objectProgNodeXdp, program.TC: objectProgNodeTc,
	})
}

// slots are the maps of nodes' programs. What is in that of tc says which of two programs runs (isRunning): it is
// written last.
var slots = []struct {
	hook program.Hook
	name string
}{{program.XDP, objectMapNodeProgramsXdp}, {program.TC, objectMapNodePrograms}}

var platformDigest = sync.OnceValue(func() string {
	sum := sha256.Sum256(_ObjectBytes)
	return hex.EncodeToString(sum[:6])
})

// Set makes a node, changes the ports of one that has the digest, or replaces it. A replacement keeps memory and
// counters, as far as they are the same, and loses no frame. Where there is an error, all is as it was; it is a
// *program.RefusedError where the program is to blame. The exception is a *TidyError: the node is as w says.
func (n *Nodes) Set(name string, w Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.check(name, w); err != nil {
		return fmt.Errorf("set node %s: %w", name, err)
	}
	if err := n.openFilters(); err != nil {
		return fmt.Errorf("set node %s: %w", name, err)
	}
	x := n.nodes[name]
	if x != nil && x.runs && x.digest() == w.Digest && x.room() >= len(w.Interfaces) {
		if err := n.move(x, w.Interfaces); err != nil {
			return fmt.Errorf("set ports of node %s: %w", name, err)
		}
	} else if err := n.replace(name, x, w); err != nil {
		return fmt.Errorf("set node %s: %w", name, err)
	}
	x = n.nodes[name]
	if err := errors.Join(n.settle(x), n.setOwners(x.number, x.about.UDP), n.charge(x), n.sweepTables(),
		n.shareTime()); err != nil {
		return &TidyError{Node: name, Err: err}
	}
	return nil
}

// TidyError is that of Set when it has made the node as wanted, and could not remove what was before. The next Set of
// the node, or Open, does it.
type TidyError struct {
	Node string
	Err  error
}

// Error says what was not done.
func (e *TidyError) Error() string {
	return fmt.Sprintf("set node %s: it is as wanted, but what was before could not be removed: %v", e.Node, e.Err)
}

// Unwrap gives the cause.
func (e *TidyError) Unwrap() error { return e.Err }

func (n *Nodes) check(name string, w Node) error {
	if w.Digest == "" || name == "" || len(escape(name)) > maxName {
		return errors.New("it has no digest, or no name that can be kept")
	}
	seen := map[int]bool{}
	for i, port := range w.Interfaces {
		if port == 0 {
			continue
		}
		owner := n.legs.owner(port)
		switch x := n.nodes[name]; {
		case port < 0 || port >= len(n.legs.all):
			return fmt.Errorf("interface %d: port %d is not below %d", i+1, port, len(n.legs.all))
		case seen[port]:
			return fmt.Errorf("interface %d: port %d is that of another interface, too", i+1, port)
		case owner != 0 && (x == nil || owner != x.number):
			return fmt.Errorf("interface %d: port %d is another node's", i+1, port)
		}
		seen[port] = true
	}
	return n.checkUDP(name, w)
}

// move gives a node other ports. A port that is new is in the table before frames come from there.
func (n *Nodes) move(x *node, ports []int) error {
	table, err := x.ports()
	if err != nil {
		return err
	}
	was := n.legs.those(x.number, table)
	n.legs.keep(x.number, ports)
	if err := x.writePorts(ports); err != nil {
		err = errors.Join(err, x.writePorts(table))
		n.join(x, was)
		return err
	}
	n.join(x, ports)
	return nil
}

func (n *Nodes) join(x *node, ports []int) {
	n.legs.keep(x.number, ports)
	for i, port := range ports {
		if port != 0 {
			n.legs.set(port, newLeg(x.number, i+1))
		}
	}
}

// replace makes a node beside the one that is there, and puts it in its place.
func (n *Nodes) replace(name string, old *node, w Node) (err error) {
	if old != nil {
		if err := n.settle(old); err != nil { // its pins may be where those of the new one go
			return err
		}
	}
	if err := n.sweepTables(); err != nil { // of an earlier process whose nodes are gone
		return err
	}
	next, err := n.load(name, old, w)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(n.newPin(next)), next.close(), n.sweepTables())
		}
	}()
	if err := n.pinNew(next); err != nil {
		return err
	}
	if err := n.config.Need(len(w.UDP) > 0); err != nil {
		return err
	}
	if err := n.setOwners(next.number, slices.Concat(old.udp(), w.UDP)); err != nil {
		return errors.Join(err, n.setOwners(next.number, old.udp()))
	}
	if err := n.fillSlots(next, old); err != nil {
		return errors.Join(err, n.setOwners(next.number, old.udp()))
	}
	next.runs, next.holds = true, itsTable
	n.nodes[name], n.last = next, next.number
	n.join(next, w.Interfaces)
	if old != nil {
		_ = old.close() // its program ends when the last frame has left it
	}
	return nil
}

// fillSlots makes a node's programs those that frames meet. If not all of them can be, the older ones stay.
func (n *Nodes) fillSlots(x, old *node) error {
	for i, slot := range slots {
		err := n.config.Maps[slot.name].Put(x.number, x.loaded.Programs()[slot.hook])
		if err == nil {
			continue
		}
		err = fmt.Errorf("put the program of %s into slot %d: %w", slot.hook, x.number, err)
		for _, done := range slots[:i] {
			if old != nil && old.runs {
				err = errors.Join(err, n.refill(done.name, done.hook, old))
			} else {
				err = errors.Join(err, n.emptySlot(done.name, x.number))
			}
		}
		return err
	}
	return nil
}

// refill puts a node's program of a hook into its slot, if it has one: nodes of older versions have none of XDP.
func (n *Nodes) refill(slot string, hook program.Hook, x *node) error {
	p := x.loaded.Programs()[hook]
	if p == nil {
		return n.emptySlot(slot, x.number)
	}
	if err := n.config.Maps[slot].Put(x.number, p); err != nil {
		return fmt.Errorf("put the program of %s into slot %d: %w", hook, x.number, err)
	}
	return nil
}

func (n *Nodes) emptySlot(slot string, number uint32) error {
	err := n.config.Maps[slot].Delete(number)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("empty slot %d: %w", number, err)
	}
	return nil
}

func (n *Nodes) load(name string, old *node, w Node) (*node, error) {
	next := &node{name: name, about: about{
		Digest: w.Digest, Platform: platformDigest(), Slice: w.Slice, Object: w.Object,
		Bounds: w.Bounds, UDP: w.UDP,
	}}
	opts := program.Options{
		Maps:      maps.Clone(n.config.Maps),
		Constants: map[string]any{objectVarSampleSecrets: newSecrets()},
	}
	if old == nil {
		next.number = n.number()
	} else {
		next.number = old.number
		opts.Keep = old.loaded
	}
	if next.number == 0 {
		return nil, fmt.Errorf("there are %d nodes with packet programs already", MaxNodes-1)
	}
	opts.Change = func(all map[string]*ebpf.MapSpec) {
		p, c := all[objectMapNodePorts], all[objectMapNodeCounts]
		p.MaxEntries = max(p.MaxEntries, uint32(len(w.Interfaces)))
		if kept := old.counts(); kept != nil && kept.ValueSize() == c.ValueSize {
			opts.Maps[objectMapNodeCounts] = kept
		}
	}
	o, err := program.Read(name, w.Object)
	if err != nil {
		return nil, err
	}
	if next.loaded, err = platforms[len(w.UDP) > 0].Load(o, opts); err != nil {
		return nil, err
	}
	next.about.Costs = next.loaded.Costs
	err = n.giveTables(next, old, w.Filters)
	if err == nil {
		err = next.prepare(w)
	}
	if err != nil {
		return nil, errors.Join(err, next.close(), n.sweepTables())
	}
	return next, nil
}

// counts is the map of what the platform counted; nil: there is none.
func (x *node) counts() *ebpf.Map {
	if x == nil || x.loaded == nil {
		return nil
	}
	return x.loaded.Maps()[objectMapNodeCounts]
}

// prepare writes what is in the node's own maps.
func (x *node) prepare(w Node) error {
	s := objectSettings{
		Number: x.number, Slice: x.about.Slice, Table: x.table, Tables: program.MaxTables,
		SlowPath: uint32(w.SlowPath),
	}
	if err := x.loaded.Maps()[objectMapNodeSettings].Put(uint32(0), s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	if err := x.writeUDP(w.UDP); err != nil {
		return err
	}
	return x.writePorts(w.Interfaces)
}

// number is one that no node has: not one that was given back just now, if there are others.
func (n *Nodes) number() uint32 {
	used := map[uint32]bool{0: true}
	for _, x := range n.nodes {
		used[x.number] = true
	}
	for i := range uint32(MaxNodes) {
		if number := (n.last + 1 + i) % MaxNodes; !used[number] {
			return number
		}
	}
	return 0
}

// room is for how many ports the node has been loaded.
func (x *node) room() int { return int(x.loaded.Maps()[objectMapNodePorts].MaxEntries()) }

// writePorts fills the node's table of ports, and says which of the interfaces with a bit of their own are there.
func (x *node) writePorts(ports []int) error {
	table, s := x.loaded.Maps()[objectMapNodePorts], objectSettings{}
	old, err := x.ports()
	if err != nil {
		return err
	}
	settings := x.loaded.Maps()[objectMapNodeSettings]
	if err := settings.Lookup(uint32(0), &s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	const bits = 63
	s.Interfaces = 0
	for i := range old {
		port := 0
		if i < len(ports) {
			port = ports[i]
		}
		if port != 0 && i < bits {
			s.Interfaces |= 1 << (i + 1)
		}
		if port == old[i] {
			continue
		}
		if err := table.Put(uint32(i), uint32(port)); err != nil {
			return fmt.Errorf("write port of interface %d: %w", i+1, err)
		}
	}
	if err := settings.Put(uint32(0), s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// ports reads the table: as many as there is room for.
func (x *node) ports() ([]int, error) {
	all := make([]int, x.room())
	for i := range all {
		var port uint32
		if err := x.loaded.Maps()[objectMapNodePorts].Lookup(uint32(i), &port); err != nil {
			return nil, fmt.Errorf("read port of interface %d: %w", i+1, err)
		}
		all[i] = int(port)
	}
	return all, nil
}

// trim leaves zeros at the end out.
func trim(ports []int) []int {
	for len(ports) > 0 && ports[len(ports)-1] == 0 {
		ports = ports[:len(ports)-1]
	}
	return slices.Clip(ports)
}
