package plan

import (
	"strconv"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// Queue is one direction of a link, scheduled at a device of this host.
type Queue struct {
	Link     string
	From, To string // ends, as node:interface; of a LAN, the link's name
	Device   string // has the qdiscs
	Classes  []QueueClass
}

// QueueClass is a class of a Queue.
type QueueClass struct {
	Minor uint16 // its number in the qdisc
	Name  string // of a queue its number; empty: the only class of a link that has neither classes nor queues
}

// Queues lists the queues of links of a slice, in the order of the links: each direction that has a scheduler and is
// treated on this host. Links that cannot be up have none.
func (w *Wanted) Queues(id uint16, links ...*slice.Link) (all []Queue) {
	y := w.shares[id]
	if y == nil {
		return nil
	}
	for _, l := range links {
		for _, wire := range w.Link(id, l.Name) {
			k := reconcile.Key{Kind: KindQueue, Slice: id, Name: wire.Name}
			over, treated := w.details[k].(wiring.Link)
			if !treated {
				continue
			}
			a, b := y.endsOf(id, l, over)
			deviceA, deviceB := over.Queues()
			fromA := Queue{Link: l.Name, From: a, To: b, Device: deviceA}
			fromB := Queue{Link: l.Name, From: b, To: a, Device: deviceB}
			all = addQueue(all, fromA, over.A)
			all = addQueue(all, fromB, over.B)
		}
	}
	return all
}

func addQueue(all []Queue, q Queue, from wiring.End) []Queue {
	s := from.Shape.Scheduler()
	if s.IsZero() {
		return all
	}
	single := len(s.Classes)+len(s.Queues) == 0
	switch {
	case from.HasReservedClass():
		q.Classes = []QueueClass{{wiring.ReservedClass, "reserved"}}
		if single {
			q.Classes = append(q.Classes, QueueClass{wiring.FirstClass, "best effort"})
		}
	case single:
		q.Classes = []QueueClass{{Minor: wiring.RootClass}}
	}
	for i, c := range s.Classes {
		q.Classes = append(q.Classes, QueueClass{wiring.FirstClass + uint16(i), c.Name})
	}
	for number := range s.Queues {
		q.Classes = append(q.Classes, QueueClass{wiring.FirstClass + uint16(number), strconv.Itoa(number)})
	}
	return append(all, q)
}

// endsOf names both ends of what a link, or an end of a LAN, is made of. A LAN has no port of its own; a switch may
// have none.
func (y *Share) endsOf(id uint16, l *slice.Link, over wiring.Link) (a, b string) {
	if isLAN(l) {
		a, b = l.Name, l.Name
	}
	for _, e := range l.Ends {
		n := y.nodes[e.Node]
		if n == nil || n.Interface(e.Interface) == nil { // of another version of the slice
			continue
		}
		switch port := slice.PortName(id, n.Interface(e.Interface).Port); {
		case port == over.A.Port:
			a = e.String()
		case port == over.B.Port, !isLAN(l):
			b = e.String()
		}
	}
	return a, b
}
