package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
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

// machine is a host in memory: a Runtime, a Platform and a Network with the kernel's rules. What breaks a rule is noted
// in wrong.
type machine struct {
	mu    sync.Mutex // guards all below
	wrong []string
	fate  func(step string) outcome // of the next step that changes something; nil: all succeed

	pids    int
	areas   map[uint16]bool
	slivers map[sliver.ID]*sliver.Observed
	present bool // something of the network is there
	state   wire.State
	exits   chan sliver.ID
}

func newMachine() *machine {
	return &machine{
		pids: 1000, areas: map[uint16]bool{}, slivers: map[sliver.ID]*sliver.Observed{}, exits: make(chan sliver.ID, 100),
		state: wire.State{Ports: map[string]wire.PortState{}, Cables: map[string]wire.CableState{}, Switches: map[string]wire.SwitchState{}},
	}
}

// step does one change, as its fate has it. half does it in part.
func (m *machine) step(name string, do func() error, half func()) error {
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

func (m *machine) violated(format string, args ...any) error {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	return errors.New(m.wrong[len(m.wrong)-1])
}

// isEmpty reports whether nothing is left on the machine.
func (m *machine) isEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.present && len(m.areas)+len(m.slivers)+len(m.state.Ports)+len(m.state.Cables)+len(m.state.Switches) == 0
}

// kill ends the first process of a sliver: its network namespace goes, and with it the node's interfaces.
func (m *machine) kill(id sliver.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.slivers[id]; s != nil && s.PID != 0 {
		m.dropPorts(s.PID)
		s.State, s.PID, s.ExitCode = sliver.Exited, 0, 137
	}
}

// dropPorts removes the ports of a process's network namespace.
func (m *machine) dropPorts(pid int) {
	for name, p := range m.state.Ports {
		if p.NetNS == uint64(pid) && !p.Tunnel {
			m.dropPort(name)
		}
	}
}

func (m *machine) dropPort(name string) {
	m.unjoin(name)
	delete(m.state.Ports, name)
}

// unjoin takes a port out of its wire. Its other end keeps its carrier.
func (m *machine) unjoin(name string) {
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
func (m *machine) running(id sliver.ID) (*sliver.Observed, error) {
	s := m.slivers[id]
	if s == nil || s.PID == 0 {
		return nil, fmt.Errorf("%v: %w", id, sliver.ErrNotRunning)
	}
	return s, nil
}

// The Runtime.

func (m *machine) Slices() ([]uint16, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.areas)), nil
}

func (m *machine) List() (all []sliver.Observed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slivers {
		o := *s
		o.Notes = maps.Clone(s.Notes)
		all = append(all, o)
	}
	return all, nil
}

func (m *machine) Observe(id sliver.ID) (sliver.Observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slivers[id]
	if s == nil {
		return sliver.Observed{}, sliver.ErrNotFound
	}
	o := *s
	o.Notes = maps.Clone(s.Notes)
	return o, nil
}

func (m *machine) PrepareSlice(_ context.Context, id uint16, _ string, _ []byte) error {
	return m.step("prepare slice", func() error { m.areas[id] = true; return nil }, func() { m.areas[id] = true })
}

func (m *machine) RemoveSlice(_ context.Context, id uint16) error {
	return m.step("remove slice", func() error {
		for s := range m.slivers {
			if s.Slice == id {
				return m.violated("the area of slice %d goes, and %v is there", id, s)
			}
		}
		delete(m.areas, id)
		return nil
	}, nil)
}

func (m *machine) Fetch(context.Context, sliver.Spec) error { return nil }

func (m *machine) Create(_ context.Context, s sliver.Spec) (pid int, err error) {
	add := func(state sliver.State) error {
		if !m.areas[s.Slice] || m.slivers[s.ID] != nil {
			return m.violated("sliver %v is made: area %v, sliver %v", s.ID, m.areas[s.Slice], m.slivers[s.ID])
		}
		m.pids++
		notes := maps.Clone(s.Notes)
		if notes == nil {
			notes = map[string]string{}
		}
		m.slivers[s.ID] = &sliver.Observed{ID: s.ID, SliceName: s.SliceName, Digest: s.Digest, State: state, PID: m.pids, Notes: notes}
		pid = m.pids
		return nil
	}
	err = m.step("create", func() error { return add(sliver.Created) }, func() { _ = add(sliver.Broken) })
	return pid, err
}

func (m *machine) Delete(_ context.Context, id sliver.ID) error {
	return m.step("delete", func() error {
		if s := m.slivers[id]; s != nil {
			m.dropPorts(s.PID)
			delete(m.slivers, id)
		}
		return nil
	}, func() {
		if s := m.slivers[id]; s != nil {
			m.dropPorts(s.PID)
			s.State, s.PID = sliver.Broken, 0
		}
	})
}

func (m *machine) set(name string, id sliver.ID, to sliver.State) error {
	return m.step(name, func() error {
		s, err := m.running(id)
		if err == nil {
			s.State = to
		}
		return err
	}, nil)
}

func (m *machine) Start(_ context.Context, id sliver.ID) error {
	return m.set("start", id, sliver.Running)
}
func (m *machine) Pause(id sliver.ID) error  { return m.set("pause", id, sliver.Paused) }
func (m *machine) Resume(id sliver.ID) error { return m.set("resume", id, sliver.Running) }

func (m *machine) Note(id sliver.ID, key, value string) error {
	return m.step("note", func() error {
		s := m.slivers[id]
		if s == nil {
			return sliver.ErrNotFound
		}
		if s.Notes[key] = value; value == "" {
			delete(s.Notes, key)
		}
		return nil
	}, nil)
}

func (m *machine) WriteFiles(_ context.Context, id sliver.ID, _ []slice.File) error {
	return m.step("write files", func() error {
		if m.slivers[id] == nil {
			return sliver.ErrNotFound
		}
		return nil
	}, nil)
}

func (m *machine) Exec(context.Context, sliver.ID, sliver.ExecRequest) (int, error) { return 0, nil }
func (m *machine) Available(context.Context, slice.Rootfs) error                    { return nil }
func (m *machine) LogPath(string, string) string                                    { return "" }
func (m *machine) Exits() <-chan sliver.ID                                          { return m.exits }

// The Platform.

func (m *machine) OpenNetwork(context.Context) (Network, error) {
	n := &memoryNetwork{machine: m}
	err := m.step("open network", func() error { m.present = true; return nil }, func() { m.present = true })
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (m *machine) HasNetwork() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present
}

func (m *machine) RemoveNetwork(context.Context) error {
	return m.step("remove network", func() error {
		if len(m.areas) > 0 {
			return m.violated("the network goes, and areas %v are there", m.areas)
		}
		clear(m.state.Ports)
		clear(m.state.Cables)
		clear(m.state.Switches)
		m.present = false
		return nil
	}, nil)
}

func (m *machine) NetNS(pid int) uint64                        { return uint64(pid) }
func (m *machine) HaveNetem() error                            { return nil }
func (m *machine) HaveHTB() error                              { return nil }
func (m *machine) Interfaces() ([]hosts.Underlay, error)       { return nil, nil }
func (m *machine) PathMTU(netip.Addr, netip.Addr) (int, error) { return 1500, nil }
func (m *machine) WatchInterfaces(func()) (stop func() error, err error) {
	return func() error { return nil }, nil
}
func (m *machine) Close() {}

// memoryNetwork is the network of a machine: it has neither a data path nor tunnels to anywhere.
type memoryNetwork struct {
	*machine
	closed bool
}

func (n *memoryNetwork) Close() error {
	return n.step("close network", func() error { n.closed = true; return nil }, nil)
}

func (n *memoryNetwork) Observe(context.Context) (wire.State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !n.present {
		return wire.State{}, errors.New("observe network: it is closed")
	}
	s := n.state
	s.Ports, s.Cables, s.Switches = maps.Clone(s.Ports), maps.Clone(s.Cables), maps.Clone(s.Switches)
	return s, nil
}

func (n *memoryNetwork) Counters(context.Context) (map[string]wire.Traffic, error) { return nil, nil }

func (n *memoryNetwork) AddPort(_ context.Context, p wire.Port) error {
	return n.step("add port", func() error {
		if !p.HostNetns && !slices.ContainsFunc(slices.Collect(maps.Values(n.slivers)), func(s *sliver.Observed) bool { return s.PID == p.PID }) {
			return fmt.Errorf("add port %s: no process %d", p.Name, p.PID)
		}
		n.dropPort(p.Name)
		n.pids++
		n.state.Ports[p.Name] = wire.PortState{Owner: p.Owner, Digest: p.Digest, NetNS: uint64(p.PID), Index: n.pids, Inner: n.pids}
		return nil
	}, nil)
}

func (n *memoryNetwork) AddTunnel(_ context.Context, t wire.Tunnel) error {
	return n.step("add tunnel", func() error {
		p := n.state.Ports[t.Name] // an amended one stays wired
		p.Owner, p.Digest, p.Tunnel, p.Up = t.Owner, t.Digest, true, true
		n.state.Ports[t.Name] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) DeletePorts(_ context.Context, names ...string) error {
	return n.step("delete ports", func() error {
		for _, name := range names {
			n.dropPort(name)
			if c, there := n.state.Cables[name]; there {
				delete(n.state.Cables, name)
				delete(n.state.Cables, c.Peer)
			}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) DeleteSlice(_ context.Context, id uint16) error {
	return n.step("delete slice", func() error {
		prefix := fmt.Sprintf("s%d", id)
		for name := range n.state.Ports {
			if isOf(name, prefix) {
				n.dropPort(name)
			}
		}
		maps.DeleteFunc(n.state.Cables, func(name string, _ wire.CableState) bool { return isOf(name, prefix) })
		maps.DeleteFunc(n.state.Switches, func(name string, _ wire.SwitchState) bool { return isOf(name, prefix) })
		return nil
	}, nil)
}

// isOf reports whether a device's name is a slice's prefix and a letter and more.
func isOf(name, prefix string) bool {
	return len(name) > len(prefix) && name[:len(prefix)] == prefix && (name[len(prefix)] < '0' || name[len(prefix)] > '9')
}

// port changes a port that must be there.
func (n *memoryNetwork) port(step, name string, change func(p *wire.PortState)) error {
	return n.step(step, func() error {
		p, there := n.state.Ports[name]
		if !there {
			return fmt.Errorf("%s %s: %w", step, name, wire.ErrNoDevice)
		}
		change(&p)
		n.state.Ports[name] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) SetUp(_ context.Context, port string, up bool) error {
	return n.port("set up", port, func(p *wire.PortState) { p.Up = up })
}

func (n *memoryNetwork) ConfigureNode(_ context.Context, _ int, _ wire.Node) error {
	return n.step("configure node", func() error { return nil }, nil)
}

func (n *memoryNetwork) AddSwitch(_ context.Context, w wire.Switch) error {
	return n.step("add switch", func() error {
		n.state.Switches[w.Name] = wire.SwitchState{Owner: w.Owner, Digest: w.Digest}
		return nil
	}, nil)
}

func (n *memoryNetwork) DeleteSwitches(_ context.Context, names ...string) error {
	return n.step("delete switches", func() error {
		for _, name := range names {
			delete(n.state.Switches, name)
			for port, p := range n.state.Ports {
				if p.Switch == name {
					n.unjoin(port)
				}
			}
			for end, c := range n.state.Cables {
				if c.Switch == name {
					c.Switch = ""
					n.state.Cables[end] = c
				}
			}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) Join(_ context.Context, a, b string) error {
	return n.step("join", func() error {
		p, there := n.state.Ports[a]
		q, also := n.state.Ports[b]
		if !there || !also {
			return fmt.Errorf("join %s and %s: %w", a, b, wire.ErrNoDevice)
		}
		p.Peer, q.Peer, p.Switch, q.Switch = b, a, "", ""
		n.state.Ports[a], n.state.Ports[b] = p, q
		return nil
	}, nil)
}

func (n *memoryNetwork) Attach(_ context.Context, port, sw string) error {
	return n.step("attach", func() error {
		p, there := n.state.Ports[port]
		if _, also := n.state.Switches[sw]; !there || !also {
			return fmt.Errorf("attach %s to %s: %w", port, sw, wire.ErrNoDevice)
		}
		p.Peer, p.Switch = "", sw
		n.state.Ports[port] = p
		return nil
	}, nil)
}

func (n *memoryNetwork) AddCable(_ context.Context, c wire.Cable) error {
	return n.step("add cable", func() error {
		for i, end := range c.Ends {
			if _, there := n.state.Switches[end.Switch]; !there {
				return fmt.Errorf("add cable to %s: %w", end.Switch, wire.ErrNoDevice)
			}
			n.state.Cables[end.Name] = wire.CableState{Owner: c.Owner, Up: true, Peer: c.Ends[1-i].Name, Switch: end.Switch}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) Unjoin(_ context.Context, port string) error {
	return n.step("unjoin", func() error {
		if _, there := n.state.Ports[port]; !there {
			return fmt.Errorf("unjoin %s: %w", port, wire.ErrNoDevice)
		}
		n.unjoin(port)
		return nil
	}, nil)
}

func (n *memoryNetwork) OpenUnderlay(context.Context, wire.UnderlayConfig) error { return nil }
func (n *memoryNetwork) Underlay(context.Context) (wire.UnderlayState, error) {
	return wire.UnderlayState{}, nil
}
