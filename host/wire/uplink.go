package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The uplink is a veth pair from the substrate into the machine's own namespace. Frames of tunnels pass it, between the
// programs at the machine's interfaces and those of the substrate; nothing else does, and the machine's own stack
// receives no frame of it.
//
//	tunnel ── uplink ── veth ── pergola1f6c20ab ── eth0
const uplinkName = "uplink"

// outerName is the machine's end: of one host network, of which there may be several.
func outerName(stateDir string) (string, error) {
	path, err := filepath.Abs(stateDir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return markWord + hex.EncodeToString(sum[:4]), nil
}

// makeUplink makes the pair, unless it is there, attaches its programs, and gives the substrate's end.
func (s *HostNetwork) makeUplink(machine *conn) (inner device, err error) {
	name, err := outerName(s.paths.stateDir)
	if err != nil {
		return inner, err
	}
	inner, outer, err := s.findUplink(machine, name)
	if errors.Is(err, ErrNoDevice) {
		inner, outer, err = s.newUplink(machine, name)
	}
	if err != nil {
		return inner, err
	}
	if err := s.enableLookupLocked(machine, outer); err != nil {
		return inner, err
	}
	if err := s.data.SetUplink(inner.index); err != nil {
		return inner, err
	}
	if err := netns.In(s.ns, func() error { return s.data.AttachUplink(inner.index) }); err != nil {
		return inner, err
	}
	return inner, netns.In(s.host, func() error {
		// What is for UDP ports of packet programs goes through this device; tunnels' packets go past it.
		if err := finishChecksums(name); err != nil {
			return fmt.Errorf("switch the offload of checksums of %s off: %w", name, err)
		}
		return s.data.AttachEgress(outer.index)
	})
}

// findUplink finds the pair. ErrNoDevice: there is none that is complete.
func (s *HostNetwork) findUplink(machine *conn, name string) (inner, outer device, err error) {
	if inner, err = s.nl.device(uplinkName); err != nil {
		return inner, outer, err
	}
	if outer, err = machine.device(name); err != nil {
		return inner, outer, err
	}
	if !inner.marked || !outer.marked || !outer.up || inner.peer != outer.index || outer.peer != inner.index {
		return inner, outer, ErrNoDevice
	}
	return inner, outer, nil
}

func (s *HostNetwork) newUplink(machine *conn, name string) (inner, outer device, err error) {
	if err = s.deleteUplink(); err != nil { // half made
		return inner, outer, err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(uplinkName) })
	// The largest MTU: whatever the interfaces carry passes.
	index, err := s.addVeth(veth{name: uplinkName, peer: name, peerNS: s.host, mtu: maxMTU})
	if errors.Is(err, unix.EEXIST) {
		return inner, outer, fmt.Errorf("an interface %s exists already, and is not ours to replace: %w", name,
			err)
	}
	if err != nil {
		return inner, outer, err
	}
	if outer, err = machine.device(name); err != nil {
		return inner, outer, err
	}
	m, err := newMark(roleUplink, s.paths.stateDir, "")
	if err != nil {
		return inner, outer, err
	}
	alias := rtnl.String(unix.IFLA_IFALIAS, m.String())
	if err := machine.disableIPv6Addresses(outer.index); err != nil {
		return inner, outer, err
	}
	if err := machine.changeUp(outer.index, true, alias); err != nil {
		return inner, outer, err
	}
	if err := s.nl.changeUp(index, true, alias); err != nil {
		return inner, outer, err
	}
	inner, err = s.nl.deviceAt(index)
	return inner, outer, err
}

// deleteUplink lets the data path forget it first: as soon as it is deleted, a port may get its index, and would
// receive what goes into tunnels.
func (s *HostNetwork) deleteUplink() error {
	if err := s.data.SetUplink(0); err != nil {
		return err
	}
	// The process that set it may have been killed.
	if err := netns.In(s.host, s.resetForwardingDefault); err != nil {
		return err
	}
	return s.deleteNamed(uplinkName)
}

// disableIPv6Addresses keeps the machine's stack from using a device: without IPv6 addresses it sends nothing there by
// itself.
func (c *conn) disableIPv6Addresses(index int) error {
	mode := rtnl.Nest(unix.AF_INET6, rtnl.U8(unix.IFLA_INET6_ADDR_GEN_MODE, nl.IN6_ADDR_GEN_MODE_NONE))
	err := c.change(index, rtnl.Nest(unix.IFLA_AF_SPEC, mode))
	if errors.Is(err, unix.EAFNOSUPPORT) { // a machine without IPv6
		return nil
	}
	return err
}
