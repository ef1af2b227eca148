package wire

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// State is what there is in a host network.
type State struct {
	Ports    map[string]PortState
	Cables   map[string]CableState // by the name of each end
	Switches map[string]SwitchState
	Card     *wiring.Tree // the uplink's, where packets wait there; nil: they do not
	// Remains are names of devices that are in no good state: half made, also by calls that are under way, or left
	// over. Delete them with DeletePorts.
	Remains []string
}

// PortState is a port's.
type PortState struct {
	Owner, Digest    string
	PID              int // a process in the namespace of the node, where the other end is; 0: none is known
	Index            int // ifindex of the port
	Inner            int // ifindex of the node's interface, in its namespace, as the kernel tells it to the port
	MTU              int
	Up               bool
	Peer             string // the port it is joined with, or
	Switch           string // the switch it is attached to
	FromNode, ToNode slice.Shape
	Reinjected       bool // what comes to the node out of a queue or a switch enters the data path again
	Tunnel           bool // the node is on another machine: see Tunnel. PID and Inner are 0

	// Layout is what the link is made of, where it is more than its ends; else nil. Both ends of a link have the
	// same.
	Layout *wiring.Layout
}

// CableState is that of an end of a cable.
type CableState struct {
	Owner, Digest string
	MTU           int
	Up            bool
	Peer          string // the other end
	Switch        string
	FromNode      slice.Shape
	Layout        *wiring.Layout // as PortState.Layout
}

// SwitchState is a switch's.
type SwitchState struct {
	Owner, Digest string
}

// Observe reads the state of everything, with one question to the kernel for each kind of thing. The qdiscs of a device
// are read when they have changed.
func (s *HostNetwork) Observe(ctx context.Context) (State, error) {
	if err := ctx.Err(); err != nil {
		return State{}, err
	}
	v, err := s.view()
	if err != nil {
		return State{}, fmt.Errorf("observe host network: %w", err)
	}
	if err := s.forget(v); err != nil {
		return State{}, fmt.Errorf("observe host network: %w", err)
	}
	state := State{
		Ports: map[string]PortState{}, Cables: map[string]CableState{}, Switches: map[string]SwitchState{},
	}
	if state.Card, err = s.card(v); err != nil {
		return State{}, fmt.Errorf("observe substrate: %w", err)
	}
	for _, d := range v.devices {
		m := d.mark
		switch {
		case !d.ofOurKind():
		case !d.marked, m.isPort() && !v.known(d), m.role == roleTwin && !v.tunnels[d.peer]:
			state.Remains = append(state.Remains, d.name)
		case m.isPort():
			state.Ports[d.name] = v.port(d)
		case m.role == roleCable:
			state.Cables[d.name] = v.cable(d)
		case m.role == roleSwitch:
			state.Switches[d.name] = SwitchState{m.owner, m.digest}
		case m.role == roleQueue && !v.serves(d):
			state.Remains = append(state.Remains, d.name)
		}
	}
	return state, nil
}

// view is one reading of the kernel.
type view struct {
	*reading
	tunnels    map[int]bool   // devices that are a tunnel in the data path
	processes  map[int]uint32 // as noted, by port
	namespaces map[uint32]int // the numbers of their namespaces, by process
}

// view reads records before devices, so that a record without a device has really lost it.
func (s *HostNetwork) view() (v view, err error) {
	v.reading = newReading()
	if v.records, err = s.forwarder.Ports(); err != nil {
		return v, err
	}
	if err := s.trees.freshen(); err != nil {
		return v, err
	}
	all, err := s.nl.devices()
	if err != nil {
		return v, err
	}
	for _, d := range all {
		v.devices[d.index], v.byName[d.name] = d, d
		if !d.mark.isPort() || v.recorded(d) {
			continue
		}
		record, ok, err := s.forwarder.Port(d.index) // of a port made meanwhile
		if err != nil {
			return v, err
		}
		if ok {
			v.records[d.index] = record
		}
	}
	if v.tunnels, err = s.tunnels(); err != nil {
		return v, err
	}
	for index := range v.records {
		if err := s.readRules(v.reading, index); err != nil {
			return v, err
		}
	}
	if v.processes, v.namespaces, err = s.processes(); err != nil {
		return v, err
	}
	v.trees, err = s.trees.read(s.nl, all)
	return v, err
}

// processes reads which processes are noted by port, and asks where they are: the id may have become another's.
func (s *HostNetwork) processes() (noted map[int]uint32, namespaces map[uint32]int, err error) {
	if noted, err = s.forwarder.Notes(datapath.NoteProcess); err != nil {
		return nil, nil, err
	}
	namespaces = map[uint32]int{}
	for _, pid := range noted {
		if _, asked := namespaces[pid]; asked {
			continue
		}
		if namespaces[pid], err = s.nl.namespaceOf(unix.NETNSA_PID, pid); err != nil {
			return nil, nil, err
		}
	}
	return noted, namespaces, nil
}

// process gives the process of a port; 0: none is known to be where the port's other end is.
func (v view) process(d device) int {
	pid := v.processes[d.index]
	if d.mark.role != rolePort || d.peerNS == sameNS || v.namespaces[pid] != d.peerNS {
		return 0
	}
	return int(pid)
}

// tunnels finds the ports at which the data path has a tunnel begin.
func (s *HostNetwork) tunnels() (map[int]bool, error) {
	all, err := s.forwarder.Tunnels()
	if err != nil {
		return nil, err
	}
	begin := make(map[int]bool, len(all))
	for index := range all {
		begin[index] = true
	}
	return begin, nil
}

// port resolves what is at the other end.
func (v view) port(d device) PortState {
	p := PortState{
		Owner: d.mark.owner, Digest: d.mark.digest,
		PID: v.process(d), Index: d.index, Inner: d.peer, MTU: d.mtu,
		Up: d.up, Tunnel: d.mark.role == roleTunnel,
	}
	if p.Tunnel {
		p.Inner = 0
	}
	l, ok := v.link(d)
	if !ok { // attached, but not to the end, counts as nothing
		return p
	}
	p.Peer, p.Switch = l.B.Port, l.Switch
	if !v.treated(l) {
		return p
	}
	layout := v.layout(l)
	l = l.Observed(layout)
	p.Layout, p.FromNode, p.ToNode, p.Reinjected = &layout, l.A.Shape, l.B.Shape, l.Reinject
	return p
}

func (v view) cable(d device) CableState {
	c := CableState{
		Owner: d.mark.owner, Digest: d.mark.digest, MTU: d.mtu, Up: d.up, Peer: v.name(d.peer),
		Switch: v.name(d.master),
	}
	if l, ok := v.link(d); ok && v.treated(l) {
		layout := v.layout(l)
		c.Layout, c.FromNode = &layout, l.Observed(layout).A.Shape
	}
	return c
}

// known reports whether the data path has all that belongs to the device.
func (v view) known(d device) bool {
	return v.recorded(d) && (d.mark.role != roleTunnel || v.tunnels[d.index])
}

func (v view) recorded(d device) bool {
	_, ok := v.records[d.index]
	return ok
}

// serves reports whether a queue device is in use.
func (v view) serves(q device) bool {
	if _, ok := v.peer(q); ok {
		return true
	}
	record := v.records[q.index]
	return joined(record) && v.records[record.Peer].Plain == q.index
}

// forget deletes the records of ports that ended with their nodes.
func (s *HostNetwork) forget(v view) error {
	for index := range v.records {
		if _, ok := v.devices[index]; ok {
			continue
		}
		if err := s.forgetGone(index); err != nil {
			return err
		}
	}
	return nil
}

func (s *HostNetwork) forgetGone(index int) error {
	s.records.Lock()
	defer s.records.Unlock()
	_, err := s.nl.deviceAt(index)
	if errors.Is(err, ErrNoDevice) {
		return s.forwarder.Forget(index)
	}
	return err
}
