package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/sdk/message"
)

// SlowPath is where a process has the frames that the node's packet program punts, and sends frames. One goroutine may
// read while others write. It stays when the agent goes. When the node's program is deleted, it gives errors.
type SlowPath struct{ file *os.File }

// Punt is a frame that the packet program punted, and what the program left of it.
type Punt struct {
	Interface int           // by which it came
	Reason    uint32        // packet->reason
	Flow      uint32        // packet->flow
	Queue     uint32        // packet->queue
	Table     int           // packet->table
	Time      time.Duration // of the punt: CLOCK_MONOTONIC
	Key       [64]byte      // that the program built
	Frame     []byte        // as it came, with the Ethernet header; it is the caller's until the next ReadPunt
}

// SlowPath asks for the node's slow path, which the topology has to give to a process (slowpath: socket). There is one
// at a time: the error is an *Error with the code message.Busy while another process has it.
func (n *Node) SlowPath(ctx context.Context) (*SlowPath, error) {
	var s SlowPath
	err := n.request(ctx, message.Request{Do: message.DoSlowPath}, func(ok json.RawMessage, fd int) error {
		if fd < 0 {
			return errors.New("the answer has no file descriptor")
		}
		var is message.SlowPath
		err := json.Unmarshal(ok, &is)
		if err == nil && (is.Version != message.SlowVersion || is.Header != message.SlowHeader) {
			err = fmt.Errorf("frames have headers of version %d, %d bytes", is.Version, is.Header)
		}
		if err == nil {
			err = syscall.SetNonblock(fd, true) // so that Close ends a read
		}
		if err != nil {
			closeFD(fd)
			return err
		}
		s.file = os.NewFile(uintptr(fd), "slow path")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// Close gives the slow path back. Reads that wait end.
func (s *SlowPath) Close() error { return s.file.Close() }

// The header, struct pergola_slow in pergola/slow.h: where its fields begin.
const (
	atEtherType = 12
	atVersion   = 14
	atKind      = 15
	atHeader    = 16
	atInterface = 18
	atReason    = 20
	atFlow      = 24
	atQueue     = 28
	atTime      = 32
	atTable     = 46
	atKey       = 64

	etherType = 0x0800

	kindPunted = 1
	kindSend   = 2
	kindEnter  = 3
)

// ReadPunt waits for the next frame. buffer is what it is read into; one of 64 KiB holds any.
func (s *SlowPath) ReadPunt(buffer []byte) (p Punt, err error) {
	n, err := s.file.Read(buffer)
	if err != nil {
		return p, err
	}
	h := buffer[:n]
	if n < message.SlowHeader || h[atVersion] != message.SlowVersion || h[atKind] != kindPunted {
		return p, fmt.Errorf("read from the slow path: %d bytes that are no punted frame", n)
	}
	p = Punt{
		Interface: int(binary.BigEndian.Uint16(h[atInterface:])), Reason: binary.BigEndian.Uint32(h[atReason:]),
		Flow: binary.BigEndian.Uint32(h[atFlow:]), Queue: binary.BigEndian.Uint32(h[atQueue:]),
		Table: int(binary.BigEndian.Uint16(h[atTable:])),
		Time:  time.Duration(binary.BigEndian.Uint64(h[atTime:])),
		Frame: h[message.SlowHeader:],
	}
	copy(p.Key[:], h[atKey:])
	return p, nil
}

// Send sends a frame out by an interface, past the packet program, into a queue that the topology gives the interface's
// link; 0: the default.
func (s *SlowPath) Send(iface, queue int, frame []byte) error {
	return s.write(kindSend, iface, queue, frame)
}

// Enter gives a frame to the packet program, as if it had come by an interface.
func (s *SlowPath) Enter(iface int, frame []byte) error { return s.write(kindEnter, iface, 0, frame) }

func (s *SlowPath) write(kind byte, iface, queue int, frame []byte) error {
	if iface < 1 || iface > math.MaxUint16 || queue < 0 || queue > math.MaxUint16 {
		return fmt.Errorf("write to the slow path: there is no interface %d with a queue %d", iface, queue)
	}
	b := make([]byte, message.SlowHeader, message.SlowHeader+len(frame))
	binary.BigEndian.PutUint16(b[atEtherType:], etherType)
	b[atVersion], b[atKind] = message.SlowVersion, kind
	binary.BigEndian.PutUint16(b[atHeader:], message.SlowHeader)
	binary.BigEndian.PutUint16(b[atInterface:], uint16(iface))
	binary.BigEndian.PutUint32(b[atQueue:], uint32(queue))
	if _, err := s.file.Write(append(b, frame...)); err != nil {
		return fmt.Errorf("write to the slow path: %w", err)
	}
	return nil
}
