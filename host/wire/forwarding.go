package wire

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The kernel looks routes up for the data path at a device that forwards: at the uplink's other end. It forwards
// nothing itself there: the program at that end consumes every frame.

// forwarding is the sysctl of a device; that of "default" is for devices that are made later.
func forwarding(family, device string) sysctl {
	return sysctl{"net/" + family + "/conf/" + device + "/forwarding", "1"}
}

// enableLookupLocked has routes looked up for IPv4, and for IPv6 if there are tunnels over it. It is called again and
// again: turning forwarding off for the machine turns it off here, too. The caller holds underlay.mu.
func (s *HostNetwork) enableLookupLocked(machine *conn, outer device) error {
	if err := netns.In(s.host, forwarding("ipv4", outer.name).set); err != nil {
		return err
	}
	all, err := s.data.Tunnels()
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Local.Is6() {
			return s.enableIPv6LookupLocked(machine, outer)
		}
	}
	return nil
}

// enableIPv6Lookup has routes looked up for IPv6. It is no error if there is no uplink: one that is made later looks at
// the tunnels then.
func (s *HostNetwork) enableIPv6Lookup() error {
	name, err := outerName(s.paths.stateDir)
	if err != nil {
		return err
	}
	ready := false
	if err := netns.In(s.host, func() error {
		ready = forwarding("ipv6", name).is()
		return nil
	}); err != nil || ready {
		return err
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	machine, err := dial(s.host)
	if err != nil {
		return err
	}
	defer machine.close()
	_, outer, err := s.findUplink(machine, name)
	if errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.enableIPv6LookupLocked(machine, outer)
}

// enableIPv6LookupLocked makes the uplink's end a device that forwards from its beginning. Turning forwarding on at a
// device that exists makes the kernel forget all default routes that came by router advertisements
// (rt6_purge_dflt_routers()).
func (s *HostNetwork) enableIPv6LookupLocked(machine *conn, outer device) error {
	return netns.In(s.host, func() error {
		// another host network of this machine may do the same, and change the default meanwhile
		const tries = 10
		here, later := forwarding("ipv6", outer.name), forwarding("ipv6", "default")
		for range tries {
			if here.is() || !later.exists() { // a machine without IPv6
				return nil
			}
			if err := s.restartIPv6(machine, outer); err != nil {
				return fmt.Errorf("let device %s forward IPv6: %w", outer.name, err)
			}
		}
		return fmt.Errorf("let device %s forward IPv6: another process keeps turning "+
			"net.ipv6.conf.default.forwarding off", outer.name)
	})
}

// restartIPv6 ends IPv6 at a device, by an MTU that is too small for it, and begins it anew, with forwarding. Until the
// device is up again it is not complete.
func (s *HostNetwork) restartIPv6(machine *conn, outer device) error {
	const tooSmall = 1280 - 1 // IPV6_MIN_MTU
	if err := machine.changeUp(outer.index, false, rtnl.U32(unix.IFLA_MTU, tooSmall)); err != nil {
		return err
	}
	if err := s.setForwardingDefault(); err != nil {
		return err
	}
	err := machine.change(outer.index, rtnl.U32(unix.IFLA_MTU, maxMTU))
	if err := errors.Join(err, s.resetForwardingDefault()); err != nil {
		return err
	}
	if err := machine.disableIPv6Addresses(outer.index); err != nil {
		return err
	}
	return machine.changeUp(outer.index, true)
}

// setForwardingDefault lets devices that are made from now on forward IPv6. It is noted before.
func (s *HostNetwork) setForwardingDefault() error {
	later := forwarding("ipv6", "default")
	if later.is() {
		return nil
	}
	if err := s.data.SetNote(datapath.NoteForwarding, 0, 1); err != nil {
		return err
	}
	return later.write()
}

// resetForwardingDefault undoes setForwardingDefault, if it was done. The thread is in the machine's namespace.
func (s *HostNetwork) resetForwardingDefault() error {
	set, err := s.data.Note(datapath.NoteForwarding, 0)
	if err != nil || set == 0 {
		return err
	}
	if err := resetForwardingDefault(); err != nil {
		return err
	}
	return s.data.SetNote(datapath.NoteForwarding, 0, 0)
}

func resetForwardingDefault() error {
	err := sysctl{forwarding("ipv6", "default").path, "0"}.write()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
