package rtnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Batch collects requests and sends many of them at a time: a million routes one by one would cost as many switches
// between kernel and user. It is for one goroutine at a time.
type Batch struct {
	conn  *Conn
	out   []byte
	ends  []int // where each request in out ends
	names []any // what each request does, for errors
}

// chunk is how many bytes are sent at a time, and resultsBuffer is more than the kernel needs for the results of a
// chunk: about a KiB for each.
const (
	chunk         = 32 << 10
	resultsBuffer = 8 << 20
)

// Batch makes an empty one, and the connection's receive buffer large enough for it.
func (c *Conn) Batch() *Batch {
	_ = c.SetReceiveBuffer(resultsBuffer) // without it, Flush fails with ENOBUFS
	return &Batch{conn: c}
}

// Add appends an encoded request; name is what errors call it. It may send what was added before, and fails as Flush
// does.
func (b *Batch) Add(name any, request []byte) error {
	if len(b.out)+len(request) > chunk {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	at := len(b.out)
	b.out = append(b.out, request...)
	native.PutUint16(b.out[at+6:], native.Uint16(request[6:])|unix.NLM_F_ACK)
	b.ends, b.names = append(b.ends, len(b.out)), append(b.names, name)
	return nil
}

// Flush sends what was added and waits for all results. The error joins those of all requests that failed; the others
// were carried out.
func (b *Batch) Flush() error {
	if len(b.names) == 0 {
		return nil
	}
	defer func() { b.out, b.ends, b.names = b.out[:0], b.ends[:0], b.names[:0] }()
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	first := b.conn.seq + 1
	at := 0
	for _, end := range b.ends {
		b.conn.seq++
		SetSequence(b.out[at:], b.conn.seq)
		at = end
	}
	if err := unix.Sendto(b.conn.fd, b.out, 0, Kernel()); err != nil {
		return fmt.Errorf("send to the kernel: %w", err)
	}
	var failed []error
	answers := 0
	err := b.conn.receive(func(datagram []byte) (end bool, err error) {
		for len(datagram) > 0 {
			m, rest, err := NextMessage(datagram)
			if err != nil {
				return true, fmt.Errorf("read the kernel's answer: %w", err)
			}
			datagram = rest
			i := int(int32(m.Seq - first))
			if m.Kind != unix.NLMSG_ERROR || i < 0 || i >= len(b.names) {
				continue
			}
			if errno := m.Errno(); errno != 0 {
				failed = append(failed, fmt.Errorf("%v: %w", b.names[i], m.failure(errno)))
			}
			answers++
		}
		return answers == len(b.names), nil
	})
	return errors.Join(append(failed, err)...)
}
