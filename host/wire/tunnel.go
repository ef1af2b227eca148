package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/slice"
)

// A Tunnel leads to an interface, or to the part of a LAN, on another machine. On this one a proxy port represents it:
// a veth pair with both ends in the substrate, whose first end is wired and shaped as the port of that interface would
// be:
//
//	node ── veth ── s1p3 ═══ s1p4 ── veth ── s1p4t    frames for s1p4 go into the tunnel; see package datapath
//	switch ── s1tcafe ── veth ── s1tcafet             what the switch sends leaves by s1tcafet into the tunnel
//
// Frames that are handed to s1p4 at once go into the tunnel right there. Those that wait in its queue, and those that a
// switch sends, leave by its device, and go into the tunnel at its other end, the twin. What comes out of the tunnel
// enters at s1p4, as if its node had sent it.
//
// What came out of one tunnel a switch does not send into another: in a bridge, proxy ports are isolated. All hosts of
// a LAN have tunnels to one another, so frames would loop.
type Tunnel struct {
	Name   string // slice.PortName of the interface that it represents, or a LAN's own name for it
	Slice  uint16
	Owner  string // slice/node:interface, or slice/link, for people
	Digest string // of what the caller wants; Observe gives it back

	Kind  slice.TunnelKind
	Key   uint32
	Local netip.Addr // of this machine
	Peer  netip.Addr // of the other one
	DSCP  bool       // see slice.Tunnel
	MTU   int        // of the interfaces at both ends

	StormControl int // frames to groups that go in, in a second; 0: as many as come

	CountsMet bool // see datapath.Tunnel
}

func (t Tunnel) check() error {
	switch {
	case t.Name == "" || len(t.Name)+1 >= unix.IFNAMSIZ: // one byte is for the twin's and a queue's devices
		return fmt.Errorf("bad name %q", t.Name)
	case t.Key == 0 || t.Key > slice.MaxTunnelKey:
		return fmt.Errorf("a key that is not between 1 and %d", slice.MaxTunnelKey)
	case !t.Local.IsValid() || !t.Peer.IsValid() || t.Local.Is4() != t.Peer.Is4():
		return fmt.Errorf("no addresses of one family: %v and %v", t.Local, t.Peer)
	case t.Local == t.Peer:
		return fmt.Errorf("both ends have the address %v", t.Local)
	case t.MTU < minMTU || t.MTU > maxMTU:
		return fmt.Errorf("an MTU that is not between %d and %d", minMTU, maxMTU)
	}
	_, err := kindOf(t.Kind)
	return err
}

// What a veth pair takes (ETH_MIN_MTU, ETH_MAX_MTU).
const (
	minMTU = 68
	maxMTU = 65535
)

func kindOf(k slice.TunnelKind) (datapath.TunnelKind, error) {
	switch k {
	case slice.EGRE, "":
		return datapath.EGRE, nil
	case slice.VXLAN:
		return datapath.VXLAN, nil
	}
	return 0, fmt.Errorf("unknown kind %q", k)
}

func (s *HostNetwork) setTunnel(index int, t Tunnel) error {
	kind, err := kindOf(t.Kind)
	if err != nil {
		return err
	}
	local := t.Local.Unmap()
	err = s.data.SetTunnel(index, datapath.Tunnel{
		Kind: kind, Key: t.Key, Local: local, Peer: t.Peer.Unmap(), DSCP: t.DSCP, StormControl: t.StormControl,
		CountsMet: t.CountsMet,
	})
	if err != nil || local.Is4() {
		return err
	}
	return s.enableIPv6Lookup()
}

// enableGRO lets the line card send what comes out of a tunnel to the twin, where generic receive offload makes
// super-frames of TCP's segments at the proxy port. That is for VXLAN: of the other kind, the network card's own device
// makes them.
func (s *HostNetwork) enableGRO(t Tunnel, index, twin int) error {
	if t.Kind != slice.VXLAN {
		return s.data.DenyXDPToPort(index)
	}
	return netns.In(s.ns, func() error { // first GRO: frames that come before it are lost
		if err := setGRO(t.Name, true); err != nil {
			return fmt.Errorf("switch generic receive offload on: %w", err)
		}
		return s.data.AllowXDPToPort(index, twin)
	})
}

func twinName(tunnel string) string { return tunnel + "t" }

// AddTunnel makes a tunnel, which is up. Join, Attach, Shape, Reinject and DeletePorts take it for a port. What is
// there of that name and is no complete tunnel, or one of another MTU, is replaced; else it is changed, and stays
// wired.
func (s *HostNetwork) AddTunnel(ctx context.Context, t Tunnel) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock() // its record is changed
	defer s.wiring.Unlock()
	err := t.check()
	if err == nil && s.data == nil {
		err = errNeedsEBPF
	}
	if err == nil {
		err = s.addTunnelLocked(t)
	}
	if err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}

func (s *HostNetwork) addTunnelLocked(t Tunnel) (err error) {
	m, err := newMark(roleTunnel, t.Owner, t.Digest)
	if err != nil {
		return err
	}
	d, err := s.nl.device(t.Name)
	if err != nil && !errors.Is(err, ErrNoDevice) {
		return err
	}
	if err == nil && d.mark.role == roleTunnel && d.group == uint32(t.Slice) && d.mtu == t.MTU {
		_, known, err := s.data.Port(d.index)
		if err != nil {
			return err
		}
		if known {
			return s.changeTunnel(d, t, m)
		}
	}
	if err == nil {
		if err := s.deleteNamed(t.Name); err != nil {
			return err
		}
	}
	return s.makeTunnel(t, m)
}

func (s *HostNetwork) makeTunnel(t Tunnel, m mark) (err error) {
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(t.Name) })
	index, err := s.addVeth(veth{
		name: t.Name, peer: twinName(t.Name), twins: true, mtu: t.MTU, group: uint32(t.Slice),
	})
	if err != nil {
		return err
	}
	twin, err := s.nl.device(twinName(t.Name))
	if err != nil {
		return err
	}
	if err := s.own(index, datapath.Port{External: true, MTU: t.MTU}); err != nil {
		return err
	}
	if err := s.own(twin.index, datapath.Port{Mode: datapath.Tunnelled, Peer: index, MTU: t.MTU}); err != nil {
		return err
	}
	if err := s.setTunnel(index, t); err != nil {
		return err
	}
	if err := s.enableGRO(t, index, twin.index); err != nil {
		return err
	}
	twin.mark = mark{role: roleTwin, owner: m.owner}
	if err := s.nl.changeUp(twin.index, true, rtnl.String(unix.IFLA_IFALIAS, twin.mark.String())); err != nil {
		return err
	}
	return s.nl.changeUp(index, true, rtnl.String(unix.IFLA_IFALIAS, m.String())) // complete
}

// changeTunnel makes a tunnel that is there be as t says. Its digest comes last.
func (s *HostNetwork) changeTunnel(d device, t Tunnel, m mark) error {
	if err := s.setTunnel(d.index, t); err != nil {
		return err
	}
	if err := s.enableGRO(t, d.index, d.peer); err != nil {
		return err
	}
	return s.nl.changeUp(d.index, true, rtnl.String(unix.IFLA_IFALIAS, m.String()))
}
