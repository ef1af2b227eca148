package wire

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/model/slice"
)

// A queue is a veth pair between a port and a switch, for frames that must wait before the switch gets them:
//
//	node ── veth ── s1p3 ═══ s1p3q ── s1p3m ── switch
//
// s1p3 and s1p3q are joined like any two ports, so that the qdisc of s1p3q shapes what the node sends and the qdisc of s1p3 what it
// receives; s1p3m is the switch's port. Where frames to the node are to enter the data path again (see Reenter), it is s1p3m whose qdisc
// shapes them.

func queueName(port string) string  { return port + "q" }
func memberName(port string) string { return port + "m" }

// queue is a complete one.
type queue struct {
	end    end    // s1p3q
	member device // s1p3m
}

// queueOf finds the queue of a port; it is nil where there is none, or none that is complete.
func (s *Substrate) queueOf(port end) (*queue, error) {
	e, err := s.end(queueName(port.name))
	if errors.Is(err, ErrNoDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := s.nl.deviceAt(e.peer)
	if err != nil {
		return nil, err
	}
	if !e.marked || !m.marked || m.mark.role != roleMember || e.record.Peer != port.index {
		return nil, nil
	}
	return &queue{e, m}, nil
}

// shapeAttached shapes what a node sends to its switch.
func (s *Substrate) shapeAttached(port *end, shape slice.Shape) error {
	q, err := s.queueOf(*port)
	if err != nil {
		return err
	}
	if shape == (slice.Shape{}) && (q == nil || !q.end.mark.again) {
		return s.removeQueue(port, q)
	}
	bridge := port.master
	if q == nil {
		if q, err = s.addQueue(port); err != nil {
			return fmt.Errorf("make queue: %w", err)
		}
	} else if q.member.master != 0 {
		bridge = q.member.master
	}
	if err := s.cut(port.device, shape); err != nil {
		return err
	}
	if err := s.setQueue(&q.end.device, shape); err != nil {
		return err
	}
	return s.attachQueue(port, q, bridge)
}

// addQueue makes a queue beside the way that frames take now.
func (s *Substrate) addQueue(port *end) (q *queue, err error) {
	name, member := queueName(port.name), memberName(port.name)
	if err := s.deleteNamed(name); err != nil {
		return nil, err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(name) })
	index, err := s.addVeth(veth{name: name, peer: member, mtu: port.mtu, group: port.group})
	if err != nil {
		return nil, err
	}
	d, err := s.nl.deviceAt(index)
	if err != nil {
		return nil, err
	}
	e := end{device: d, record: datapath.Port{MTU: port.mtu}}
	if err := s.own(d.index, e.record); err != nil {
		return nil, err
	}
	if err := s.lead(&e, port.device); err != nil {
		return nil, err
	}
	m, err := s.nl.device(member)
	if err != nil {
		return nil, err
	}
	e.mark, m.mark = mark{role: roleQueue, owner: port.mark.owner}, mark{role: roleMember, owner: port.mark.owner}
	for _, d := range []device{m, e.device} {
		if err := s.nl.changeUp(d.index, true, attrString(unix.IFLA_IFALIAS, d.mark.String())); err != nil {
			return nil, err
		}
	}
	return &queue{e, m}, nil
}

// attachQueue puts a queue between a port and a bridge. The port leaves the bridge first: two ways would double frames.
func (s *Substrate) attachQueue(port *end, q *queue, bridge int) error {
	if port.master != 0 {
		if err := s.nl.setMaster(port.index, 0); err != nil {
			return err
		}
		port.master = 0
	}
	if q.member.master != bridge || port.mark.isolated && port.record.Peer != q.end.index {
		if err := s.nl.plugIn(q.member, bridge, port.mark.isolated); err != nil {
			return err
		}
	}
	return s.lead(port, q.end.device)
}

// removeQueue attaches the port itself where its queue was.
func (s *Substrate) removeQueue(port *end, q *queue) error {
	if q == nil {
		return s.deleteNamed(queueName(port.name)) // half made
	}
	if err := s.cut(port.device, slice.Shape{}); err != nil {
		return err
	}
	bridge := max(port.master, q.member.master) // one of them is none
	if err := s.deleteNamed(q.end.name); err != nil {
		return err
	}
	if bridge == 0 {
		return s.direct(port, unwired(port.record))
	}
	if port.master != bridge {
		if err := s.nl.plugIn(port.device, bridge, port.mark.isolated); err != nil {
			return err
		}
	}
	record := unwired(port.record)
	record.Mode = datapath.Kernel
	return s.direct(port, record)
}
