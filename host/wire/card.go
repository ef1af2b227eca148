package wire

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/host/wiring"
)

// ShareCard makes what leaves for other machines wait at the uplink, so that each slice has what it has reserved of the
// machine's card. With the zero Card nothing waits there: packets are handed past the device, and line cards send by
// themselves. What is reserved is changed while packets flow.
func (s *HostNetwork) ShareCard(ctx context.Context, c wiring.Card) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.data == nil {
		if c.IsZero() {
			return nil
		}
		return fmt.Errorf("share the card of this machine: %w", errNeedsEBPF)
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	if err := s.shareCardLocked(c); err != nil {
		return fmt.Errorf("share the card of this machine: %w", err)
	}
	return nil
}

// shareCardLocked has the schedulers in place before packets come to them, and until none come any more.
func (s *HostNetwork) shareCardLocked(c wiring.Card) error {
	inner, err := s.nl.device(uplinkName)
	if err != nil {
		return err
	}
	have, err := s.nl.tree(inner.index)
	if err != nil {
		return err
	}
	if c.IsZero() {
		if err := s.data.QueueUplink(false); err != nil {
			return err
		}
		return s.nl.setTree(inner, have, wiring.Tree{})
	}
	if err := s.nl.setTree(inner, have, c.Tree()); err != nil {
		return err
	}
	return s.data.QueueUplink(true)
}

// card gives what there is at the uplink. A tree that packets pass by, or a device that they pass and that has none, is
// as if somebody else had made it.
func (s *HostNetwork) card(v view) (*wiring.Tree, error) {
	if s.data == nil {
		return nil, nil
	}
	queued, err := s.data.IsUplinkQueued()
	if err != nil {
		return nil, err
	}
	inner, there := v.byName[uplinkName]
	tree := v.trees[inner.index]
	if !there || !queued && tree.IsZero() {
		return nil, nil
	}
	if !queued {
		tree.Foreign = true
	}
	return &tree, nil
}
