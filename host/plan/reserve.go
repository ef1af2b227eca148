package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
)

// Admit says, in each input, which nodes of this host want more of what can be reserved than is left, and which ports
// that nodes asked for while they ran are others'. The store has been asked before, but every member can write to it.
// The slice with the lowest id comes first; what a topology says comes before what any node asked for while it ran.
func Admit(at Place, inputs []Input) {
	order := make([]*Input, len(inputs))
	for i := range inputs {
		order[i] = &inputs[i]
	}
	slices.SortFunc(order, func(a, b *Input) int { return cmp.Compare(a.Spec.ID, b.Spec.ID) })
	r := NewRoom(at)
	for _, one := range order {
		one.Short = r.Take(one.Spec, one.Overrides.Shapes)
	}
	for _, one := range order {
		one.Lost = r.TakeClaims(one.Spec, one.Short)
	}
}

// Room is what is left to reserve on a host, beside cores and memory.
type Room struct {
	Place
	used  mapping.Resources
	pool  slice.Queueing            // what queues take of nodes that have not reserved it
	ports map[slice.HostPort]string // of the host's addresses: whose they are
}

// NewRoom is that of a host without slices.
func NewRoom(at Place) *Room { return &Room{Place: at, ports: map[slice.HostPort]string{}} }

// Take takes what the nodes of a slice have here by its topology, whose links have these shapes in place of their own
// (by node:interface). It says, by node, why there is not enough; such a node takes nothing.
func (r *Room) Take(s *slice.Slice, shapes map[string]slice.Shape) (short map[string]string) {
	queueing := s.Queueing(shapes)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !r.Owns(n) {
			continue
		}
		why := r.takenPort(n)
		if why == "" {
			why = r.takeResources(n, queueing[n.Name])
		}
		if why == "" {
			r.takePorts(s.Name+"/"+n.Name, n.Ports...)
			continue
		}
		if short == nil {
			short = map[string]string{}
		}
		short[n.Name] = why
	}
	return short
}

// Lost says, by node, whose those of its ports are that it asked for while it ran, and that another node has.
type Lost map[string]map[slice.HostPort]string

// TakeClaims takes the ports that the nodes of a slice have here because they asked for them, or bound them, while they
// ran. A node that runs does not end because somebody else has such a port: it lacks this one.
func (r *Room) TakeClaims(s *slice.Slice, short map[string]string) (lost Lost) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !r.Owns(n) || short[n.Name] != "" {
			continue
		}
		own := s.Name + "/" + n.Name
		for _, p := range slices.Concat(n.Claims, n.BoundPorts) {
			whose := cmp.Or(r.ports[p], own)
			if whose == own {
				r.takePorts(own, p)
				continue
			}
			if lost == nil {
				lost = Lost{}
			}
			if lost[n.Name] == nil {
				lost[n.Name] = map[slice.HostPort]string{}
			}
			lost[n.Name][p] = whose
		}
	}
	return lost
}

// takeResources takes what a node has reserved, and what its queues have of the pool.
func (r *Room) takeResources(n *slice.Node, queues slice.Queueing) (why string) {
	demand := mapping.Reserved(n.Reserve)
	demand[mapping.Memory] = 0 // the host's memory is not divided here
	if full := demand.WhyFull(r.used, mapping.Reserved(r.Reservable)); full != "" {
		return fmt.Sprintf(
			"host %s has not enough left to reserve: %s (`pergola reserve ls` shows which nodes "+
				"have it)",
			r.Host,
			full,
		)
	}
	if why := n.Reserve.WhyTooMany(queues); why != "" {
		return why
	}
	pool := r.pool
	if n.Reserve.Queues == 0 {
		pool.Queues += queues.Queues
	}
	if n.Reserve.Buffer == 0 {
		pool.Buffer += queues.Buffer
	}
	// A host that does not say what can be reserved of queues has no pool of them either.
	switch most := r.Reservable.Pool(); {
	case most.Queues != 0 && pool.Queues > most.Queues:
		return fmt.Sprintf(
			"host %s has not enough queues left for nodes without a reservation: %d wanted, %d of %d "+
				"are in use (write reserve: {queues: %[2]d})",
			r.Host,
			queues.Queues,
			r.pool.Queues,
			most.Queues,
		)
	case most.Buffer != 0 && pool.Buffer > most.Buffer:
		return fmt.Sprintf(
			"host %s has not enough buffer left for queues of nodes without a reservation: %d KiB "+
				"wanted, %d of %d KiB are in use (write a length: in the queues, or reserve: "+
				"{buffer: %dMiB})",
			r.Host,
			queues.Buffer>>10,
			r.pool.Buffer>>10,
			most.Buffer>>10,
			queues.Buffer>>20+1,
		)
	}
	r.used, r.pool = r.used.Plus(demand), pool
	return ""
}

// takenPort says which of the ports that the topology gives a node another one has; empty: none.
func (r *Room) takenPort(n *slice.Node) string {
	for _, p := range n.Ports {
		if whose := r.ports[p]; whose != "" {
			return fmt.Sprintf("port %s of host %s is reserved for %s", p, r.Host, whose)
		}
	}
	return ""
}

func (r *Room) takePorts(owner string, ports ...slice.HostPort) {
	for _, p := range ports {
		r.ports[p] = owner
	}
}
