package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// ErrSwitchFull means that the kernel's bridge takes no more ports.
var ErrSwitchFull = errors.New("the kernel's bridge has at most 1023 ports")

// Switch is a learning Ethernet switch, or a LAN.
type Switch struct {
	Name   string
	Slice  uint16
	Owner  string // slice/node or slice/link, for people
	Digest string
}

// AddSwitch makes a switch. One of that name that is otherwise, or not complete, is replaced.
func (s *HostNetwork) AddSwitch(ctx context.Context, w Switch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.addSwitch(w); err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}

func (s *HostNetwork) addSwitch(w Switch) (err error) {
	m, err := newMark(roleSwitch, w.Owner, w.Digest)
	if err != nil {
		return err
	}
	if there, err := s.makeRoom(w.Name, m, always); err != nil || there {
		return err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(w.Name) })
	if err := s.nl.addBridge(w.Name, uint32(w.Slice)); err != nil {
		return err
	}
	d, err := s.nl.device(w.Name)
	if err != nil {
		return err
	}
	return s.nl.changeUp(d.index, true, rtnl.String(unix.IFLA_IFALIAS, m.String()))
}

// Masks of link-local group addresses 01-80-C2-00-00-0X that a bridge forwards. Spanning tree's (0) passes where the
// bridge has none of its own, as here. Pause frames (1) never pass. The rest (LLDP, 802.1X, GARP, ...) does; slow
// protocols (2: LACP) only if the port they come from says so too. IS-IS and ES-IS use other addresses, and pass as any
// multicast does.
const (
	forwardGroups     = 0xfff8
	forwardGroupsPort = 0xfffd
)

// addBridge makes a bridge that learns and forwards, and does nothing else by itself.
func (c *conn) addBridge(name string, group uint32) error {
	return c.do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, nl.NewIfInfomsg(unix.AF_UNSPEC),
		rtnl.String(unix.IFLA_IFNAME, name), rtnl.U32(unix.IFLA_GROUP, group),
		rtnl.Nest(unix.IFLA_LINKINFO, rtnl.String(unix.IFLA_INFO_KIND, "bridge"), rtnl.Nest(unix.IFLA_INFO_DATA,
			rtnl.U32(nl.IFLA_BR_FORWARD_DELAY, 0), rtnl.U32(nl.IFLA_BR_STP_STATE, 0),
			rtnl.U8(nl.IFLA_BR_MCAST_SNOOPING, 0), rtnl.U16(nl.IFLA_BR_GROUP_FWD_MASK, forwardGroups))))
}

// setMaster makes a device a port of a bridge, or takes it out (0).
func (c *conn) setMaster(index, bridge int) error {
	err := c.change(index, rtnl.U32(unix.IFLA_MASTER, uint32(bridge)))
	if errors.Is(err, unix.EXFULL) {
		return ErrSwitchFull
	}
	if err != nil || bridge == 0 {
		return err
	}
	return c.changeBridgePort(index, rtnl.U16(nl.IFLA_BRPORT_GROUP_FWD_MASK, forwardGroupsPort))
}

// plugIn makes a device a port of a bridge, isolated or not. An isolated one does not take a frame before it is.
func (c *conn) plugIn(d device, bridge int, isolated bool) error {
	switch {
	case d.master == bridge && d.isolated == isolated:
		return nil
	case d.master == bridge:
		return c.isolate(d.index, isolated)
	case !isolated:
		return c.setMaster(d.index, bridge)
	}
	if err := c.changeUp(d.index, false); err != nil {
		return err
	}
	if err := c.setMaster(d.index, bridge); err != nil {
		return err
	}
	if err := c.isolate(d.index, true); err != nil {
		return err
	}
	return c.changeUp(d.index, true)
}

// isolate keeps a bridge from sending what came in by one isolated port out by another.
func (c *conn) isolate(index int, isolated bool) error {
	value := uint8(0)
	if isolated {
		value = 1
	}
	return c.changeBridgePort(index, rtnl.U8(nl.IFLA_BRPORT_ISOLATED, value))
}

func (c *conn) changeBridgePort(index int, attr rtnl.Attr) error {
	h := header(index)
	h.Family = unix.AF_BRIDGE
	return c.do(unix.RTM_SETLINK, 0, h, rtnl.Nest(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, attr))
}

// DeleteSwitches deletes switches, together. What does not exist is no error. Ports attached to them stay, unwired.
func (s *HostNetwork) DeleteSwitches(ctx context.Context, names ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.deleteNamed(names...); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// Attach makes a port one of a switch's, whatever it was wired to before.
func (s *HostNetwork) Attach(ctx context.Context, port, sw string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if err := s.attachLocked(port, sw); err != nil {
		return fmt.Errorf("attach to the switch: %w", err)
	}
	return nil
}

func (s *HostNetwork) attachLocked(port, sw string) error {
	now, err := s.linkOf(port)
	switch {
	case err == nil && now.Switch != "": // it may move, with its queues
		now.Link.Switch = sw
		return s.apply(now.Link)
	case err != nil && !errors.Is(err, ErrNotWired):
		return err
	}
	e, err := s.end(port)
	if err != nil {
		return err
	}
	if joined(e.record) {
		if err := s.unwireLocked(&e); err != nil {
			return err
		}
	}
	return s.apply(wiring.Link{A: wiring.End{Port: port, MTU: e.mtu}, Switch: sw})
}

// Detach undoes Attach. It is no error if the port is not attached.
func (s *HostNetwork) Detach(ctx context.Context, port string) error { return s.unwire(ctx, port) }

// Cable joins two switches. Each end is known by a name of its own, and frames can be shaped in either direction.
type Cable struct {
	Slice  uint16
	Owner  string // slice/link, for people
	Digest string
	MTU    int
	Ends   [2]CableEnd
	Down   bool
}

// CableEnd is one end of a cable.
type CableEnd struct {
	Name   string // slice.PortName
	Switch string
}

// AddCable makes a cable and plugs it in. One of that name that is otherwise, or not complete, is replaced.
func (s *HostNetwork) AddCable(ctx context.Context, c Cable) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.addCable(c); err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}

func (s *HostNetwork) addCable(c Cable) (err error) {
	m, err := newMark(roleCable, c.Owner, c.Digest)
	if err != nil {
		return err
	}
	missing := 0
	for _, e := range c.Ends {
		there, err := s.makeRoom(e.Name, m, always) // deletes both ends of an incomplete one
		if err != nil {
			return err
		}
		if !there {
			missing++
		}
	}
	switch missing {
	case 0:
		return s.plug(c)
	case 1:
		if err := s.deleteNamed(c.Ends[0].Name, c.Ends[1].Name); err != nil {
			return err
		}
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(c.Ends[0].Name) })
	_, err = s.addVeth(veth{name: c.Ends[0].Name, peer: c.Ends[1].Name, mtu: c.MTU, group: uint32(c.Slice)})
	if err != nil {
		return err
	}
	if err := s.plug(c); err != nil {
		return err
	}
	for _, e := range c.Ends {
		d, err := s.nl.device(e.Name)
		if err != nil {
			return err
		}
		if err := s.nl.changeUp(d.index, !c.Down, rtnl.String(unix.IFLA_IFALIAS, m.String())); err != nil {
			return err
		}
	}
	return nil
}

// plug attaches both ends.
func (s *HostNetwork) plug(c Cable) error {
	for _, e := range c.Ends {
		d, err := s.nl.device(e.Name)
		if err != nil {
			return err
		}
		bridge, err := s.nl.device(e.Switch)
		if err != nil {
			return err
		}
		if d.master == bridge.index {
			continue
		}
		if err := s.nl.setMaster(d.index, bridge.index); err != nil {
			return err
		}
	}
	return nil
}
