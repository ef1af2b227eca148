package wire

import (
	"context"
	"fmt"
)

// UnderlayConfig says which of the machine's interfaces carry tunnels.
type UnderlayConfig struct {
	Interfaces []string // none: there are no tunnels, and nothing is left of them
}

// UnderlayState is what there is of it.
type UnderlayState struct {
	NICs     map[string]NICState // those that UnderlayConfig names, also such as are absent
	Counters map[string]uint64   // frames by what became of them: received, sent, and drops by reason
}

// NICState is that of an interface that carries tunnels.
type NICState struct {
	Present bool
	Up      bool
	Index   int
	MTU     int
	// XDP is how its line card is attached: native; or none, and why. Tunnels work without, at the price of tc.
	XDP string
}

// OpenUnderlay leads tunnels' packets from and to these interfaces of the machine. Interfaces that are absent are left out: call it again when they
// are there. It may be called at any time; what it attached to interfaces that are no longer named is taken away.
func (s *Substrate) OpenUnderlay(ctx context.Context, c UnderlayConfig) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(c.Interfaces) > 0 {
		return fmt.Errorf("open underlay: %w", errPending)
	}
	return nil
}

// Underlay reads the state of the underlay.
func (s *Substrate) Underlay(ctx context.Context) (UnderlayState, error) {
	return UnderlayState{}, ctx.Err()
}
