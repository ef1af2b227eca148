package node

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/program"
)

// Memory is the memory of a node's program (PERGOLA_MEMORY), to be mapped.
type Memory struct {
	program.Memory
	Number uint32 // the kernel's, of this block: another one after a replacement that could not keep it
}

// Memory opens the memory of a node's program. The file can be mapped, shared, for reading and writing: elements are
// rounded up to 8 bytes there. The caller closes it; nil: the program declares no memory.
func (n *Nodes) Memory(name string) (*os.File, Memory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return nil, Memory{}, fmt.Errorf("open the memory of %s: it has no packet program that runs", name)
	}
	is := Memory{Memory: x.loaded.Object.Memory}
	m := x.loaded.Memory()
	if m == nil {
		return nil, is, nil
	}
	info, err := m.Info()
	if err != nil {
		return nil, is, fmt.Errorf("read about the memory of %s: %w", name, err)
	}
	if id, ok := info.ID(); ok {
		is.Number = uint32(id)
	}
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, is, fmt.Errorf("open the memory of %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "memory of "+name), is, nil
}

// Tap is the index that the tap device of a node has to have. ok is false where its slow path is no such device.
func (n *Nodes) Tap(name string) (index int, ok bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return 0, false, fmt.Errorf("find the slow path of %s: it has no packet program that runs", name)
	}
	var s objectSettings
	if err := x.loaded.Maps()[objectMapNodeSettings].Lookup(uint32(0), &s); err != nil {
		return 0, false, fmt.Errorf("read settings: %w", err)
	}
	return FirstTap + int(x.number), SlowPath(s.SlowPath) == SlowSocket, nil
}
