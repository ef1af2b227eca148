package node

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// legProgram is LEG_PROGRAM in bpf/fib.h.
const legProgram = 1

// A leg is struct leg in bpf/fib.h as it is written: two words, each at once. Package fib writes those of routers.
type leg struct {
	node uint64 // its number, and that of the interface
	link uint64 // of which the last byte, the kind, says whose the leg is
}

func newLeg(node uint32, iface int) leg {
	var b [16]byte
	binary.NativeEndian.PutUint32(b[0:], node)
	binary.NativeEndian.PutUint32(b[4:], uint32(iface))
	b[15] = legProgram
	return leg{node: binary.NativeEndian.Uint64(b[:]), link: binary.NativeEndian.Uint64(b[8:])}
}

// legs are the map's memory, by port.
type legs struct {
	all    []leg
	mapped []byte
}

func openLegs(m *ebpf.Map) (*legs, error) {
	size, page := int(m.ValueSize())*int(m.MaxEntries()), unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memory of %v: %w", m, err)
	}
	all := unsafe.Slice((*leg)(unsafe.Pointer(&b[0])), size/int(unsafe.Sizeof(leg{})))
	return &legs{all: all, mapped: b}, nil
}

func (l *legs) close() error { return unix.Munmap(l.mapped) }

// owner is the node whose program has the port; 0: none.
func (l *legs) owner(port int) uint32 {
	if port <= 0 || port >= len(l.all) || kind(atomic.LoadUint64(&l.all[port].link)) != legProgram {
		return 0
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64(&l.all[port].node))
	return binary.NativeEndian.Uint32(b[:])
}

func kind(link uint64) byte {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], link)
	return b[7]
}

// set makes the port the node's. The link's half comes first: a program that sees the node sees the kind.
func (l *legs) set(port int, to leg) {
	if l.all[port] == to {
		return
	}
	atomic.StoreUint64(&l.all[port].node, 0)
	atomic.StoreUint64(&l.all[port].link, to.link)
	atomic.StoreUint64(&l.all[port].node, to.node)
}

func (l *legs) clear(port int) {
	atomic.StoreUint64(&l.all[port].node, 0)
	atomic.StoreUint64(&l.all[port].link, 0)
}

// keep takes all ports but these away from a node.
func (l *legs) keep(node uint32, ports []int) {
	for port := range l.all {
		if l.owner(port) == node && !slices.Contains(ports, port) {
			l.clear(port)
		}
	}
}

// keepNodes takes all ports away from nodes that are not there, and clears what is half made.
func (l *legs) keepNodes(there map[uint32]bool) {
	for port := range l.all {
		if kind(l.all[port].link) == legProgram && !there[l.owner(port)] {
			l.clear(port)
		}
	}
}

// those are the ports that are the node's; 0 for others.
func (l *legs) those(node uint32, ports []int) []int {
	own := slices.Clone(ports)
	for i, port := range own {
		if l.owner(port) != node {
			own[i] = 0
		}
	}
	return own
}
