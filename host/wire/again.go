package wire

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/model/slice"
)

// Reenter makes what comes to a port's node out of a queue, or from a switch, enter the data path again, so that a router there need not be
// woken for frames that only pass; or undoes that. It takes a veth pair, whose far end has the program:
//
//	node ── veth ── s1p3 ═══ s1p3q ── s1p4q ═══ s1p4 ── veth ── node     joined ports: their queues are the ends of one pair
//	node ── veth ── s1p3 ═══ s1p3q ── s1p3m ── switch                    as where what the node sends is shaped
//
// In either direction, frames leave by the qdisc of one end and enter at the other. Shapes stay what they are. Two joined ports do this
// together.
func (s *Substrate) Reenter(ctx context.Context, port string, again bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if err := s.reenterLocked(port, again); err != nil {
		return fmt.Errorf("lead frames to port %s through the data path again: %w", port, err)
	}
	return nil
}

func (s *Substrate) reenterLocked(port string, again bool) error {
	d, err := s.nl.device(port)
	if err != nil {
		return err
	}
	if d.mark.role == roleCable { // between switches: no node's frames
		return nil
	}
	e, err := s.end(port)
	if err != nil {
		return err
	}
	peer, err := s.peerOf(e)
	if err != nil {
		return err
	}
	far, err := s.farOf(peer)
	switch {
	case err != nil:
		return err
	case far != nil: // it is so
		if again {
			return nil
		}
		if far.mark.role == roleQueue {
			return s.closePair(&e, peer, far)
		}
		return s.leaveMember(&e, peer, far)
	case !again:
		return nil
	case peer != nil && peer.mark.isPort():
		return s.openPair(&e, peer)
	case peer != nil || e.master != 0:
		return s.enterByMember(&e)
	}
	return ErrNotWired
}

// farOf gives the other end of a queue by which frames enter again: the peer's queue, or the switch's end. It is nil where they do
// not.
func (s *Substrate) farOf(q *end) (*end, error) {
	if q == nil || q.mark.role != roleQueue {
		return nil, nil
	}
	d, err := s.nl.deviceAt(q.peer)
	if err != nil {
		return nil, err
	}
	if d.mark.role == roleMember && !q.mark.again {
		return nil, nil
	}
	record, _, err := s.data.Port(d.index) // a member has none
	return &end{d, record}, err
}

// openPair puts a pair between two ports that are joined, and moves their shapes there.
func (s *Substrate) openPair(a, b *end) (err error) {
	names := [2]string{queueName(a.name), queueName(b.name)}
	if err := s.deleteNamed(names[0], names[1]); err != nil { // half made
		return err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(names[0], names[1]) })
	mtu := max(a.mtu, b.mtu) // what is too long for either, the ports drop and count
	if _, err := s.addVeth(veth{name: names[0], peer: names[1], twins: true, mtu: mtu, group: a.group}); err != nil {
		return err
	}
	fromA, fromB := b.mark.queue.Shape, a.mark.queue.Shape // a port's own queue is of what it receives
	for i, side := range []struct {
		port  *end
		shape slice.Shape
	}{{a, fromA}, {b, fromB}} {
		if err := s.makeQueue(names[i], side.port, mtu, side.shape); err != nil {
			return err
		}
	}
	qa, err := s.nl.device(names[0])
	if err != nil {
		return err
	}
	qb, err := s.nl.device(names[1])
	if err != nil {
		return err
	}
	if err := s.leadBoth(a, qa, b, qb, &steps); err != nil {
		return err
	}
	for _, port := range []*end{a, b} {
		shape := port.mark.queue.Shape
		steps.Push(func() error { return s.setQueue(&port.device, shape) })
		if err := s.setQueue(&port.device, slice.Shape{}); err != nil {
			return err
		}
	}
	return nil
}

// makeQueue makes a device that is there a queue of a port, which leads to that port.
func (s *Substrate) makeQueue(name string, port *end, mtu int, shape slice.Shape) error {
	q, err := s.nl.device(name)
	if err != nil {
		return err
	}
	if err := s.own(q.index, datapath.Port{MTU: mtu, Mode: datapath.Peer, Peer: port.index}); err != nil {
		return err
	}
	q.mark = mark{role: roleQueue, owner: port.mark.owner}
	if err := s.nl.changeUp(q.index, true, attrString(unix.IFLA_IFALIAS, q.mark.String())); err != nil {
		return err
	}
	return s.setQueue(&q, shape)
}

// closePair joins two ports directly again, and moves the shapes of what they send to the ports that receive it.
func (s *Substrate) closePair(a, qa, qb *end) (err error) {
	b, err := s.peerOf(*qb)
	if err != nil {
		return err
	}
	if b == nil {
		return ErrNotWired
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	fromA, fromB := qa.mark.queue.Shape, qb.mark.queue.Shape
	for _, to := range []struct {
		port  *end
		shape slice.Shape
	}{{b, fromA}, {a, fromB}} {
		steps.Push(func() error { return s.setQueue(&to.port.device, slice.Shape{}) })
		if err := s.setQueue(&to.port.device, to.shape); err != nil {
			return err
		}
	}
	if err := s.leadBoth(a, b.device, b, a.device, &steps); err != nil {
		return err
	}
	steps = nil // done: a pair that cannot be deleted is in nobody's way, and Observe shows it
	return s.deleteNamed(qa.name, qb.name)
}

// enterByMember makes frames from a switch come by a queue, and moves the shape of what the node receives to the switch's end.
func (s *Substrate) enterByMember(port *end) error {
	q, err := s.queueOf(*port)
	if err != nil {
		return err
	}
	bridge := port.master
	if q == nil {
		if q, err = s.addQueue(port); err != nil {
			return fmt.Errorf("make queue: %w", err)
		}
	} else if q.member.master != 0 {
		bridge = q.member.master
	}
	if err := s.setQueue(&q.member, port.mark.queue.Shape); err != nil {
		return err
	}
	q.end.mark.again = true
	if err := s.markQueue(&q.end.device, q.end.mark.queue); err != nil {
		return err
	}
	if err := s.attachQueue(port, q, bridge); err != nil {
		return err
	}
	return s.shapePort(port, slice.Shape{})
}

// leaveMember undoes enterByMember.
func (s *Substrate) leaveMember(port, q, member *end) error {
	if err := s.shapePort(port, member.mark.queue.Shape); err != nil {
		return err
	}
	if err := s.setQueue(&member.device, slice.Shape{}); err != nil {
		return err
	}
	q.mark.again = false
	if err := s.markQueue(&q.device, q.mark.queue); err != nil {
		return err
	}
	if q.mark.queue == (Queue{}) {
		return s.removeQueue(port, &queue{*q, member.device})
	}
	return nil
}
