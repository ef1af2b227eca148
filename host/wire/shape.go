package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Direction is one of a link's, seen from an end of it.
type Direction bool

// The directions. For a cable, the node is the switch at that end.
const (
	FromNode Direction = false // frames that leave the node into the link
	ToNode   Direction = true
)

func (d Direction) String() string {
	if d == ToNode {
		return "to"
	}
	return "from"
}

// Shape sets what happens to frames in one direction of a port or cable; the zero Shape leaves them alone. The direction from
// the node is that of the link, so the port must be wired. What changes without another kind of queue being needed changes
// in place, and the frames that wait in the queue stay; when a queue goes, what waits in it is lost.
func (s *Substrate) Shape(ctx context.Context, port string, dir Direction, shape slice.Shape) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if err := s.shapeLocked(port, dir, shape); err != nil {
		return fmt.Errorf("shape frames %s the node of port %s: %w", dir, port, err)
	}
	return nil
}

func (s *Substrate) shapeLocked(port string, dir Direction, shape slice.Shape) error {
	if err := checkShape(shape); err != nil {
		return err
	}
	d, err := s.nl.device(port)
	if err != nil {
		return err
	}
	if d.mark.role == roleCable {
		if dir == ToNode {
			if d, err = s.nl.deviceAt(d.peer); err != nil {
				return err
			}
		}
		return s.setQueue(&d, shape)
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
	case far != nil && dir == ToNode:
		return s.setQueue(&far.device, shape)
	case far != nil && far.mark.role == roleQueue:
		if err := s.cut(e.device, shape); err != nil {
			return err
		}
		return s.setQueue(&peer.device, shape)
	case dir == ToNode:
		return s.shapePort(&e, shape)
	case peer != nil && peer.mark.isPort():
		return s.shapePort(peer, shape)
	case peer != nil || e.master != 0:
		return s.shapeAttached(&e, shape)
	case shape == slice.Shape{}:
		return nil
	}
	return ErrNotWired
}

// shapePort shapes what a port's device sends to its node. Who leads there goes by the queue while there is one.
func (s *Substrate) shapePort(e *end, shape slice.Shape) error {
	leader, err := s.peerOf(*e)
	if err != nil {
		return err
	}
	if leader != nil && shape == (slice.Shape{}) {
		unshaped := e.device
		unshaped.mark.queue = Queue{}
		if err := s.lead(leader, unshaped); err != nil {
			return err
		}
	}
	if leader != nil {
		if err := s.cut(leader.device, shape); err != nil {
			return err
		}
	}
	if err := s.setQueue(&e.device, shape); err != nil {
		return err
	}
	if leader == nil {
		return nil
	}
	return s.lead(leader, e.device)
}

// cut makes a node send single frames, and no GSO super-frames of up to 64 KiB, into a link that loses or queues frames or is
// slow, because the queue takes each for one frame. What passes a switch first is not cut: a super-frame on its way to a
// shaped port of a LAN, or through a shaped cable, is lost or queued as a whole.
func (s *Substrate) cut(port device, shape slice.Shape) error {
	const (
		slow   = 1e9   // bit/s; above, single frames could not fill the link
		single = 1     // segments
		most   = 65535 // the kernel's default, GSO_MAX_SEGS
	)
	segments := uint32(most)
	if shape.Loss != 0 || shape.Queue != 0 || shape.Rate != 0 && shape.Rate < slow {
		segments = single
	}
	err := s.inside(port, func(c *conn) error {
		return ignoreGone(c.change(port.peer, attrU32(unix.IFLA_GSO_MAX_SEGS, segments)))
	})
	if err != nil {
		return fmt.Errorf("limit segments at the other end of %s: %w", port.name, err)
	}
	return nil
}

// inside calls f where the port's other end is, if that still exists.
func (s *Substrate) inside(port device, f func(*conn) error) error {
	if port.mark.role != rolePort {
		return nil
	}
	ns := s.host
	if port.mark.pid != 0 {
		var err error
		ns, err = netns.Open(netns.Path(port.mark.pid))
		if errors.Is(err, netns.ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
	}
	if i, err := inode(ns); err != nil || i != port.mark.ns {
		return err
	}
	c, err := dial(ns)
	if err != nil {
		return err
	}
	defer c.close()
	return f(c)
}

// peerOf finds what a port is joined with: another port, a queue, or nothing.
func (s *Substrate) peerOf(e end) (*end, error) {
	if !joined(e.record) {
		return nil, nil
	}
	record, ok, err := s.data.Port(e.record.Peer)
	if err != nil || !ok || record.Peer != e.index {
		return nil, err
	}
	d, err := s.nl.deviceAt(e.record.Peer)
	if err != nil {
		return nil, err
	}
	return &end{d, record}, nil
}

// setQueue makes the device's queue be of the shape. The mark says that it is unsure while it changes.
func (s *Substrate) setQueue(d *device, shape slice.Shape) error {
	was, want := d.mark.queue, Queue{Shape: shape}
	if was == want {
		return nil
	}
	if err := s.markQueue(d, Queue{Unsure: true}); err != nil {
		return err
	}
	if err := s.nl.setQdiscs(*d, was, shape); err != nil {
		return err
	}
	return s.markQueue(d, want)
}

func (s *Substrate) markQueue(d *device, q Queue) error {
	d.mark.queue = q
	if err := s.nl.change(d.index, attrString(unix.IFLA_IFALIAS, d.mark.String())); err != nil {
		return fmt.Errorf("mark device %s: %w", d.name, err)
	}
	return nil
}

// checkShape refuses what no kernel can do, and what this one cannot.
func checkShape(shape slice.Shape) error {
	switch {
	case shape.Delay < 0 || shape.Delay > maxDelay, shape.Jitter < 0 || shape.Jitter > maxDelay:
		return fmt.Errorf("a delay or jitter that is not between 0 and %v", maxDelay)
	case shape.Queue < 0 || shape.Queue > maxQueue:
		return fmt.Errorf("a queue that is not between 0 and %d frames", maxQueue)
	case !(shape.Loss >= 0 && shape.Loss <= 100):
		return fmt.Errorf("a loss of %v %%", shape.Loss)
	case shape.Rate != 0 && (shape.Rate < minRate || shape.Rate > maxRate):
		return fmt.Errorf("a rate that is not between %d and %d bit/s", minRate, uint64(maxRate))
	case shape == slice.Shape{}:
		return nil
	}
	if shape.NeedsNetem() {
		if err := HaveNetem(); err != nil {
			return err
		}
	}
	if shape.Rate != 0 || shape.Queue != 0 {
		return HaveHTB()
	}
	return nil
}

// What can be asked for.
const (
	minRate  = 8 // a byte a second
	maxRate  = lineRate
	maxDelay = time.Hour
	maxQueue = 1_000_000
)
