package wire

import (
	"errors"

	"github.com/pergola-net/pergola/host/wiring"
)

// observed is a link as it was read.
type observed struct {
	wiring.Link
	layout wiring.Layout
}

func (o observed) sameEnds(l wiring.Link) bool {
	same := o.A.Port == l.A.Port && o.B.Port == l.B.Port || o.A.Port == l.B.Port && o.B.Port == l.A.Port
	return same && o.Switch == l.Switch && o.Cable == l.Cable
}

// linkOf reads the link of a port or a cable's end. The error is ErrNotWired where it has none.
func (s *HostNetwork) linkOf(port string) (o observed, err error) {
	d, err := s.nl.device(port)
	if err != nil {
		return o, err
	}
	r := newReading()
	if err := s.read(r, d); err != nil {
		return o, err
	}
	if d.mark.role != roleCable && d.master == 0 && !joined(r.records[d.index]) {
		return o, ErrNotWired
	}
	next := []int{d.peer, d.master}
	if d.mark.role != roleCable {
		next = []int{d.master, r.records[d.index].Peer, r.records[d.index].Plain}
	}
	for range 3 { // the peer, its other end, and what that leads to
		if next, err = s.readNext(r, next); err != nil {
			return o, err
		}
	}
	l, ok := r.link(d)
	if !ok {
		return o, ErrNotWired
	}
	o.layout = r.layout(l)
	o.Link = l.Observed(o.layout)
	return o, nil
}

// readNext reads the devices with these indices that were not read yet. It gives the indices of the devices to which
// those lead: the other ends and the peers of queue devices, the switches of members.
func (s *HostNetwork) readNext(r *reading, indices []int) (next []int, err error) {
	for _, index := range indices {
		if _, known := r.devices[index]; known || index == 0 {
			continue
		}
		far, err := s.nl.deviceAt(index)
		if errors.Is(err, ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.read(r, far); err != nil {
			return nil, err
		}
		switch far.mark.role {
		case roleQueue:
			next = append(next, far.peer, r.records[index].Peer)
		case roleMember:
			next = append(next, far.master)
		default: // leads to nothing else of the link
		}
	}
	return next, nil
}
