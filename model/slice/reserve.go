package slice

import (
	"cmp"
	"fmt"

	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/unit"
)

// Reserve is what a node has of its host for itself, whatever other nodes ask for, and may not exceed. Of what is
// zero, a node has a share of a part of the host that cannot be reserved (datapath/node), up to a limit.
type Reserve struct {
	FastPath float64 `json:"fastpath,omitempty"` // cores, for the packet program
	Filters  int     `json:"filters,omitempty"`  // in all tables of the packet program
	Masks    int     `json:"masks,omitempty"`    // of these, distinct in their table
	Memory   int64   `json:"memory,omitempty"`   // bytes that the packet program may declare (PERGOLA_MEMORY)
	// among which it chooses, of all interfaces, each number 0 included
	Queues int   `json:"queues,omitempty"`
	Buffer int64 `json:"buffer,omitempty"` // bytes: what the lengths of these queues add up to
}

// Pool is what queues of nodes without a reservation may take together, on a host of which r can be reserved: r is all
// but the pool. A kind that cannot be reserved has no pool.
func (r Reserve) Pool() Queueing {
	const parts = constants.PoolPart - 1 // that can be reserved
	return Queueing{Queues: r.Queues / parts, Buffer: r.Buffer / parts}
}

// MaxProgramMemory is how many bytes a packet program may declare at all.
const MaxProgramMemory = 16 << 20

// DefaultProgramMemory is how many bytes a packet program may declare without a reservation.
const DefaultProgramMemory = 1 << 20

// MemoryBound is how many bytes of memory a packet program may declare.
func (r Reserve) MemoryBound() int64 { return cmp.Or(r.Memory, DefaultProgramMemory) }

// What the queues of a packet program may be without a reservation.
const (
	DefaultQueues = 1024
	DefaultBuffer = 128 << 20 // bytes
)

// Queueing is what the queues of a node's packet program take of its host.
type Queueing struct {
	Queues int   // of all interfaces, each number 0 included
	Buffer int64 // bytes: their lengths; a frame counts as one of the interface's MTU
}

// Exceeds reports whether something of q is more than in other.
func (q Queueing) Exceeds(other Queueing) bool {
	return q.Queues > other.Queues || q.Buffer > other.Buffer
}

// Queueing gives what the queues of nodes take, by node, of those that have some. Shapes are those that ends have in
// place of their own, by node:interface.
func (s *Slice) Queueing(shapes map[string]Shape) map[string]Queueing {
	all := map[string]Queueing{}
	for i := range s.Links {
		for _, e := range s.Links[i].Ends {
			queues := e.Shape.Queues
			if over, changed := shapes[e.String()]; changed {
				queues = over.Queues
			}
			if len(queues) == 0 {
				continue
			}
			mtu := s.MTU(e)
			sum := all[e.Node]
			sum.Queues += len(queues)
			for _, q := range queues {
				sum.Buffer += q.Bytes(mtu)
			}
			all[e.Node] = sum
		}
	}
	return all
}

// MTU is that of an end's interface.
func (s *Slice) MTU(e End) int {
	if n := s.Node(e.Node); n != nil && n.Interface(e.Interface) != nil {
		return n.Interface(e.Interface).MTU
	}
	return DefaultMTU
}

// BufferBound is what the lengths of the queues of a node's packet program may add up to.
func (r Reserve) BufferBound() int64 { return cmp.Or(r.Buffer, DefaultBuffer) }

// WhyTooMany says what a node's queues take beyond its reservation, or beyond what a node has without one; empty where
// it is nothing.
func (r Reserve) WhyTooMany(q Queueing) string {
	bound := func(reserved bool, what string) string {
		if reserved {
			return what + " are reserved"
		}
		return what + " are what a node has without a reservation"
	}
	most, buffer := cmp.Or(r.Queues, DefaultQueues), r.BufferBound()
	switch {
	case q.Queues > most:
		return fmt.Sprintf("there are %d queues, and %s", q.Queues, bound(r.Queues != 0, fmt.Sprint(most)))
	case q.Buffer > buffer:
		return fmt.Sprintf("the lengths of its queues add up to %d bytes, and %s", q.Buffer,
			bound(r.Buffer != 0, fmt.Sprint(buffer)))
	}
	return ""
}

// Reserved is the rate that the interface has of its host's card for what the node sends, in bit/s: what the node asked
// for while it ran, else what the topology says. 0: as much as the link's rate.
func (i *Interface) Reserved() unit.Rate { return cmp.Or(i.Claim, i.Reserve) }
