package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

const bridge = "switch"

// makeSwitch makes the bridge that joins the wires, in a namespace that is mounted in the testbed.
func (b *Testbed) makeSwitch() error {
	path := b.path("switch")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return netns.New(func() error {
		// It forwards, and says nothing of its own.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = bridge, b.MTU
		snoop := false // no querier is there, without which snooping would cut multicast off
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop}); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		link, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find bridge: %w", err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set bridge up: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the switch's network namespace: %w", err)
		}
		return nil
	})
}

// plug connects the wire between the switch and the machine whose first process is given.
func (m *Machine) plug(pid int) error {
	err := netns.Do(m.testbed.path("switch"), func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = m.Name, m.testbed.MTU
		pair := netlink.NewVeth(attrs)
		pair.PeerName, pair.PeerMTU, pair.PeerNamespace = NIC, uint32(m.testbed.MTU), netlink.NsPid(pid)
		pair.PeerHardwareAddr = net.HardwareAddr{2, 0, 198, 18, 0, byte(m.Number)}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("add a wire: %w", err)
		}
		if err := asOnAWire(m.Name); err != nil {
			return err
		}
		end, err := netlink.LinkByName(m.Name)
		if err != nil {
			return fmt.Errorf("find wire: %w", err)
		}
		to, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find bridge: %w", err)
		}
		if err := netlink.LinkSetMaster(end, to); err != nil {
			return fmt.Errorf("plug the wire into the switch: %w", err)
		}
		return netlink.LinkSetUp(end)
	})
	if err != nil {
		return err
	}
	return netns.Do(netns.Path(pid), m.configure)
}

// configure sets the machine's interfaces up.
func (m *Machine) configure() error {
	if err := asOnAWire(NIC); err != nil {
		return err
	}
	for _, name := range []string{"lo", NIC} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set interface %s up: %w", name, err)
		}
		if name == "lo" {
			continue
		}
		v4, v6 := m.Addresses()
		for _, a := range []netip.Prefix{v4, v6} {
			address := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(),
				Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
			if a.Addr().Is6() {
				// no other machine has it, and a program may want to listen at it at once
				address.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, address); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
	}
	return nil
}

// asOnAWire lets frames leave an end of a veth pair as a wire would carry them: cut to its MTU, with their checksums.
// And it lets the end take what an XDP program at the other sends: veth does so only where GRO is on, which real
// interfaces do too.
func asOnAWire(name string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("switch offloads of %s: %w", name, err)
	}
	defer tool.Close()
	is, err := tool.Features(name)
	if err != nil {
		return fmt.Errorf("switch offloads of %s: %w", name, err)
	}
	want := map[string]bool{"rx-gro": true}
	for feature := range is {
		switch {
		case feature == "tx-generic-segmentation": // the kernel's own, before the device sees the frame
		case strings.HasPrefix(feature, "tx-checksum-"), strings.HasSuffix(feature, "-segmentation"):
			want[feature] = false
		}
	}
	if err := tool.Change(name, want); err != nil {
		return fmt.Errorf("switch offloads of %s: %w", name, err)
	}
	return nil
}

// Cut cuts the machine's wire: neither end has a carrier.
func (m *Machine) Cut() error { return m.wire(netlink.LinkSetDown) }

// Mend undoes Cut.
func (m *Machine) Mend() error { return m.wire(netlink.LinkSetUp) }

// IsCut reports whether the machine's wire was cut.
func (m *Machine) IsCut() (cut bool, err error) {
	err = m.wire(func(l netlink.Link) error {
		cut = l.Attrs().Flags&net.FlagUp == 0
		return nil
	})
	return cut, err
}

func (m *Machine) wire(do func(netlink.Link) error) error {
	err := netns.Do(m.testbed.path("switch"), func() error {
		l, err := netlink.LinkByName(m.Name)
		if err != nil {
			return err
		}
		return do(l)
	})
	if err != nil {
		return fmt.Errorf("find the wire of machine %s: %w", m.Name, err)
	}
	return nil
}
