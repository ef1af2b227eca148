package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// station is a node that only listens, and sends what a test says.
type station struct {
	ns     *os.File
	socket int
	napi   link.Link // a program on its interface that passes everything
}

// inLiveWorld runs a test in a world where ports are devices, and every port has a station behind it.
func inLiveWorld(t testing.TB, f func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		// nobody speaks but stations
		w.check(os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
		w.stations = map[int]*station{}
		w.a = w.port(macA)
		f(w)
	})
}

// plug makes a device and a station behind it.
func (w *world) plug(mac [6]byte) int {
	s := &station{socket: -1}
	name := fmt.Sprintf("p%d", w.ports)
	w.check(netns.New(func() (err error) {
		s.ns, err = netns.Open("/proc/thread-self/ns/net")
		return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	}))
	w.ip("link add %s type veth peer name e0 address %s netns /proc/%d/fd/%d", name, net.HardwareAddr(mac[:]),
		os.Getpid(), s.ns.Fd())
	w.ip("link set %s up", name)
	w.check(netns.In(s.ns, func() (err error) {
		w.ip("link set e0 up")
		if s.napi, err = passAll(ifindex(w, "e0")); err != nil {
			return err
		}
		s.socket, err = packetSocket(ifindex(w, "e0"))
		return err
	}))
	index := ifindex(w, name)
	if !w.bare {
		w.check(w.d.Attach(index))
	}
	w.stations[index] = s
	return index
}

// passAll attaches a program that lets the interface take frames from XDP programs at the other end.
func passAll(index int) (link.Link, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Close() }()
	return link.AttachXDP(link.XDPOptions{Program: p, Interface: index, Flags: link.XDPDriverMode})
}

func packetSocket(index int) (int, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
	// deaf until it is bound
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}),
	)
}

func (s *station) close() error {
	return errors.Join(s.napi.Close(), unix.Close(s.socket), s.ns.Close())
}

func (w *world) ip(format string, args ...any) {
	if out, err := exec.Command("sh", "-c", "ip "+fmt.Sprintf(format, args...)).CombinedOutput(); err != nil {
		w.Errorf("ip %s: %s", fmt.Sprintf(format, args...), out)
	}
}

// arrival is a frame as a station got it.
type arrival struct {
	Port  int
	Kind  uint8 // PACKET_HOST, ...
	Frame []byte
}

// receiveAll takes what has come to all stations.
func (w *world) receiveAll() []arrival {
	var all []arrival
	buf := make([]byte, 1<<16)
	for port, s := range w.stations {
		for {
			n, from, err := unix.Recvfrom(s.socket, buf, 0)
			if err != nil {
				break
			}
			kind := uint8(0)
			if l, ok := from.(*unix.SockaddrLinklayer); ok {
				kind = l.Pkttype
			}
			all = append(all, arrival{port, kind, append([]byte{}, buf[:n]...)})
		}
	}
	return all
}

// listen waits until something has come to a station. It says no after so long.
func (w *world) listen(d time.Duration) bool {
	var sockets []unix.PollFd
	for _, s := range w.stations {
		sockets = append(sockets, unix.PollFd{Fd: int32(s.socket), Events: unix.POLLIN})
	}
	n, err := unix.Poll(sockets, int(max(0, d.Milliseconds())))
	if errors.Is(err, unix.EINTR) {
		return d > 0
	}
	w.check(err)
	return n > 0
}

// say sends a frame as the station behind a port.
func (w *world) say(port int, frame []byte) error {
	_, err := unix.Write(w.stations[port].socket, frame)
	return err
}
