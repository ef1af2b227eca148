package speaker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// freeRtr (github.com/mc36/freeRtr) is a router with RSVP-TE of its own, in Java. It is no package of Debian:
// PERGOLA_FREERTR names its classes, a directory or a jar, and without it these tests are skipped.
//
//	a -- f -- d      links 10.0.0.0/24, 10.0.1.0/24; f is freeRtr

// outlived is longer than state lives without refreshes (RFC 2205, section 3.7).
const outlived = 6 * refresh

var (
	freeRtrID  = netip.MustParseAddr("192.0.2.9")
	freeRtrMAC = net.HardwareAddr{2, 0, 0, 0, 0x0f, 1} // at the first link; at the second one the last byte is 2
)

// freeRtrHardware gives it two interfaces, each a pair of UDP ports.
const freeRtrHardware = `int eth1 eth 0200.0000.0f01 127.0.0.1 20001 127.0.0.1 20002
int eth2 eth 0200.0000.0f02 127.0.0.1 20003 127.0.0.1 20004
`

// freeRtrSoftware has it answer, and begin a tunnel to a.
const freeRtrSoftware = `hostname f
vrf def v1
 rd 1:1
 exit
int lo0
 vrf for v1
 ipv4 addr 192.0.2.9 255.255.255.255
 exit
int eth1
 vrf for v1
 ipv4 addr 10.0.0.2 255.255.255.0
 mpls enable
 mpls rsvp4
 exit
int eth2
 vrf for v1
 ipv4 addr 10.0.1.1 255.255.255.0
 mpls enable
 mpls rsvp4
 exit
int tun1
 tun sou eth1
 tun dest 10.0.0.1
 tun vrf v1
 tun mod p2pte
 vrf for v1
 ipv4 addr 10.9.9.1 255.255.255.252
 exit
ipv4 route v1 192.0.2.4 255.255.255.255 10.0.1.2
ipv4 route v1 192.0.2.1 255.255.255.255 10.0.0.1
`

func newFreeRtrLab(t *testing.T) *lab {
	t.Helper()
	classes := os.Getenv("PERGOLA_FREERTR")
	if classes == "" {
		t.Skip("PERGOLA_FREERTR does not name the classes of freeRtr")
	}
	via := func(to netip.Addr, hop netip.Addr) []vnet.Route {
		return []vnet.Route{{To: netip.PrefixFrom(to, 32), Hops: []vnet.Hop{{Via: hop}}}}
	}
	end := func(node, name string, link, side int) vnet.End {
		return vnet.End{Node: node, Interface: name,
			Addresses: []netip.Prefix{netip.PrefixFrom(linkAddress(link, side), 24)}}
	}
	loopback := func(i int) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(idOf(i), 32)} }
	l := newSilentLab(t, vnet.Plan{Slice: 62,
		Nodes: []vnet.NodePlan{
			{Name: "a", Router: true, Loopbacks: loopback(0), Routes: via(idOf(3), linkAddress(0, 1))},
			{Name: "f"},
			{Name: "d", Router: true, Loopbacks: loopback(3), Routes: via(idOf(0), linkAddress(1, 0))},
		},
		Links: []vnet.LinkPlan{
			{Ends: []vnet.End{end("a", "to-f", 0, 0), {Node: "f", Interface: "eth1"}}},
			{Ends: []vnet.End{{Node: "f", Interface: "eth2"}, end("d", "to-f", 1, 1)}},
		}})
	f := l.network.Nodes["f"].NS
	l.bridge(f, "eth1", 20002, 20001)
	l.bridge(f, "eth2", 20004, 20003)
	dir := t.TempDir()
	for name, text := range map[string]string{"hw": freeRtrHardware, "sw": freeRtrSoftware} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var says bytes.Buffer
	java := exec.CommandContext(t.Context(), "java", "-Xmx256m", "-cp", classes, "org.freertr.router", "routers",
		"hw", "sw")
	java.Dir, java.Stdout, java.Stderr = dir, &says, &says
	if err := netns.In(f, java.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = java.Process.Kill()
		_ = java.Wait()
		if t.Failed() {
			t.Logf("freeRtr says:\n%s", &says)
		}
	})
	l.speak("a")
	l.speak("d")
	return l
}

// packets is a socket for whole frames of a device.
func packets(t *testing.T, ns *os.File, device string, protocol uint16) *os.File {
	t.Helper()
	var file *os.File
	err := netns.In(ns, func() error {
		index, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		kind := int(protocol<<8 | protocol>>8)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, kind)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), device)
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(kind), Ifindex: index.Index}))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// bridge joins a device with a pair of UDP ports, by which freeRtr has its interfaces.
func (l *lab) bridge(ns *os.File, device string, local, remote int) {
	l.Helper()
	frames := packets(l.T, ns, device, unix.ETH_P_ALL)
	var conn *net.UDPConn
	err := netns.In(ns, func() (err error) {
		from, to := net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: local}, net.UDPAddr{Port: remote}
		to.IP = from.IP
		conn, err = net.DialUDP("udp4", &from, &to)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = conn.Close() })
	carry := func(from, to interface {
		Read([]byte) (int, error)
		Write([]byte) (int, error)
	}) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			switch {
			case errors.Is(err, unix.ECONNREFUSED): // it does not run yet
			case err != nil:
				return
			default:
				_, _ = to.Write(buffer[:n])
			}
		}
	}
	go carry(frames, conn)
	go carry(conn, frames)
}

// freeRtr is between two of our routers, and at the end: labels are its, and packets go by them.
func TestAnLSPThroughFreeRtr(t *testing.T) {
	l := newFreeRtrLab(t)
	a, d := l.speakers["a"], l.speakers["d"]
	through := request(1, 1000, linkAddress(0, 1), linkAddress(1, 1))
	to := request(2, 1000, linkAddress(0, 1))
	to.Key.Session.End = freeRtrID
	for _, q := range []rsvp.Request{through, to} {
		if err := a.Add(q); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, func() error {
		for _, q := range []rsvp.Request{through, to} {
			if _, ok := a.entry(q.Key); !ok {
				return fmt.Errorf("%s is not up: %v", q.Key, a.kinds())
			}
		}
		return nil
	}, 3*patience, "both LSPs")
	first, _ := a.entry(through.Key)
	last, there := d.entry(through.Key)
	if !there || last.In != message.ImplicitNull || first.Out < 16 {
		t.Errorf("a has %+v, and d %+v", first, last)
	}
	l.carried(first.Out)
	<-time.After(outlived)
	if kinds := a.kinds(); index(kinds, rsvp.Down) >= 0 || index(kinds, rsvp.Failed) >= 0 {
		t.Errorf("a says %v", kinds)
	}
	if err := a.Remove(through.Key); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, func() bool { _, there := d.entry(through.Key); return !there }, patience,
		"d to be told of the end")
}

// freeRtr begins an LSP to one of ours.
func TestAnLSPFromFreeRtr(t *testing.T) {
	l := newFreeRtrLab(t)
	a := l.speakers["a"]
	is := func() (e rsvp.Entry, ok bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for k, e := range a.labels {
			if k.Session.End == linkAddress(0, 0) {
				return e, true
			}
		}
		return e, false
	}
	testkit.Await(t, func() bool { _, ok := is(); return ok }, 3*patience, "the LSP of freeRtr")
	e, _ := is()
	if !e.HasIn || e.HasOut {
		t.Errorf("a has %+v", e)
	}
	<-time.After(outlived)
	if kinds := a.kinds(); index(kinds, rsvp.Down) >= 0 {
		t.Errorf("a says %v", kinds)
	}
}

// carried sends a packet with a label from a, and waits until it comes out of the LSP at d.
func (l *lab) carried(label message.Label) {
	l.Helper()
	from := packets(l.T, l.network.Nodes["a"].NS, "to-f", unix.ETH_P_ALL)
	to := packets(l.T, l.network.Nodes["d"].NS, "to-f", unix.ETH_P_IP)
	mark := []byte("by way of another make")
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: 253, SrcIP: idOf(0).AsSlice(), DstIP: idOf(3).AsSlice()}
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: freeRtrMAC,
			EthernetType: layers.EthernetTypeMPLSUnicast},
		&layers.MPLS{Label: uint32(label), StackBottom: true, TTL: 64}, ip, gopacket.Payload(mark))
	if err != nil {
		l.Fatal(err)
	}
	came := make(chan []byte)
	go func() {
		frame := make([]byte, 1<<16)
		for {
			n, err := to.Read(frame)
			if err != nil {
				return
			}
			if bytes.Contains(frame[:n], mark) {
				came <- frame[:n]
				return
			}
		}
	}()
	testkit.Eventually(l, func() error {
		if _, err := from.Write(buffer.Bytes()); err != nil {
			return err
		}
		select {
		case frame := <-came:
			if kind := binary.BigEndian.Uint16(frame[12:]); kind != uint16(layers.EthernetTypeIPv4) {
				return fmt.Errorf("EtherType %#x", kind)
			}
			return nil
		default:
			return errors.New("nothing has come")
		}
	}, patience, "a packet by the LSP")
}
