package wire_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// advertise sends a router advertisement to a machine, which makes a default route of it.
func (b *bed) advertise(m *machine) {
	b.Helper()
	b.must(netns.In(b.wires, func() error {
		fd, err := openTap(b, fmt.Sprint("w", m.number))
		if err == nil {
			(&tap{b, fd}).send(advertisement(b))
		}
		return err
	}))
	testkit.Eventually(b, func() error {
		if !m.advertised() {
			return fmt.Errorf("%s", m.run("ip", "-6", "route"))
		}
		return nil
	}, 10*time.Second, "the route of a router advertisement")
}

func advertisement(t testing.TB) []byte {
	t.Helper()
	eth := &layers.Ethernet{
		SrcMAC: mac(0xfd01), DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1},
		EthernetType: layers.EthernetTypeIPv6,
	}
	ip := &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: net.ParseIP("fe80::fd01"),
		DstIP: net.ParseIP("ff02::1"),
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeRouterAdvertisement, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	frame := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	advertisement := &layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: 1800}
	if err := gopacket.SerializeLayers(frame, options, eth, ip, icmp, advertisement); err != nil {
		t.Fatal(err)
	}
	return frame.Bytes()
}

func (m *machine) advertised() bool {
	m.Helper()
	return strings.Contains(m.run("ip", "-6", "route"), "default via fe80::fd01 dev eth0 proto ra")
}

func (m *machine) forwarding(device string) string {
	m.Helper()
	return strings.TrimSpace(m.run("sh", "-c", "cat /proc/sys/net/ipv6/conf/"+device+"/forwarding"))
}

// overIPv6 adds a tunnel that leads nowhere.
func (m *machine) overIPv6() {
	m.Helper()
	peer := &machine{ip6: netip.MustParseAddr("fd09::9")}
	m.must(m.AddTunnel(m.ctx, tunnelOf{slice.EGRE, true}.tunnel(m, peer, "s7p900", 1, 1400)))
}

func TestRoutersThatAdvertisedThemselvesStay(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	b.advertise(m)
	want := func(after string) {
		t.Helper()
		if !m.advertised() {
			t.Fatalf("%s, the default route is gone:\n%s", after, m.run("ip", "-6", "route"))
		}
		if f := m.forwarding("default"); f != "0" {
			t.Errorf("%s, net.ipv6.conf.default.forwarding is %s", after, f)
		}
		if addresses := m.run("ip", "-6", "-o", "address"); strings.Contains(addresses, "pergola") {
			t.Errorf("%s, the uplink has an address:\n%s", after, addresses)
		}
	}
	m.openUnderlay()
	want("with an underlay")
	m.overIPv6()
	want("with a tunnel over IPv6")
	if f := m.forwarding("pergola*"); f != "1" {
		t.Errorf("at the uplink, IPv6 is forwarded %s", f)
	}
	m.reopen()
	m.openUnderlay()
	want("after a restart")
	m.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1") // costs the routes, whoever does it
	m.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=0")
	b.advertise(m)
	m.openUnderlay()
	want("after a change of the machine's forwarding")
	m.must(m.DeletePorts(m.ctx, "s7p900"))
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{}))
	want("without an underlay")
}

// A process that is killed while it has raised the default for new devices leaves it so; the next one lowers it.
func TestRaisedDefaultIsLowered(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	raise := func() {
		t.Helper()
		m.openUnderlay()
		m.overIPv6()
		m.withNotes(func(notes *ebpf.Map) error {
			return notes.Put([2]uint32{uint32(datapath.NoteForwarding), 0}, uint32(1))
		})
		m.run("sh", "-c", "ip link set $(basename /proc/sys/net/ipv6/conf/pergola*) down mtu 1279")
		m.run("sysctl", "-qw", "net.ipv6.conf.default.forwarding=1")
	}
	lowered := func(by string) {
		t.Helper()
		if f := m.forwarding("default"); f != "0" {
			t.Errorf("after %s, net.ipv6.conf.default.forwarding is %s", by, f)
		}
	}
	raise()
	m.reopen()
	m.openUnderlay()
	lowered("a restart")
	if f := m.forwarding("pergola*"); f != "1" {
		t.Errorf("at the uplink, IPv6 is forwarded %s", f)
	}
	raise()
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{}))
	lowered("the underlay's end")
	raise()
	m.must(m.Close())
	m.HostNetwork = nil
	m.must(m.there(func() error { return wire.Remove(context.Background(), m.dir) }))
	lowered("the substrate's end")
}
