package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// programs is what is attached to the machine's interface, as people see it.
func (m *machine) programs() string {
	m.Helper()
	return strings.Join([]string{
		m.run("tc", "qdisc", "show", "dev", nic), m.run("tc", "filter", "show", "dev", nic, "ingress"),
		m.run("ip", "-o", "-d", "link", "show", "dev", nic), strings.Join(m.interfaces(), " "),
	}, "\n")
}

// interfaces are the names of those of the machine. Their carriers come and go later.
func (m *machine) interfaces() (all []string) {
	m.Helper()
	for line := range strings.Lines(m.run("ip", "-o", "-br", "link")) {
		name, _, _ := strings.Cut(line, " ")
		all = append(all, name)
	}
	return all
}

// wantPrograms waits until the interface has again what it had: the kernel takes XDP programs off in the background.
func (m *machine) wantPrograms(before string) {
	m.Helper()
	testkit.Eventually(m, func() error {
		if after := m.programs(); after != before {
			return fmt.Errorf("before:\n%s\nnow:\n%s", before, after)
		}
		return nil
	}, 10*time.Second, "the interface to have what it had")
}

func (m *machine) xdp() string {
	m.Helper()
	state, err := m.Underlay(m.ctx)
	m.must(err)
	return state.NICs[nic].XDP
}

func TestInterfacesOfTheMachineGetBackWhatTheyHad(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	before := m.programs()
	m.openUnderlay()
	if have := m.xdp(); have != "native" {
		t.Errorf("the line card is said to be %q", have)
	}
	with := m.programs()
	if with == before || !strings.Contains(with, "underlay_ingress") || !strings.Contains(with, "xdp") {
		t.Errorf("what is attached:\n%s", with)
	}
	m.openUnderlay() // is there: nothing changes
	if again := m.programs(); again != with {
		t.Errorf("attached twice:\n%s\nbefore:\n%s", again, with)
	}
	m.reopen()
	m.openUnderlay()
	if again := m.programs(); again != with {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", again, with)
	}
	if have := m.xdp(); have != "native" {
		t.Errorf("after a restart the line card is said to be %q", have)
	}
	if remains := m.observe().Remains; len(remains) > 0 {
		t.Errorf("remains %v", remains)
	}
	// What a firewall's script may do.
	for _, forwarding := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		m.run("sysctl", "-qw", forwarding+"=1")
		m.run("sysctl", "-qw", forwarding+"=0")
	}
	wantForwarding := func(want ...string) {
		t.Helper()
		have := strings.Fields(m.run("sh", "-c", "cat /proc/sys/net/ipv[46]/conf/pergola*/forwarding"))
		if !slices.Equal(have, want) {
			t.Errorf("at the uplink, IPv4 and IPv6 are forwarded %v, want %v", have, want)
		}
	}
	wantForwarding("0", "0")
	m.openUnderlay()
	wantForwarding("1", "0")
	peer := &machine{ip6: netip.MustParseAddr("fd09::9")}
	m.must(m.AddTunnel(m.ctx, tunnelOf{slice.EGRE, true}.tunnel(m, peer, "s7p900", 1, 1400)))
	wantForwarding("1", "1")
	m.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	m.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=0")
	wantForwarding("1", "0")
	m.openUnderlay()
	wantForwarding("1", "1")
	m.must(m.DeletePorts(m.ctx, "s7p900"))
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{}))
	m.wantPrograms(before)
	m.openUnderlay()
	m.must(m.Close())
	m.HostNetwork = nil
	m.must(m.there(func() error { return wire.Remove(context.Background(), m.dir) }))
	m.wantPrograms(before)
}

// Interfaces come and go, are named or not.
func TestUnderlayFollowsItsConfiguration(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{nic, "eth1"}}))
	state, err := m.Underlay(m.ctx)
	m.must(err)
	if !state.NICs[nic].Present || !state.NICs[nic].Up || state.NICs["eth1"].Present {
		t.Errorf("%+v", state.NICs)
	}
	m.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "other")
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{"eth1"}}))
	testkit.Eventually(t, func() error {
		if with := m.programs(); strings.Contains(with, "underlay_ingress") ||
			strings.Contains(with, "prog/xdp") {
			return errors.New(with)
		}
		return nil
	}, 10*time.Second, "an interface that is no longer named to be left alone")
	state, err = m.Underlay(m.ctx)
	m.must(err)
	if e := state.NICs["eth1"]; !e.Present || e.Up || !strings.Contains(e.XDP, "ethtool -K") {
		t.Errorf("a veth pair that leaves checksums to be filled in has %+v", e)
	}
	m.run("ip", "link", "delete", "eth1")
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{nic, "eth1"}}))
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{}))
	if err := m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{"lo"}}); err == nil ||
		!strings.Contains(err.Error(), "interface lo: it carries neither") {
		t.Errorf("lo: %v", err)
	}
}

// Another's XDP program stays; tunnels work without a line card.
func TestInterfaceThatIsTaken(t *testing.T) {
	b := newBed(t, 2, 1500)
	m := b.machines[0]
	var theirs link.Link
	m.must(m.there(func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* XDP_PASS */), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer func() { _ = p.Close() }()
		i, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		theirs, err = link.AttachXDP(link.XDPOptions{
			Program: p, Interface: i.Attrs().Index, Flags: link.XDPDriverMode,
		})
		return err
	}))
	defer func() { _ = theirs.Close() }()
	b.openUnderlays()
	if have := m.xdp(); !strings.Contains(have, "taken by XDP program") {
		t.Errorf("the line card is said to be %q", have)
	}
	a, _ := b.pair(tunnelOf{kind: slice.EGRE})
	a.ping("a", "192.0.2.1")
}

func TestUnderlaysAreInterfacesWithAddresses(t *testing.T) {
	b := newBed(t, 1, 9000)
	m := b.machines[0]
	m.openUnderlay()
	m.run("ip", "address", "add", "192.0.2.77/32", "dev", "lo")
	m.run("ip", "link", "set", "lo", "up")
	m.run("ip", "route", "add", "default", "via", "10.9.0.9")
	m.run("ip", "link", "add", "first", "type", "veth", "peer", "name", "other")
	m.run("ip", "link", "set", "first", "up")
	m.run("ip", "address", "add", "198.51.100.1/24", "dev", "first")
	var have []hosts.Underlay
	m.must(m.there(func() (err error) {
		have, err = wire.Underlays()
		return err
	}))
	want := []netip.Prefix{netip.PrefixFrom(m.ip4, 24), netip.PrefixFrom(m.ip6, 64)}
	if len(have) != 2 || have[0].Name != nic || have[0].MTU != 9000 || !slices.Equal(have[0].Addresses, want) ||
		have[1].Name != "first" {
		t.Fatalf("%+v", have)
	}
	if have[0].XDP != "native" && !strings.HasPrefix(have[0].XDP, "not known") { // before Linux 6.3
		t.Errorf("XDP: %q", have[0].XDP)
	}
	m.must(m.there(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		speed, err := e.CmdGet(new(ethtool.EthtoolCmd), nic)
		if err == nil && have[0].Rate != uint64(speed)*1e6 {
			t.Errorf("rate %d of an interface of %d Mbit/s", have[0].Rate, speed)
		}
		return err
	}))
}
