package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/pergola-net/pergola/sdk/message"
)

// Memory is the memory of a packet program (PERGOLA_MEMORY), mapped: what one side writes, the other one reads. Write
// what a program may read meanwhile by package sync/atomic, with one store.
type Memory struct {
	message.Memory
	bytes []byte
}

// Memory maps the memory of the node's packet program. It stays mapped when the agent goes, and when the program is
// replaced; a replacement with memory of another size has a block of its own, with another number.
func (n *Node) Memory(ctx context.Context) (*Memory, error) {
	var m Memory
	err := n.request(ctx, message.Request{Do: message.DoMemory}, func(ok json.RawMessage, fd int) error {
		if fd < 0 {
			return errors.New("the answer has no file descriptor")
		}
		defer closeFD(fd)
		if err := json.Unmarshal(ok, &m.Memory); err != nil {
			return err
		}
		return m.mmap(fd)
	})
	if err != nil {
		return nil, err
	}
	return &m, nil
}

func (m *Memory) mmap(fd int) (err error) {
	page := os.Getpagesize()
	size := (m.Stride*m.Count + page - 1) / page * page
	m.bytes, err = syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the memory: %w", err)
	}
	return nil
}

// At is element i, in place; nil where there is none.
func (m *Memory) At(i int) []byte {
	if i < 0 || i >= m.Count {
		return nil
	}
	return m.bytes[i*m.Stride : i*m.Stride+m.Element : i*m.Stride+m.Element]
}

// Close ends the mapping: no element may be used afterwards.
func (m *Memory) Close() error { return syscall.Munmap(m.bytes) }
