package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
)

// State is what there is in a substrate.
type State struct {
	Ports    map[string]PortState
	Cables   map[string]CableState // by the name of each end
	Switches map[string]SwitchState
	// Remains are names of devices that are in no good state: half made, also by calls that are under way, or left over.
	// Delete them with DeletePorts.
	Remains []string
}

// PortState is a port's.
type PortState struct {
	Owner, Digest    string
	NetNS            uint64 // inode of the namespace of the node, as it was made
	Index            int    // ifindex of the port
	Inner            int    // ifindex of the node's interface, in the node's namespace: the kernel's word, which the node cannot forge
	Up               bool
	Peer             string // the port it is joined with, or
	Switch           string // the switch it is attached to
	FromNode, ToNode Queue
	Again            bool // what comes to the node out of a queue or a switch enters the data path again
	Tunnel           bool // the node is on another machine: see Tunnel. NetNS and Inner are 0
}

// CableState is that of an end of a cable.
type CableState struct {
	Owner, Digest string
	Up            bool
	Peer          string // the other end
	Switch        string
	FromNode      Queue
}

// SwitchState is a switch's.
type SwitchState struct {
	Owner, Digest string
}

// Observe reads the state of everything, with one question to the kernel for each kind of thing.
func (s *Substrate) Observe(ctx context.Context) (State, error) {
	if err := ctx.Err(); err != nil {
		return State{}, err
	}
	v, err := s.view()
	if err != nil {
		return State{}, fmt.Errorf("observe substrate: %w", err)
	}
	if err := s.forget(v); err != nil {
		return State{}, fmt.Errorf("observe substrate: %w", err)
	}
	state := State{Ports: map[string]PortState{}, Cables: map[string]CableState{}, Switches: map[string]SwitchState{}}
	for _, d := range v.devices {
		m := d.mark
		switch {
		case !d.ofOurKind():
		case !d.marked, m.isPort() && !v.known(d), m.role == roleTwin && !v.tunnels[d.peer]:
			state.Remains = append(state.Remains, d.name)
		case m.isPort():
			state.Ports[d.name] = v.port(d)
		case m.role == roleCable:
			state.Cables[d.name] = CableState{m.owner, m.digest, d.up, v.name(d.peer), v.name(d.master), v.queue(d)}
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
	records map[int]datapath.Port
	devices map[int]device
	roots   map[int]bool // has a root qdisc of ours
	tunnels map[int]bool // devices that are a tunnel in the data path
}

// view reads records before devices, so that a record without a device has really lost it.
func (s *Substrate) view() (v view, err error) {
	if v.records, err = s.data.Ports(); err != nil {
		return v, err
	}
	all, err := s.nl.devices()
	if err != nil {
		return v, err
	}
	v.devices = make(map[int]device, len(all))
	for _, d := range all {
		v.devices[d.index] = d
		if !d.mark.isPort() || v.recorded(d) {
			continue
		}
		record, ok, err := s.data.Port(d.index) // of a port made meanwhile
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
	v.roots, err = s.nl.roots()
	return v, err
}

// tunnels finds the ports at which the data path has a tunnel begin.
func (s *Substrate) tunnels() (map[int]bool, error) {
	all, err := s.data.Tunnels()
	if err != nil {
		return nil, err
	}
	begin := make(map[int]bool, len(all))
	for index := range all {
		begin[index] = true
	}
	return begin, nil
}

func (v view) name(index int) string { return v.devices[index].name }

// queue gives the device's queue as marked, unless the kernel has lost it.
func (v view) queue(d device) Queue {
	if (d.mark.queue != Queue{}) && !v.roots[d.index] {
		return Queue{Unsure: true}
	}
	return d.mark.queue
}

// port resolves who is at the other end.
func (v view) port(d device) PortState {
	p := PortState{
		Owner: d.mark.owner, Digest: d.mark.digest, NetNS: d.mark.ns, Index: d.index, Inner: d.peer, Up: d.up,
		Switch: v.name(d.master), ToNode: v.queue(d), Tunnel: d.mark.role == roleTunnel,
	}
	if p.Tunnel {
		p.Inner = 0
	}
	peer, ok := v.peer(d)
	switch {
	case !ok:
		if d.master != 0 && v.records[d.index].Mode != datapath.Kernel {
			p.Switch = "" // attached, but not to the end
		}
	case peer.mark.isPort():
		p.Peer, p.FromNode = peer.name, v.queue(peer)
		if !v.right(d, peer) {
			p.Peer = ""
		}
	case peer.mark.role == roleQueue:
		v.throughQueue(d, peer, &p)
	}
	return p
}

// throughQueue resolves who is at the other end of a port's queue: a switch, or another port by its own queue.
func (v view) throughQueue(d, q device, p *PortState) {
	far := v.devices[q.peer]
	p.Switch, p.FromNode, p.Again = "", v.queue(q), q.mark.again
	switch {
	case far.mark.role == roleQueue:
		p.Again = true
		if other, ok := v.peer(far); ok {
			p.Peer = other.name
		}
	case d.master == 0:
		p.Switch = v.name(far.master)
	}
	if p.Again {
		p.ToNode = v.queue(far)
	}
}

// known reports whether the data path has all that belongs to the device.
func (v view) known(d device) bool {
	return v.recorded(d) && (d.mark.role != roleTunnel || v.tunnels[d.index])
}

func (v view) recorded(d device) bool {
	_, ok := v.records[d.index]
	return ok
}

// peer gives what the device is joined with, if both say so.
func (v view) peer(d device) (device, bool) {
	record := v.records[d.index]
	if !joined(record) || v.records[record.Peer].Peer != d.index {
		return device{}, false
	}
	peer, ok := v.devices[record.Peer]
	return peer, ok
}

// right reports whether frames for the peer go the way that its queue asks for.
func (v view) right(d, peer device) bool {
	return (v.records[d.index].Mode == datapath.Queue) == (peer.mark.queue != Queue{})
}

// serves reports whether a queue is in use.
func (v view) serves(q device) bool {
	_, ok := v.peer(q)
	return ok
}

// roots finds the devices that have one of our qdiscs at the root.
func (c *conn) roots() (map[int]bool, error) {
	all, err := c.dump(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, &nl.TcMsg{})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	roots := map[int]bool{}
	for _, message := range all {
		if h := nl.DeserializeTcMsg(message); h.Parent == tcRoot && (h.Handle == handleHTB || h.Handle == handleNetem) {
			roots[int(h.Ifindex)] = true
		}
	}
	return roots, nil
}

// forget deletes the records of ports that ended with their nodes.
func (s *Substrate) forget(v view) error {
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

func (s *Substrate) forgetGone(index int) error {
	s.records.Lock()
	defer s.records.Unlock()
	_, err := s.nl.deviceAt(index)
	if errors.Is(err, ErrNoDevice) {
		return s.data.Forget(index)
	}
	return err
}
