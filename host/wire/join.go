package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wiring"
)

// end is a device in the data path's care, with its record.
type end struct {
	device
	record datapath.Port
}

func (s *HostNetwork) end(name string) (end, error) {
	d, err := s.nl.device(name)
	if err != nil {
		return end{}, err
	}
	record, ok, err := s.forwarder.Port(d.index)
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
func (s *HostNetwork) Join(ctx context.Context, a, b string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if err := s.joinLocked(a, b); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

func (s *HostNetwork) joinLocked(a, b string) error {
	now, err := s.linkOf(a)
	l := wiring.Link{A: wiring.End{Port: a}, B: wiring.End{Port: b}}
	if err == nil && now.sameEnds(l) {
		return nil
	}
	if err != nil && !errors.Is(err, ErrNotWired) {
		return err
	}
	for _, end := range []*wiring.End{&l.A, &l.B} {
		e, err := s.end(end.Port)
		if err != nil {
			return err
		}
		end.MTU = e.mtu
		if err := s.unwireLocked(&e); err != nil {
			return err
		}
	}
	return s.apply(l)
}

// Unjoin undoes Join, from either end. It is no error if the port is not joined.
func (s *HostNetwork) Unjoin(ctx context.Context, port string) error { return s.unwire(ctx, port) }

// unwire parts a port from whatever it is wired to.
func (s *HostNetwork) unwire(ctx context.Context, port string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	e, err := s.end(port)
	if err == nil {
		err = s.unwireLocked(&e)
	}
	if err != nil {
		return fmt.Errorf("unwire: %w", err)
	}
	return nil
}

// unwireLocked parts a port from whatever it is wired to. What treats its frames goes too.
func (s *HostNetwork) unwireLocked(e *end) error {
	if e.master != 0 {
		if err := s.nl.setMaster(e.index, 0); err != nil {
			return fmt.Errorf("leave switch: %w", err)
		}
		e.master = 0
	}
	if joined(e.record) {
		peer, ok, err := s.forwarder.Port(e.record.Peer)
		if err != nil {
			return err
		}
		if ok && peer.Peer == e.index {
			if err := s.forwarder.Set(e.record.Peer, unwired(peer)); err != nil {
				return err
			}
		}
	}
	if e.record.Mode == datapath.Queue || e.record.Police.Single {
		if err := s.setSegments(e.device, false); err != nil {
			return err
		}
	}
	if e.record.Mode != datapath.None {
		e.record = unwired(e.record)
		if err := s.forwarder.Set(e.index, e.record); err != nil {
			return err
		}
	}
	tree, err := s.nl.tree(e.index)
	if err != nil {
		return err
	}
	if err := s.nl.setTree(e.device, tree, wiring.Tree{}); err != nil {
		return err
	}
	return s.deleteNamed(wiring.QueueName(e.name))
}

func joined(p datapath.Port) bool { return p.Mode == datapath.Peer || p.Mode == datapath.Queue }

func unwired(p datapath.Port) datapath.Port {
	p.Mode, p.Peer, p.Plain, p.Classified, p.Queues = datapath.None, 0, 0, false, 0
	p.Police, p.Reserves = datapath.Policer{}, false
	return p
}
