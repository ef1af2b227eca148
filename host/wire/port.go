package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/slice"
)

// Port is the substrate's end of a node's interface, together with that interface.
type Port struct {
	Name   string // of the substrate's end: slice.PortName
	Slice  uint16 // slice.Slice.ID; see DeleteSlice
	Owner  string // slice/node:interface, for people
	Digest string // of what the caller wants; Observe gives it back

	PID       int  // a process in the node's namespace
	HostNetns bool // in place of PID: an uplink, whose other end is in the machine's namespace
	Inner     string
	MAC       net.HardwareAddr
	MTU       int
	Addresses []netip.Prefix
	Down      bool // made without a carrier
}

func (p Port) check() error {
	switch {
	case p.Name == "" || len(p.Name)+1 >= unix.IFNAMSIZ: // one byte is for the names of a queue's devices
		return fmt.Errorf("bad name %q", p.Name)
	case p.Inner == "" || len(p.Inner) >= unix.IFNAMSIZ:
		return fmt.Errorf("bad interface name %q", p.Inner)
	case len(p.MAC) != 6:
		return fmt.Errorf("bad address %q", p.MAC)
	case (p.PID != 0) == p.HostNetns:
		return errors.New("give either a process or the machine's namespace")
	}
	return nil
}

// AddPort makes a port and its node's interface, which is up and has its addresses. A port of that name that is
// otherwise, or not complete, is replaced.
func (s *HostNetwork) AddPort(ctx context.Context, p Port) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := p.check()
	if err == nil {
		err = s.addPort(p)
	}
	if err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}

func (s *HostNetwork) addPort(p Port) (err error) {
	ns, closeNS, err := s.inner(p)
	if err != nil {
		return err
	}
	defer closeNS()
	m, err := newMark(rolePort, p.Owner, p.Digest)
	if err != nil {
		return err
	}
	there, err := s.makeRoom(p.Name, m, func(d device) (bool, error) { return s.isIn(d, ns) })
	if err != nil || there {
		return err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(p.Name) })
	var index int
	err = netns.In(ns, func() (err error) {
		index, err = s.addInner(p, ns, m.String())
		return err
	})
	if err != nil {
		return err
	}
	if err := s.own(index, datapath.Port{MTU: p.MTU, MAC: [6]byte(p.MAC)}); err != nil {
		return err
	}
	if err := s.forwarder.SetNote(datapath.NoteProcess, index, uint32(p.PID)); err != nil {
		return err
	}
	return s.nl.changeUp(index, !p.Down, rtnl.String(unix.IFLA_IFALIAS, m.String())) // complete
}

// inner opens the namespace of the port's other end.
func (s *HostNetwork) inner(p Port) (ns *os.File, done func(), err error) {
	if p.HostNetns {
		return s.host, func() {}, nil
	}
	ns, err = netns.Open(netns.Path(p.PID))
	if err != nil {
		return nil, nil, err
	}
	return ns, func() { _ = ns.Close() }, nil
}

// makeRoom makes room for a device. there is true if a complete one with this mark is there, of which also holds what
// the caller asks for.
func (s *HostNetwork) makeRoom(name string, want mark, also func(device) (bool, error)) (there bool, err error) {
	d, err := s.nl.device(name)
	if errors.Is(err, ErrNoDevice) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if d.marked && d.mark == want {
		if there, err := also(d); err != nil || there {
			return there, err
		}
	}
	return false, s.deleteNamed(name)
}

func always(device) (bool, error) { return true, nil }

// addInner makes the pair, and gives the index of the substrate's end. The thread is in the namespace of the node's
// end, whose defaults must be there before it is.
func (s *HostNetwork) addInner(p Port, ns *os.File, alias string) (index int, err error) {
	if !p.HostNetns {
		if err := setNodeDefaults(); err != nil {
			return 0, err
		}
	}
	index, err = s.addVeth(veth{
		name: p.Name, mtu: p.MTU, group: uint32(p.Slice),
		peer: p.Inner, peerNS: ns, peerMAC: p.MAC,
	})
	if errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("an interface %s exists there already, and is not ours to replace: %w", p.Inner,
			err)
	}
	if err != nil {
		return 0, fmt.Errorf("make interface %s: %w", p.Inner, err)
	}
	inside, err := dialHere()
	if err != nil {
		return 0, err
	}
	defer inside.close()
	d, err := inside.device(p.Inner)
	if err != nil {
		return 0, err
	}
	var attrs []rtnl.Attr
	if p.HostNetns { // people should see whose it is
		attrs = append(attrs, rtnl.String(unix.IFLA_IFALIAS, alias))
	}
	if err := inside.changeUp(d.index, true, attrs...); err != nil {
		return 0, fmt.Errorf("set interface %s up: %w", p.Inner, err)
	}
	return index, inside.addAddresses(d.index, p.Addresses)
}

// own puts a device into the care of what directs frames.
func (s *HostNetwork) own(index int, p datapath.Port) error {
	s.records.Lock()
	err := s.forwarder.Add(index, p)
	s.records.Unlock()
	if err != nil {
		return err
	}
	return netns.In(s.ns, func() error { return s.forwarder.Attach(index) })
}

// DeletePorts deletes ports, tunnels, cables (by either end) and the queues between ports and switches, together. What
// does not exist is no error: a node that ended took its ports along.
func (s *HostNetwork) DeletePorts(ctx context.Context, names ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.deleteNamed(names...); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// deleteNamed deletes devices of any role, and the queues of ports.
func (s *HostNetwork) deleteNamed(names ...string) error {
	var devices []device
	for _, name := range names {
		for _, n := range []string{name, wiring.QueueName(name)} {
			if len(n) >= unix.IFNAMSIZ {
				continue
			}
			d, err := s.nl.device(n)
			if errors.Is(err, ErrNoDevice) {
				continue
			}
			if err != nil {
				return err
			}
			devices = append(devices, d)
		}
	}
	return s.deleteDevices(devices)
}

// deleteDevices forgets them first: as soon as they are gone, others may get their indexes.
func (s *HostNetwork) deleteDevices(devices []device) error {
	for _, d := range devices {
		if err := s.forwarder.Forget(d.index); err != nil {
			return err
		}
		if d.mark.role == roleQueue || d.mark.role == roleTunnel { // its other end goes with it
			if err := s.forwarder.Forget(d.peer); err != nil {
				return err
			}
		}
	}
	return s.nl.deleteDevices(devices)
}

// DeleteSlice deletes every device of a slice.
func (s *HostNetwork) DeleteSlice(ctx context.Context, id uint16) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if id == 0 || id > slice.MaxID {
		return fmt.Errorf("delete devices of network %d: no such network", id)
	}
	all, err := s.nl.devices()
	if err == nil {
		err = s.deleteDevices(slices.DeleteFunc(all, func(d device) bool { return d.group != uint32(id) }))
	}
	if err != nil {
		return fmt.Errorf("delete devices of network %d: %w", id, err)
	}
	return nil
}

// SetUp connects a port, or cuts it off: then the node's interface has no carrier.
func (s *HostNetwork) SetUp(ctx context.Context, port string, up bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := s.nl.device(port)
	if err == nil && d.up != up {
		err = s.nl.changeUp(d.index, up)
	}
	if err != nil {
		return fmt.Errorf("set up or down: %w", err)
	}
	return nil
}
