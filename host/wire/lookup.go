package wire

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The kernel looks routes up for the data path where it would forward: at the uplink's other end. It never comes to that: the program there leaves
// it nothing.

// forwarding is the kernel's switch of a device; of "default", for those that are to come.
func forwarding(family, device string) sysctl {
	return sysctl{"net/" + family + "/conf/" + device + "/forwarding", "1"}
}

// letLookUpLocked has routes looked up over IPv4, and over IPv6 if there are tunnels. It is asked again and again: who turns forwarding off for the
// machine turns it off here, too. The caller holds underlay.mu.
func (s *Substrate) letLookUpLocked(machine *conn, inner, outer device) error {
	if err := netns.In(s.host, forwarding("ipv4", outer.name).set); err != nil {
		return err
	}
	all, err := s.data.Tunnels()
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Local.Is6() {
			return s.letLookUpIPv6Locked(machine, inner, outer)
		}
	}
	return nil
}

// letLookUpIPv6 has routes looked up over IPv6. It is no error if there is no uplink: that looks at the tunnels when it comes.
func (s *Substrate) letLookUpIPv6() error {
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
	inner, outer, err := s.findUplink(machine, name)
	if errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.letLookUpIPv6Locked(machine, inner, outer)
}

// letLookUpIPv6Locked makes the uplink's end a device that forwards without turning forwarding on: whoever does that, at any device, makes the kernel
// forget all default routes that router advertisements brought (rt6_purge_dflt_routers()). A device that forwards from the beginning does not.
func (s *Substrate) letLookUpIPv6Locked(machine *conn, inner, outer device) error {
	return netns.In(s.host, func() error {
		const tries = 10 // another substrate of this machine may do the same, and change the default under us
		here, newcomers := forwarding("ipv6", outer.name), forwarding("ipv6", "default")
		for range tries {
			if here.is() || !newcomers.exists() { // a machine without IPv6
				return nil
			}
			if err := s.beginForwarding(machine, inner, outer); err != nil {
				return fmt.Errorf("let device %s begin to forward IPv6: %w", outer.name, err)
			}
		}
		return fmt.Errorf("let device %s begin to forward IPv6: somebody always turns net.ipv6.conf.default.forwarding off", outer.name)
	})
}

// beginForwarding lets a device leave IPv6, as it does when its MTU is too small, and begin anew. Until it is up again it is not complete.
func (s *Substrate) beginForwarding(machine *conn, inner, outer device) error {
	const tooSmall = 1280 - 1 // IPV6_MIN_MTU
	if err := machine.changeUp(outer.index, false, rtnl.U32(unix.IFLA_MTU, tooSmall)); err != nil {
		return err
	}
	if err := s.raiseDefault(&inner); err != nil {
		return err
	}
	err := machine.change(outer.index, rtnl.U32(unix.IFLA_MTU, maxMTU))
	if err := errors.Join(err, s.lowerDefault(&inner)); err != nil {
		return err
	}
	if err := machine.silence(outer.index); err != nil {
		return err
	}
	return machine.changeUp(outer.index, true)
}

// raiseDefault lets devices that are to come forward IPv6, and notes before that it will have done so.
func (s *Substrate) raiseDefault(inner *device) error {
	newcomers := forwarding("ipv6", "default")
	if newcomers.is() {
		return nil
	}
	m := inner.mark
	m.raised = true
	if err := s.remark(inner, m); err != nil {
		return err
	}
	return newcomers.write()
}

// lowerDefault undoes raiseDefault, if it was done. The thread is in the machine's namespace.
func (s *Substrate) lowerDefault(inner *device) error {
	if err := lowerDefault(inner.mark); err != nil {
		return err
	}
	m := inner.mark
	m.raised = false
	return s.remark(inner, m)
}

func lowerDefault(m mark) error {
	if !m.raised {
		return nil
	}
	err := sysctl{forwarding("ipv6", "default").path, "0"}.write()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
