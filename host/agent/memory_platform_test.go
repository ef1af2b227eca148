package agent

import (
	"context"
	"net/netip"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func (m *memoryMachine) OpenNetwork(context.Context, func(), func()) (machine.Network, error) {
	n := &memoryNetwork{memoryMachine: m}
	err := m.step("open network", func() error { m.present = true; return nil }, func() { m.present = true })
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (m *memoryMachine) HasNetwork() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present
}

func (m *memoryMachine) RemoveNetwork(context.Context) error {
	return m.step("remove network", func() error {
		if len(m.areas) > 0 {
			return m.violated("the network goes, and areas %v are there", m.areas)
		}
		if len(m.runs) > 0 {
			return m.violated("the network goes, and programs %v are there", m.runs)
		}
		clear(m.state.Ports)
		clear(m.state.Cables)
		clear(m.state.Switches)
		m.state.Card, m.present = nil, false
		return nil
	}, nil)
}

func (m *memoryMachine) NetNS(pid int) uint64                        { return uint64(pid) }
func (m *memoryMachine) HaveNetem() error                            { return nil }
func (m *memoryMachine) HaveHTB() error                              { return nil }
func (m *memoryMachine) HaveNAT() error                              { return m.noNAT }
func (m *memoryMachine) HavePorts() error                            { return m.HaveNAT() }
func (m *memoryMachine) HaveFastPath() error                         { return nil }
func (m *memoryMachine) HaveUplink() error                           { return nil }
func (m *memoryMachine) HaveLimits() error                           { return nil }
func (m *memoryMachine) HaveBind() error                             { return m.noBind }
func (m *memoryMachine) Reservable() slice.Reserve                   { return slice.Reserve{Filters: 1000} }
func (m *memoryMachine) TryProgram(string, []byte) error             { return nil }
func (m *memoryMachine) Interfaces() ([]hosts.Underlay, error)       { return nil, nil }
func (m *memoryMachine) PathMTU(netip.Addr, netip.Addr) (int, error) { return 1500, nil }
func (m *memoryMachine) WatchInterfaces(func()) (stop func() error, err error) {
	return func() error { return nil }, nil
}
