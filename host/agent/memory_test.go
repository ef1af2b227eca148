package agent

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

// outcome is what becomes of one step of the fake machine.
type outcome int

const (
	succeeds   outcome = iota
	fails              // nothing was done
	failsAfter         // it was done, and is reported as failed
	failsHalf          // it was done in part
)

var errInjected = errors.New("injected")

// memoryMachine is a host in memory: a Runtime, a Platform and a Network with the kernel's rules. What breaks a rule is
// noted in wrong.
type memoryMachine struct {
	mu    sync.Mutex // guards all below
	wrong []string
	fate  func(step string) outcome // of the next step that changes something; nil: all succeed

	pids    int
	areas   map[uint16]bool
	slivers map[sliver.ID]*sliver.Observed
	present bool // something of the network is there
	state   wire.State
	runs    map[string]wire.ProgramState // packet programs
	exits   chan sliver.ID
	noNAT   error // of HaveNAT
	noRoot  error // of Available
	noBind  error // of HaveBind

	lacks, doubts map[string][]lack.Lack // by node
	programs      string                 // whether they are installed; "": all
}

func newMemoryMachine() *memoryMachine {
	return &memoryMachine{
		pids: 1000, areas: map[uint16]bool{}, slivers: map[sliver.ID]*sliver.Observed{},
		exits: make(chan sliver.ID, 100), runs: map[string]wire.ProgramState{},
		state: wire.State{
			Ports: map[string]wire.PortState{}, Cables: map[string]wire.CableState{},
			Switches: map[string]wire.SwitchState{},
		},
	}
}

// step does one change, as its fate has it. half does it in part.
func (m *memoryMachine) step(name string, do func() error, half func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fate := succeeds
	if m.fate != nil {
		fate = m.fate(name)
	}
	switch fate {
	case succeeds:
	case fails:
		return fmt.Errorf("%s: %w", name, errInjected)
	case failsHalf:
		if half != nil {
			half()
		}
		return fmt.Errorf("%s: %w", name, errInjected)
	case failsAfter:
		return errors.Join(do(), fmt.Errorf("%s: %w", name, errInjected))
	}
	return do()
}

func (m *memoryMachine) violated(format string, args ...any) error {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	return errors.New(m.wrong[len(m.wrong)-1])
}

// isEmpty reports whether nothing is left on the machine.
func (m *memoryMachine) isEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.present && len(m.runs) == 0 &&
		len(m.areas)+len(m.slivers)+len(m.state.Ports)+len(m.state.Cables)+len(m.state.Switches) == 0
}

// kill ends the first process of a sliver: its network namespace goes, and with it the node's interfaces.
func (m *memoryMachine) kill(id sliver.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.slivers[id]; s != nil && s.PID != 0 {
		m.dropPorts(s.PID)
		s.State, s.PID, s.ExitCode = sliver.Exited, 0, 137
	}
}

// dropPorts removes the ports of a process's network namespace.
func (m *memoryMachine) dropPorts(pid int) {
	for name, p := range m.state.Ports {
		if p.PID == pid && !p.Tunnel {
			m.dropPort(name)
		}
	}
}

func (m *memoryMachine) dropPort(name string) {
	m.unjoin(name)
	delete(m.state.Ports, name)
}

// unjoin takes a port out of its wire. Its other end keeps its carrier.
func (m *memoryMachine) unjoin(name string) {
	p, there := m.state.Ports[name]
	if !there {
		return
	}
	if q, joined := m.state.Ports[p.Peer]; joined {
		q.Peer = ""
		m.state.Ports[p.Peer] = plain(q)
	}
	p.Peer, p.Switch = "", ""
	m.state.Ports[name] = plain(p)
}

// running gives a sliver that has a process.
func (m *memoryMachine) running(id sliver.ID) (*sliver.Observed, error) {
	s := m.slivers[id]
	if s == nil || s.PID == 0 {
		return nil, fmt.Errorf("%v: %w", id, sliver.ErrNotRunning)
	}
	return s, nil
}

// plain is a port without a treatment of frames: that goes with the wire.
func plain(p wire.PortState) wire.PortState {
	p.Layout = nil
	return p
}
