package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/netns"
)

// UnderlayConfig says which of the machine's interfaces carry tunnels.
type UnderlayConfig struct {
	Interfaces []string // none: there are no tunnels, and nothing is left of them
}

// UnderlayState is what there is of it.
type UnderlayState struct {
	NICs     map[string]NICState // those that OpenUnderlay was told, also such as are absent
	Counters map[string]uint64   // frames by what became of them: received, sent, and drops by reason
}

// NICState is that of an interface that carries tunnels.
type NICState struct {
	Present bool
	Up      bool
	Index   int
	MTU     int
	XDP     string // native: the line card works; else why there is none, and the programs of tc do all the work
}

// underlay is what Underlay says beside the kernel.
type underlay struct {
	mu   sync.Mutex        // guards all, and serialises OpenUnderlay
	nics []string          // as told
	why  map[string]string // there is no line card, by interface
}

// OpenUnderlay leads tunnels' packets from and to these interfaces of the machine. What it attached to interfaces that are no longer named is taken
// away. Interfaces that are absent are left out: call it again when they may have come; if nothing has changed it does nothing.
func (s *Substrate) OpenUnderlay(ctx context.Context, c UnderlayConfig) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	if err := s.openUnderlayLocked(c); err != nil {
		return fmt.Errorf("open underlay: %w", err)
	}
	return nil
}

func (s *Substrate) openUnderlayLocked(c UnderlayConfig) error {
	s.underlay.nics, s.underlay.why = slices.Clone(c.Interfaces), map[string]string{}
	machine, err := dial(s.host)
	if err != nil {
		return err
	}
	defer machine.close()
	if len(c.Interfaces) == 0 {
		return errors.Join(s.leave(nil), s.deleteNamed(uplinkName))
	}
	if err := s.makeUplink(machine); err != nil {
		return fmt.Errorf("lead to the machine: %w", err)
	}
	keep := map[int]bool{}
	for _, name := range c.Interfaces {
		nic, err := machine.device(name)
		if errors.Is(err, ErrNoDevice) {
			continue
		}
		if err != nil {
			return err
		}
		keep[nic.index] = true
		if err := s.attachNIC(nic); err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return s.leave(keep)
}

// attachNIC attaches the programs of an interface. It does without a line card where there cannot be one.
func (s *Substrate) attachNIC(nic device) error {
	return netns.In(s.host, func() error {
		if err := s.attachUnderlay(nic.index); err != nil {
			return err
		}
		why, err := s.attachLineCard(nic)
		s.underlay.why[nic.name] = why
		return err
	})
}

// Underlay reads the state of the underlay.
func (s *Substrate) Underlay(ctx context.Context) (UnderlayState, error) {
	if err := ctx.Err(); err != nil {
		return UnderlayState{}, err
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	state := UnderlayState{NICs: map[string]NICState{}}
	machine, err := dial(s.host)
	if err != nil {
		return state, fmt.Errorf("observe underlay: %w", err)
	}
	defer machine.close()
	for _, name := range s.underlay.nics {
		d, err := machine.device(name)
		if err != nil && !errors.Is(err, ErrNoDevice) {
			return state, fmt.Errorf("observe underlay: %w", err)
		}
		if err != nil {
			state.NICs[name] = NICState{}
			continue
		}
		state.NICs[name] = NICState{Present: true, Up: d.up, Index: d.index, MTU: d.mtu, XDP: s.stateOfXDP(d)}
	}
	if state.Counters, err = s.underlayCounters(); err != nil {
		return state, fmt.Errorf("observe underlay: %w", err)
	}
	return state, nil
}

// stateOfXDP says what is there now: a program may have gone, or come, by another's doing.
func (s *Substrate) stateOfXDP(d device) string {
	if why := s.underlay.why[d.name]; why != "" {
		return why
	}
	switch d.xdp.attached {
	case xdpAttachedNone:
		return "none: it was taken away"
	case xdpAttachedGeneric:
		return xdpGeneric
	}
	return xdpNative
}

// What the kernel says of XDP at a device (linux/if_link.h).
const (
	xdpAttachedNone    = 0
	xdpAttachedGeneric = 2
)
