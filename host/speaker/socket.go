package speaker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/signalling/rsvp"
)

const (
	protocol   = 46   // RSVP (RFC 2205, section 3.2)
	control    = 0xc0 // DSCP CS6: network control
	largest    = 1 << 16
	commonTTL  = 4                    // offset of Send_TTL in the message's header
	commonSize = 8                    // bytes of that header
	sendTime   = 5 * time.Millisecond // for a message to be taken by the kernel
)

// waiting is the bytes of memory for messages that wait to be read: all LSPs over a link that fails are set up again at
// once. The kernel's default is enough for 277 of them, and what is lost is sent again after seconds.
const waiting = 8 << 20

// routerAlert is the IP option (RFC 2113) by which each router on the way takes the packet out.
var routerAlert = []byte{0x94, 4, 0, 0}

// socket is where RSVP messages of one network namespace come in and leave. It is no packet socket, which would take
// the router off the fast path. The kernel gives it also packets for others that carry Router Alert, and forwards those
// no more (IP_ROUTER_ALERT, ip(7)).
type socket struct {
	raw    *ipv4.RawConn
	buffer [largest]byte
}

func openSocket(ns *os.File) (*socket, error) {
	var s socket
	err := netns.In(ns, func() error {
		config := net.ListenConfig{Control: takeAlerts}
		c, err := config.ListenPacket(context.Background(), fmt.Sprintf("ip4:%d", protocol), "0.0.0.0")
		if err != nil {
			return err
		}
		if s.raw, err = ipv4.NewRawConn(c); err != nil {
			return errors.Join(err, c.Close())
		}
		if err := s.raw.SetControlMessage(ipv4.FlagInterface, true); err != nil {
			return errors.Join(err, c.Close())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for RSVP: %w", err)
	}
	return &s, nil
}

func takeAlerts(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = os.NewSyscallError("IP_ROUTER_ALERT",
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_ROUTER_ALERT, 1))
		if failed == nil {
			failed = os.NewSyscallError("SO_RCVBUFFORCE",
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, waiting))
		}
	})
	return errors.Join(err, failed)
}

// receive waits for a message, which is valid until the next call. It fails with net.ErrClosed when the socket is
// closed.
func (s *socket) receive() (rsvp.Packet, error) {
	for {
		header, payload, of, err := s.raw.ReadFrom(s.buffer[:])
		if err != nil {
			return rsvp.Packet{}, err
		}
		from, ok := netip.AddrFromSlice(header.Src.To4())
		if ok && of != nil {
			to, _ := netip.AddrFromSlice(header.Dst.To4())
			return rsvp.Packet{Interface: of.IfIndex, Source: from, Dest: to, TTL: uint8(header.TTL),
				Message: payload}, nil
		}
	}
}

// send sends to a neighbour at an interface. Where direct, the packet is for the neighbour itself, without Router
// Alert. Else it is for the one that the message names, and the kernel's route has to lead to the neighbour. What goes
// between the ends of a bypass goes as the kernel's routes lead.
func (s *socket) send(m rsvp.Send, direct bool) error {
	to, index, options := m.Dest, m.Interface, routerAlert
	switch {
	case index == 0 || m.Through != (rsvp.Key{}):
		index, options = 0, nil
	case direct || !m.RouterAlert:
		to, options = m.Next, nil
	}
	if len(m.Message) < commonSize || !to.Is4() || !m.Source.Is4() {
		return fmt.Errorf("send a message of RSVP of %d bytes from %s to %s: not one of IPv4", len(m.Message),
			m.Source, to)
	}
	header := ipv4.Header{
		Version: ipv4.Version, Len: ipv4.HeaderLen + len(options), TOS: control,
		TotalLen: ipv4.HeaderLen + len(options) + len(m.Message), TTL: int(m.Message[commonTTL]),
		Protocol: protocol, Src: m.Source.AsSlice(), Dst: to.AsSlice(), Options: options,
	}
	// A node decides whether what leaves by its interfaces is taken: it must not hold up the host's process.
	if err := s.raw.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	if err := s.raw.WriteTo(&header, m.Message, &ipv4.ControlMessage{IfIndex: index}); err != nil {
		return fmt.Errorf("send a message of RSVP to %s: %w", to, err)
	}
	return nil
}

func (s *socket) close() error { return s.raw.Close() }
