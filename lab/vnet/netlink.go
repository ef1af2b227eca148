package vnet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// socket is a netlink socket in one namespace. Messages are collected and sent many at a time: a million routes one by one would
// cost as many switches between kernel and user.
type socket struct {
	fd   int
	out  []byte
	sent []any // what the messages in out mean, for errors
	seq  uint32
	in   []byte
}

// chunk is how much is sent at a time. The answers, 36 bytes each, must fit into the receive buffer.
const chunk = 32 << 10

// dial opens a socket in the namespace of the thread.
func dial() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1) // without what we sent
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	return &socket{fd: fd, in: make([]byte, 64<<10)}, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// message is a request without its header's length and sequence number.
type message struct {
	kind, flags uint16
	body        []byte
}

func (m *message) attr(kind uint16, value []byte) {
	m.body = binary.NativeEndian.AppendUint16(m.body, uint16(unix.SizeofRtAttr+len(value)))
	m.body = binary.NativeEndian.AppendUint16(m.body, kind)
	m.body = append(m.body, value...)
	m.pad()
}

func (m *message) pad() {
	for len(m.body)%unix.NLA_ALIGNTO != 0 {
		m.body = append(m.body, 0)
	}
}

func (m *message) attrU32(kind uint16, value uint32) {
	m.attr(kind, binary.NativeEndian.AppendUint32(nil, value))
}

// add puts a message into the queue; what is printed if the kernel refuses it.
func (s *socket) add(m message, what any) error {
	length := unix.SizeofNlMsghdr + len(m.body)
	if len(s.out)+length > chunk {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.out = binary.NativeEndian.AppendUint32(s.out, uint32(length))
	s.out = binary.NativeEndian.AppendUint16(s.out, m.kind)
	s.out = binary.NativeEndian.AppendUint16(s.out, m.flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	s.out = binary.NativeEndian.AppendUint32(s.out, s.seq+uint32(len(s.sent)))
	s.out = binary.NativeEndian.AppendUint32(s.out, 0)
	s.out = append(s.out, m.body...) // a multiple of four bytes
	s.sent = append(s.sent, what)
	return nil
}

// flush sends what is queued and waits for all answers.
func (s *socket) flush() error {
	if len(s.sent) == 0 {
		return nil
	}
	defer func() {
		s.seq += uint32(len(s.sent))
		s.out, s.sent = s.out[:0], s.sent[:0]
	}()
	if err := unix.Sendto(s.fd, s.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to kernel: %w", err)
	}
	var errs []error
	for answers := 0; answers < len(s.sent); {
		n, _, err := unix.Recvfrom(s.fd, s.in, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive from kernel: %w", err)
		}
		for b := s.in[:n]; len(b) >= unix.SizeofNlMsghdr+4; answers++ {
			length := binary.NativeEndian.Uint32(b)
			seq := binary.NativeEndian.Uint32(b[8:])
			code := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:]))
			if i := int(seq - s.seq); code != 0 && i < len(s.sent) {
				errs = append(errs, fmt.Errorf("%v: %w", s.sent[i], unix.Errno(-code)))
			}
			b = b[min(len(b), int(length+3)&^3):]
		}
	}
	return errors.Join(errs...)
}
