package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/kernel/netns"
)

// UnderlayConfig says which of the machine's interfaces carry tunnels.
type UnderlayConfig struct {
	Interfaces []string // none: there are no tunnels, and nothing is left of them
	NoXDP      bool     // the programs of tc do all the work
	Bound      bool     // packets of tunnels leave by these interfaces alone, wherever the machine's routes lead
	// BestEffort is the share of each core, up to 1, that frames without a reservation may have where line cards
	// receive them. They wait for those with one, and real-time threads poll the interfaces. 0: all are alike.
	BestEffort float64
}

// UnderlayState is what there is of it.
type UnderlayState struct {
	NICs     map[string]NICState // those that OpenUnderlay was told, also such as are absent
	Counters map[string]uint64   // packets by what became of them: received, sent, and drops by reason
	Bound    bool                // see UnderlayConfig
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
	mu        sync.Mutex        // guards all, and the uplink; taken after HostNetwork.wiring
	nics      []string          // as told
	noXDP     bool              // as told
	early     bool              // best effort waits
	why       map[string]string // there is no line card, by interface
	transmits map[string]bool   // by interface: whether it sends what line cards of others redirect
	threaded  bool              // an interface is to have no threads, but could not be told so
	ordinary  map[string]error  // no real-time thread polls it, though best effort is to wait, by interface
}

// OpenUnderlay leads tunnels' packets from and to these interfaces of the machine. What it attached to interfaces that
// are no longer named is taken away. Interfaces that are absent are left out: call it again when they may have come.
// What is there is not disturbed.
func (s *HostNetwork) OpenUnderlay(ctx context.Context, c UnderlayConfig) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.data == nil {
		if len(c.Interfaces) == 0 {
			return nil
		}
		return fmt.Errorf("open underlay: %w", errNeedsEBPF)
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	s.underlay.nics, s.underlay.noXDP = slices.Clone(c.Interfaces), c.NoXDP
	s.underlay.early = c.BestEffort > 0 && !c.NoXDP
	s.underlay.why, s.underlay.transmits = map[string]string{}, map[string]bool{}
	s.underlay.ordinary = map[string]error{}
	machine, err := dial(s.host)
	if err != nil {
		return fmt.Errorf("open underlay: %w", err)
	}
	defer machine.close()
	if len(c.Interfaces) == 0 {
		err = s.closeUnderlay()
	} else {
		err = s.openUnderlay(machine, c)
	}
	if err != nil {
		return fmt.Errorf("open underlay: %w", err)
	}
	return nil
}

// openUnderlay notes where programs of ours may be before they are, and until they no longer are.
func (s *HostNetwork) openUnderlay(machine *conn, c UnderlayConfig) error {
	var nics []device
	var indexes []int
	for _, name := range c.Interfaces {
		nic, err := machine.device(name)
		if errors.Is(err, ErrNoDevice) {
			continue
		}
		if err != nil {
			return err
		}
		if !nic.ether && !nic.rawIP {
			return fmt.Errorf("interface %s: %w", name, errNotIP)
		}
		nics, indexes = append(nics, nic), append(indexes, nic.index)
	}
	// Before anything can leave.
	if err := netns.In(s.host, func() error { return s.bind(c.Bound, indexes) }); err != nil {
		return err
	}
	if _, err := s.makeUplink(machine); err != nil {
		return fmt.Errorf("lead to the machine: %w", err)
	}
	if err := s.noteNICs(indexes); err != nil {
		return err
	}
	share := c.BestEffort
	if !s.underlay.early {
		share = 0
	}
	if err := s.shareCores(share, indexes); err != nil {
		return err
	}
	for _, nic := range nics {
		if err := netns.In(s.host, func() error { return s.attachNIC(nic, c.NoXDP) }); err != nil {
			return fmt.Errorf("interface %s: %w", nic.name, err)
		}
	}
	for _, nic := range nics { // a driver may transmit what is redirected only once a program is attached
		if err := s.updateRedirect(nic); err != nil {
			return fmt.Errorf("interface %s: %w", nic.name, err)
		}
		s.updateThreads(nic)
	}
	return s.leaveNICs(indexes)
}

// bind says by which interfaces packets of tunnels leave. The thread is in the machine's namespace.
func (s *HostNetwork) bind(bound bool, indexes []int) error {
	if bound {
		return s.data.BindUnderlay(indexes)
	}
	return s.data.FreeUnderlay()
}

func (s *HostNetwork) closeUnderlay() error {
	if err := s.shareCores(0, nil); err != nil {
		return err
	}
	if err := s.leaveNICs(nil); err != nil {
		return err
	}
	return s.deleteUplink()
}

// Underlay reads the state of the underlay, and updates which interfaces line cards redirect to, as drivers change, and
// which threads poll them: call it every few seconds.
func (s *HostNetwork) Underlay(ctx context.Context) (UnderlayState, error) {
	if err := ctx.Err(); err != nil || s.data == nil {
		return UnderlayState{}, err
	}
	s.underlay.mu.Lock()
	defer s.underlay.mu.Unlock()
	state, err := s.underlayLocked()
	if err != nil {
		return UnderlayState{}, fmt.Errorf("observe underlay: %w", err)
	}
	return state, nil
}

func (s *HostNetwork) underlayLocked() (state UnderlayState, err error) {
	machine, err := dial(s.host)
	if err != nil {
		return state, err
	}
	defer machine.close()
	if !s.underlay.early && s.underlay.threaded {
		if err := s.leaveThreads(nil); err != nil {
			return state, err
		}
	}
	state.NICs = map[string]NICState{}
	for _, name := range s.underlay.nics {
		d, err := machine.device(name)
		switch {
		case errors.Is(err, ErrNoDevice):
			state.NICs[name] = NICState{}
		case err != nil:
			return state, err
		default:
			if err := s.updateRedirect(d); err != nil {
				return state, err
			}
			s.updateThreads(d)
			state.NICs[name] = NICState{
				Present: true, Up: d.up, Index: d.index, MTU: d.mtu, XDP: s.underlay.xdp(d),
			}
		}
	}
	if state.Bound, err = s.data.IsUnderlayBound(); err != nil {
		return state, err
	}
	state.Counters, err = s.data.Underlay()
	return state, err
}
