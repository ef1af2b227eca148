package wire

import (
	"errors"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wiring"
)

// reading is what was read of some devices of the substrate, or of all.
type reading struct {
	devices map[int]device // by ifindex
	byName  map[string]device
	records map[int]datapath.Port
	trees   map[int]wiring.Tree // what has the qdisc that it was made with is left out
	rules   map[int][]wiring.Rule
}

func newReading() *reading {
	return &reading{
		devices: map[int]device{}, byName: map[string]device{}, records: map[int]datapath.Port{},
		trees: map[int]wiring.Tree{}, rules: map[int][]wiring.Rule{},
	}
}

// readDevices reads devices by their names. What does not exist is left out.
func (s *HostNetwork) readDevices(names []string) (*reading, error) {
	r := newReading()
	for _, name := range names {
		d, err := s.nl.device(name)
		if errors.Is(err, ErrNoDevice) {
			continue
		}
		if err == nil {
			err = s.read(r, d)
		}
		if err != nil {
			return nil, err
		}
	}
	for index := range r.devices { // names of bridges, and of what ports of this link lead to
		for _, other := range []int{r.devices[index].master, r.records[index].Peer, r.records[index].Plain} {
			if _, known := r.devices[other]; known || other == 0 {
				continue
			}
			if d, err := s.nl.deviceAt(other); err == nil {
				r.devices[other] = d // not by its name: it is none of the link's
			} else if !errors.Is(err, ErrNoDevice) {
				return nil, err
			}
		}
	}
	return r, nil
}

// read adds a device, with its record and its qdiscs.
func (s *HostNetwork) read(r *reading, d device) error {
	r.devices[d.index], r.byName[d.name] = d, d
	record, known, err := s.forwarder.Port(d.index)
	if err != nil {
		return err
	}
	if known {
		r.records[d.index] = record
	}
	if err := s.readRules(r, d.index); err != nil {
		return err
	}
	if !d.ofOurKind() || d.kind == "bridge" {
		return nil
	}
	tree, err := s.nl.tree(d.index)
	if !tree.IsZero() {
		r.trees[d.index] = tree
	}
	return err
}

// readRules adds the rules of a port whose record says that it has some.
func (s *HostNetwork) readRules(r *reading, index int) error {
	if !r.records[index].Classified {
		return nil
	}
	rules, err := s.forwarder.Rules(index)
	r.rules[index] = rulesIn(rules)
	return err
}

func (r *reading) drop(name string) {
	if d, there := r.byName[name]; there {
		delete(r.byName, name)
		delete(r.devices, d.index)
		delete(r.records, d.index)
		delete(r.trees, d.index)
		delete(r.rules, d.index)
	}
}

func (r *reading) setMaster(name string, bridge int) {
	d := r.byName[name]
	d.master = bridge
	r.byName[name], r.devices[d.index] = d, d
}

func (r *reading) name(index int) string { return r.devices[index].name }

// peer gives what the device is joined with, if both say so.
func (r *reading) peer(d device) (device, bool) {
	record := r.records[d.index]
	if !joined(record) || r.records[record.Peer].Peer != d.index {
		return device{}, false
	}
	peer, ok := r.devices[record.Peer]
	return peer, ok
}

// link finds what a port is wired to, or the other end of a cable. Its shapes are not filled in.
func (r *reading) link(d device) (l wiring.Link, ok bool) {
	end := func(d device) wiring.End { return wiring.End{Port: d.name, MTU: d.mtu} }
	l.A = end(d)
	if d.mark.role == roleCable {
		far, ok := r.devices[d.peer]
		l.Cable, l.B = true, end(far)
		return l, ok
	}
	peer, ok := r.peer(d)
	switch {
	case !ok && d.master != 0 && r.records[d.index].Mode == datapath.Kernel:
		l.Switch = r.name(d.master)
		return l, l.Switch != "" && d.isolated == d.isIsolated()
	case !ok:
		return l, false
	case peer.mark.isPort():
		l.B = end(peer)
		return l, true
	case peer.mark.role != roleQueue:
		return l, false
	}
	far := r.devices[peer.peer]
	if far.mark.role == roleMember {
		l.Switch = r.name(far.master)
		return l, l.Switch != "" && d.master == 0 && far.isolated == d.isIsolated()
	}
	other, ok := r.peer(far)
	l.B = end(other)
	return l, ok
}

func (r *reading) recordOf(name string) wiring.Record {
	record := r.records[r.byName[name].index]
	led := wiring.Record{Peer: r.name(record.Peer), Plain: r.name(record.Plain), Queues: record.Queues,
		Reserves: record.Reserves}
	switch record.Mode {
	case datapath.Kernel:
		return wiring.Record{Mode: wiring.ToSwitch}
	case datapath.Peer:
		led.Mode = wiring.ToPeer
		return led
	case datapath.Queue:
		led.Mode = wiring.ToQueue
		return led
	case datapath.None, datapath.Tunnelled: // of a link, neither leads anywhere
	}
	return wiring.Record{}
}

// layout reads what there is of a link.
func (r *reading) layout(l wiring.Link) wiring.Layout {
	y := wiring.Layout{
		Pairs: map[string]string{}, Records: map[string]wiring.Record{}, Switches: map[string]string{},
		Trees: map[string]wiring.Tree{}, Rules: map[string][]wiring.Rule{},
		Policers: map[string]wiring.Policer{}, Plain: map[string]bool{},
	}
	for _, name := range l.Devices() {
		d, there := r.byName[name]
		if !there {
			continue
		}
		if tree, treed := r.trees[d.index]; treed {
			y.Trees[name] = tree
		}
		if rules := r.rules[d.index]; len(rules) > 0 {
			y.Rules[name] = rules
		}
		if l.Cable {
			continue
		}
		if p := r.records[d.index].Police; p != (datapath.Policer{}) {
			y.Policers[name] = wiring.Policer(p)
		}
		if d.master != 0 {
			y.Switches[name] = r.name(d.master)
		}
		if record := r.recordOf(name); record.Mode != wiring.ToNothing {
			y.Records[name] = record
		}
		if d.cutsSuperFrames() {
			y.Plain[name] = true
		}
		if far, there := r.devices[d.peer]; there && d.marked && d.mark.role == roleQueue {
			if far.marked && (far.mark.role == roleMember || d.name < far.name) {
				y.Pairs[name] = far.name
			}
		}
	}
	return y
}

// cutsSuperFrames reports whether it is a queue device that makes single frames of them.
func (d device) cutsSuperFrames() bool {
	return d.marked && (d.mark.role == roleQueue || d.mark.role == roleMember) && d.segments == 1
}

// treated reports whether there is more of a link than its ends.
func (r *reading) treated(l wiring.Link) bool {
	for _, name := range l.Devices() {
		d, there := r.byName[name]
		if !there {
			continue
		}
		_, treed := r.trees[d.index]
		record := r.records[d.index]
		policed := record.Police != datapath.Policer{}
		if treed || policed || d.mark.role == roleQueue || record.Mode == datapath.Queue ||
			len(r.rules[d.index]) > 0 {
			return true
		}
	}
	return false
}
