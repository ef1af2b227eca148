package queues

import (
	_ "embed" // Program
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Program is the C code of a node that directs flows: to port 5000 + n, by interface n.
//
//go:embed program/shares.c
var Program []byte

// Flow sends datagrams from a namespace at a rate that can change meanwhile.
type Flow struct {
	conn net.Conn
	bits atomic.Int64 // a second, with Ethernet headers
	sent atomic.Uint64
	owed float64 // bytes
}

const (
	payload = 1400
	headers = 14 + 20 + 8 // Ethernet, IPv4, UDP
)

// NewFlow opens a socket to an address and port.
func NewFlow(ns *os.File, to string) (*Flow, error) {
	f := &Flow{}
	// Frames that wait in queues are still charged to the socket, which would let its sender wait.
	const room = 256 << 20
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		control := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, room)
		})
		return errors.Join(control, err)
	}}
	err := netns.In(ns, func() (err error) {
		f.conn, err = dialer.Dial("udp", to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open flow to %s: %w", to, err)
	}
	return f, nil
}

// Set changes the rate, in bits a second.
func (f *Flow) Set(bits float64) { f.bits.Store(int64(bits)) }

// Sent is how many bytes of frames were sent.
func (f *Flow) Sent() uint64 { return f.sent.Load() }

// Close closes the socket.
func (f *Flow) Close() error { return f.conn.Close() }

// Send sends all flows from one thread until stop is closed: a little of each every millisecond.
func Send(flows []*Flow, stop <-chan struct{}) error {
	const most = 20 * time.Millisecond // a sender that was late does not make up for more
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	data := make([]byte, payload)
	for then := time.Now(); ; {
		select {
		case <-stop:
			return nil
		case <-pace.C:
		}
		now := time.Now()
		span := min(now.Sub(then), most).Seconds()
		then = now
		var errs []error
		for _, f := range flows {
			errs = append(errs, f.send(data, span))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

func (f *Flow) send(data []byte, span float64) error {
	for f.owed += float64(f.bits.Load()) / 8 * span; f.owed >= payload+headers; f.owed -= payload + headers {
		if _, err := f.conn.Write(data); err != nil {
			return err
		}
		f.sent.Add(payload + headers)
	}
	return nil
}
