package agent

import (
	"context"
	"io/fs"
	"maps"
	"net"
	"slices"

	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

func (m *memoryMachine) Slices() ([]uint16, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.areas)), nil
}

func (m *memoryMachine) List() (all []sliver.Observed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slivers {
		o := *s
		o.Notes = maps.Clone(s.Notes)
		all = append(all, o)
	}
	return all, nil
}

func (m *memoryMachine) Observe(id sliver.ID) (sliver.Observed, error) {
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

func (m *memoryMachine) PrepareSlice(_ context.Context, id uint16, _ string, _ []byte) error {
	return m.step("prepare slice", func() error { m.areas[id] = true; return nil }, func() { m.areas[id] = true })
}

func (m *memoryMachine) RemoveSlice(_ context.Context, id uint16) error {
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

func (m *memoryMachine) Fetch(context.Context, sliver.Spec) error { return nil }

func (m *memoryMachine) Create(_ context.Context, s sliver.Spec) (pid int, err error) {
	add := func(state sliver.State) error {
		if !m.areas[s.Slice] || m.slivers[s.ID] != nil {
			return m.violated("sliver %v is made: area %v, sliver %v", s.ID, m.areas[s.Slice],
				m.slivers[s.ID])
		}
		m.pids++
		notes := maps.Clone(s.Notes)
		if notes == nil {
			notes = map[string]string{}
		}
		m.slivers[s.ID] = &sliver.Observed{
			ID: s.ID, SliceName: s.SliceName, Digest: s.Digest, State: state, PID: m.pids, Notes: notes,
		}
		pid = m.pids
		return nil
	}
	err = m.step("create", func() error { return add(sliver.Created) }, func() { _ = add(sliver.Broken) })
	return pid, err
}

func (m *memoryMachine) Delete(_ context.Context, id sliver.ID) error {
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

func (m *memoryMachine) set(name string, id sliver.ID, to sliver.State) error {
	return m.step(name, func() error {
		s, err := m.running(id)
		if err == nil {
			s.State = to
		}
		return err
	}, nil)
}

func (m *memoryMachine) Start(_ context.Context, id sliver.ID) error {
	return m.set("start", id, sliver.Running)
}
func (m *memoryMachine) Pause(id sliver.ID) error  { return m.set("pause", id, sliver.Paused) }
func (m *memoryMachine) Resume(id sliver.ID) error { return m.set("resume", id, sliver.Running) }

func (m *memoryMachine) Note(id sliver.ID, key, value string) error {
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

func (m *memoryMachine) WriteFiles(_ context.Context, id sliver.ID, _ []slice.File) error {
	return m.step("write files", func() error {
		if m.slivers[id] == nil {
			return sliver.ErrNotFound
		}
		return nil
	}, nil)
}

func (m *memoryMachine) ReadFile(sliver.ID, string, int64) (slice.File, error) {
	return slice.File{}, fs.ErrNotExist
}
func (m *memoryMachine) ReadDir(sliver.ID, string) ([]string, error) { return nil, nil }
func (m *memoryMachine) EtcFiles(sliver.ID, int64, func(string) bool) ([]slice.File, error) {
	return nil, nil
}
func (m *memoryMachine) Dial(context.Context, sliver.ID, string) (net.Conn, error) {
	return nil, fs.ErrNotExist
}
func (m *memoryMachine) Volumes() ([]sliver.Volume, error) { return nil, nil }
func (m *memoryMachine) RemoveVolumes(string) error        { return nil }
func (m *memoryMachine) Exec(context.Context, sliver.ID, sliver.ExecRequest) (int, error) {
	return 0, nil
}
func (m *memoryMachine) Available(_ context.Context, from slice.Rootfs) error {
	if from.Kind == slice.RootfsDir {
		return m.noRoot
	}
	return nil
}
func (m *memoryMachine) Lacks(n *slice.Node) (certain, doubtful []lack.Lack) {
	return m.lacks[n.Name], m.doubts[n.Name]
}
func (m *memoryMachine) Installed(programs ...string) bool {
	return m.programs == "" || slices.Contains(programs, m.programs)
}
func (m *memoryMachine) Listen(sliver.ID) (*net.UnixListener, error) { return nil, sliver.ErrNoSocket }
func (m *memoryMachine) LogPath(string, string) string               { return "" }
func (m *memoryMachine) Exits() <-chan sliver.ID                     { return m.exits }
func (m *memoryMachine) Close()                                      {}
