package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/host/wiring"
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

// Treat makes a link's treatment of frames be as the link says. Its ends must be wired so. What changes without another
// qdisc or class being needed changes in place, and the frames that wait stay; when a queue goes, what waits in it is
// lost.
func (s *HostNetwork) Treat(ctx context.Context, l wiring.Link) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	now, err := s.linkOf(l.A.Port)
	if err == nil && !now.sameEnds(l) {
		err = ErrNotWired
	}
	if err == nil {
		err = s.apply(l)
	}
	if err != nil {
		return fmt.Errorf("treat frames: %w", err)
	}
	return nil
}

// Shape sets what happens to frames in one direction of a port or cable; the zero Shape leaves them alone. The
// direction from the node is that of the link, so the port must be wired.
func (s *HostNetwork) Shape(ctx context.Context, port string, dir Direction, shape slice.Shape) error {
	err := s.change(ctx, port, func(l *wiring.Link) error {
		if (dir == FromNode) == (l.A.Port == port) {
			l.A.Shape = shape
		} else {
			l.B.Shape = shape
		}
		return checkShape(shape)
	})
	if errors.Is(err, ErrNotWired) && shape.IsZero() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shape frames %s the node: %w", dir, err)
	}
	return nil
}

// Reinject makes what comes to a port's node out of a queue, or from a switch, enter the data path again, so that a
// router there need not be woken for frames that only pass; or undoes that. Two joined ports do this together. Shapes
// stay what they are. Between switches there are no node's frames: at a cable, nothing changes.
func (s *HostNetwork) Reinject(ctx context.Context, port string, on bool) error {
	err := s.change(ctx, port, func(l *wiring.Link) error {
		l.Reinject = on && !l.Cable
		return nil
	})
	if errors.Is(err, ErrNotWired) && !on {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reinject frames: %w", err)
	}
	return nil
}

// change lets edit change the link of a port.
func (s *HostNetwork) change(ctx context.Context, port string, edit func(*wiring.Link) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.wiring.Lock()
	defer s.wiring.Unlock()
	now, err := s.linkOf(port)
	if err != nil {
		return err
	}
	l := now.Link
	if err := edit(&l); err != nil {
		return err
	}
	if l.Layout().Digest() == now.layout.Digest() {
		return nil
	}
	return s.apply(l)
}

// checkShape refuses what is out of range, and what this kernel cannot do.
func checkShape(shape slice.Shape) error {
	if err := shape.Check(); err != nil {
		return err
	}
	if shape.NeedsNetem() {
		if err := HaveNetem(); err != nil {
			return err
		}
	}
	if shape.NeedsHTB() {
		return HaveHTB()
	}
	return nil
}
