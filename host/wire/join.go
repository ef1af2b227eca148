package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/model/slice"
)

// end is a device in the data path's care, with its record.
type end struct {
	device
	record datapath.Port
}

func (s *Substrate) end(name string) (end, error) {
	d, err := s.nl.device(name)
	if err != nil {
		return end{}, err
	}
	record, ok, err := s.data.Port(d.index)
	if err != nil {
		return end{}, err
	}
	if !ok {
		return end{}, fmt.Errorf("device %s is not in the data path", name)
	}
	return end{d, record}, nil
}

// Join makes two ports the ends of one link, whatever they were wired to before. Ports that are joined already are not
// disturbed.
func (s *Substrate) Join(ctx context.Context, a, b string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if err := s.joinLocked(a, b); err != nil {
		return fmt.Errorf("join ports %s and %s: %w", a, b, err)
	}
	return nil
}

func (s *Substrate) joinLocked(a, b string) error {
	from, err := s.end(a)
	if err != nil {
		return err
	}
	to, err := s.end(b)
	if err != nil {
		return err
	}
	if err := s.unwireLocked(&from, to.index); err != nil {
		return err
	}
	if err := s.unwireLocked(&to, from.index); err != nil {
		return err
	}
	if err := s.lead(&from, to.device); err != nil {
		return err
	}
	return s.lead(&to, from.device)
}

// Unjoin undoes Join, from either end. It is no error if the port is not joined.
func (s *Substrate) Unjoin(ctx context.Context, port string) error { return s.unwire(ctx, port) }

// unwire parts a port from whatever it is wired to.
func (s *Substrate) unwire(ctx context.Context, port string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	e, err := s.end(port)
	if err == nil {
		err = s.unwireLocked(&e, 0)
	}
	if err != nil {
		return fmt.Errorf("unwire port %s: %w", port, err)
	}
	return nil
}

// unwireLocked parts a port from whatever it is wired to, unless that is the port of index keep.
func (s *Substrate) unwireLocked(e *end, keep int) error {
	if e.master != 0 {
		if err := s.nl.setMaster(e.index, 0); err != nil {
			return fmt.Errorf("leave switch: %w", err)
		}
		e.master = 0
	}
	if joined(e.record) && e.record.Peer != keep {
		peer, ok, err := s.data.Port(e.record.Peer)
		if err != nil {
			return err
		}
		if ok && peer.Peer == e.index {
			if err := s.data.Set(e.record.Peer, unwired(peer)); err != nil {
				return err
			}
		}
	}
	if e.record.Mode == datapath.Queue && e.record.Peer != keep {
		if err := s.cut(e.device, slice.Shape{}); err != nil {
			return err
		}
	}
	if e.record.Mode != datapath.None && e.record.Peer != keep {
		e.record = unwired(e.record)
		if err := s.data.Set(e.index, e.record); err != nil {
			return err
		}
	}
	return s.deleteNamed(queueName(e.name))
}

// lead directs what enters at a port to another port: to its node at once, or through its device's queue. The shape of that
// queue is that of what the node sends.
func (s *Substrate) lead(from *end, to device) error {
	record, err := s.prepare(from, to)
	if err != nil {
		return err
	}
	return s.direct(from, record)
}

// leadBoth is lead for two ports whose link both have to change: what enters between the two is lost, so there is nothing between them but
// one another.
func (s *Substrate) leadBoth(a *end, toA device, b *end, toB device, steps *undo.Steps) error {
	recordA, err := s.prepare(a, toA)
	if err != nil {
		return err
	}
	recordB, err := s.prepare(b, toB)
	if err != nil {
		return err
	}
	oldA, oldB := a.record, b.record
	steps.Push(func() error { return errors.Join(s.direct(a, oldA), s.direct(b, oldB)) })
	if err := s.direct(a, recordA); err != nil {
		return err
	}
	return s.direct(b, recordB)
}

// prepare does what takes time about lead, and gives the record that directs frames.
func (s *Substrate) prepare(from *end, to device) (datapath.Port, error) {
	record := from.record
	record.Peer, record.Mode = to.index, datapath.Peer
	if to.mark.role == roleQueue || to.mark.queue != (Queue{}) {
		record.Mode = datapath.Queue
	}
	if record != from.record && (record.Mode == datapath.Queue || from.record.Mode == datapath.Queue) {
		if err := s.cut(from.device, to.mark.queue.Shape); err != nil {
			return record, err
		}
	}
	return record, nil
}

func (s *Substrate) direct(e *end, record datapath.Port) error {
	if record == e.record {
		return nil
	}
	if err := s.data.Set(e.index, record); err != nil {
		return err
	}
	e.record = record
	return nil
}

func joined(p datapath.Port) bool { return p.Mode == datapath.Peer || p.Mode == datapath.Queue }

func unwired(p datapath.Port) datapath.Port {
	p.Mode, p.Peer = datapath.None, 0
	return p
}
