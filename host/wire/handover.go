package wire

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// The handover is a veth pair in the substrate, by which programs of XDP hand frames over to those of tc, after packet
// programs have changed them. It is made with the first packet program of the host, and stays.
const (
	handoverName = "handover"
	takeoverName = "takeover" // the other end, where they come out
)

// CutOffError is that of SetProgram where the program runs as it is wanted, and the handover is not there. SetProgram
// tries it again.
type CutOffError struct{ Err error }

// Error says what follows.
func (e *CutOffError) Error() string {
	return fmt.Sprintf("it runs, but line cards cannot bring it frames, which go the slower way by tc: %v", e.Err)
}

// Unwrap gives the cause.
func (e *CutOffError) Unwrap() error { return e.Err }

// openHandover gives the pair of an earlier process the programs of this one.
func (s *HostNetwork) openHandover() error {
	_, err := s.nl.device(takeoverName)
	if errors.Is(err, ErrNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.makeHandover()
}

// makeHandover makes the pair, unless it is there, and attaches its programs. Packet programs must be there already:
// before, the data path has none that take frames over.
func (s *HostNetwork) makeHandover() error {
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if s.handover {
		return nil
	}
	from, to, err := s.findHandover()
	if errors.Is(err, ErrNoDevice) {
		from, to, err = s.newHandover()
	}
	if err != nil {
		return fmt.Errorf("make the way from XDP to tc: %w", err)
	}
	err = netns.In(s.ns, func() error {
		if err := s.data.AttachHandover(from.index, to.index); err != nil {
			return err
		}
		// With its program of XDP, the kernel has switched it on.
		return setGRO(takeoverName, false)
	})
	if err != nil {
		return fmt.Errorf("make the way from XDP to tc: %w", err)
	}
	s.handover = true
	return nil
}

// hasHandover reports whether the pair is there, with its programs. If another process has deleted it, makeHandover
// makes it anew.
func (s *HostNetwork) hasHandover() (bool, error) {
	s.wiring.Lock()
	defer s.wiring.Unlock()
	if !s.handover {
		return false, nil
	}
	_, _, err := s.findHandover()
	if errors.Is(err, ErrNoDevice) {
		s.handover = false
		return false, nil
	}
	return err == nil, err
}

// findHandover finds the pair. ErrNoDevice: there is none that is complete.
func (s *HostNetwork) findHandover() (from, to device, err error) {
	if from, err = s.nl.device(handoverName); err != nil {
		return from, to, err
	}
	if to, err = s.nl.device(takeoverName); err != nil {
		return from, to, err
	}
	if !from.marked || !to.marked || from.peer != to.index {
		return from, to, ErrNoDevice
	}
	return from, to, nil
}

func (s *HostNetwork) newHandover() (from, to device, err error) {
	if err = s.deleteNamed(handoverName); err != nil { // half made
		return from, to, err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(func() error { return s.deleteNamed(handoverName) })
	index, err := s.addVeth(veth{
		name: handoverName, peer: takeoverName, mtu: maxMTU, twins: true, queues: runtime.NumCPU(),
	})
	if err != nil {
		return from, to, err
	}
	if to, err = s.nl.device(takeoverName); err != nil {
		return from, to, err
	}
	m, err := newMark(roleHandover, s.paths.stateDir, "")
	if err != nil {
		return from, to, err
	}
	alias := rtnl.String(unix.IFLA_IFALIAS, m.String())
	if err := errors.Join(s.nl.changeUp(to.index, true, alias), s.nl.changeUp(index, true, alias)); err != nil {
		return from, to, err
	}
	from, err = s.nl.deviceAt(index)
	return from, to, err
}

// setGRO switches generic receive offload of a device in the thread's namespace on or off.
func setGRO(device string, on bool) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(device, map[string]bool{"rx-gro": on})
}
