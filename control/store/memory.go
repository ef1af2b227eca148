package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"go.uber.org/zap"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// A member that has no etcd in its process remembers what the servers told it last: while none of them answers, it goes on by that, and tells
// it to who asks with Recalling (recall.go). It is in files for the next process of this machine. They go with a reboot, as do the nodes.
//
//	names         of all slices
//	slices/NAME   known
//	hosts         []HostState, as far as it says where they are
//
// A slice's file is there before anybody learns of the slice, so whatever runs here is of a slice that is remembered.

// memory is what was told last. A nil memory remembers nothing.
type memory struct {
	log *zap.Logger

	mu      sync.Mutex // guards all below
	dir     string     // empty: nothing can be kept for the next process
	silent  bool       // no server answered the last request
	names   []string   // of all slices; nil: they were never listed
	listed  int64      // at which revision of the store
	slices  map[string]*known
	hosts   []HostState          // nil: they were never listed
	reports map[string]ownReport // by slice: what this host says of it
}

// known is what was told of a slice.
type known struct {
	Record      Record           `json:"record"`
	Corrupt     bool             `json:"corrupt,omitempty"`
	Spec        *slice.Slice     `json:"spec,omitempty"`      // nil: it cannot be read
	Overrides   []byte           `json:"overrides,omitempty"` // as they are in the store
	Generations map[string]int64 `json:"generations,omitempty"`

	// The revisions of the store at which it was told: of two answers, the later one may come first. What an earlier process was told is at 0.
	at, overridesAt, generationsAt int64
}

type ownReport struct {
	host string
	slice.Status
}

// openMemory reads what an earlier process was told. What cannot be read is forgotten, all of it: by half of the slices, those that run of
// the other half would be ended.
func openMemory(dir string, log *zap.Logger) *memory {
	m := &memory{log: log, dir: dir}
	m.clear()
	if err := m.load(); err != nil {
		m.clear()
		m.forget(err)
		m.dir = dir
	}
	err := makePrivate(dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "slices"), 0o700)
	}
	if err != nil {
		m.forget(err)
	}
	return m
}

func (m *memory) clear() {
	m.names, m.hosts, m.slices, m.reports = nil, nil, map[string]*known{}, map[string]ownReport{}
}

func (m *memory) load() error {
	if err := readPacked(filepath.Join(m.dir, "names"), &m.names); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := readPacked(filepath.Join(m.dir, "hosts"), &m.hosts); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := os.ReadDir(filepath.Join(m.dir, "slices"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if !isFileName(f.Name()) {
			continue
		}
		k := new(known)
		if err := readPacked(filepath.Join(m.dir, "slices", f.Name()), k); err != nil {
			return err
		}
		if k.Record.Corrupt = k.Corrupt; k.Spec != nil {
			k.Spec.ID, k.Spec.Generation = k.Record.ID, k.Record.Generation
		}
		m.slices[f.Name()] = k
	}
	return nil
}

// forget gives up on what is kept for the next process.
func (m *memory) forget(why error) {
	m.log.Warn("remember what the servers say", zap.String("dir", m.dir), zap.Error(why))
	if err := os.RemoveAll(m.dir); err != nil {
		m.log.Warn("forget what the servers said", zap.Error(err))
	}
	m.dir = ""
}

// keepLocked writes a file for the next process.
func (m *memory) keepLocked(v any, name ...string) {
	if m.dir == "" {
		return
	}
	if err := writePacked(filepath.Join(append([]string{m.dir}, name...)...), v); err != nil {
		m.forget(err)
	}
}

func (m *memory) keepSliceLocked(name string) { m.keepLocked(m.slices[name], "slices", name) }

// isFileName reports whether a file can have a slice's name: every member of the cluster can write slices, and so names, that no topology has.
func isFileName(name string) bool {
	return name != "" && len(name) < 128 && !strings.ContainsAny(name, "./\x00")
}

func writePacked(path string, v any) error {
	data, err := pack(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

func readPacked(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := unpack(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// heardNames takes the list of slices at a revision of the store. Those that came since are not in it.
func (m *memory) heardNames(records []Record, revision int64) {
	if m == nil {
		return
	}
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision < m.listed {
		return
	}
	m.listed = revision
	for _, name := range slices.Collect(maps.Keys(m.slices)) {
		if !slices.Contains(names, name) && m.slices[name].at <= revision {
			m.dropLocked(name)
		}
	}
	if m.names == nil || !slices.Equal(m.names, names) {
		m.names = names
		m.keepLocked(names, "names")
	}
}

// heardSlice takes a slice as it was at a revision of the store. spec is nil where it cannot be read. One whose name is none is not
// remembered: then there is a slice of which nothing is known.
func (m *memory) heardSlice(r Record, spec *slice.Slice, revision int64) {
	if m == nil || !isFileName(r.Name) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.slices[r.Name]
	if k != nil && (revision < k.at || k.at > 0 && k.Record.revision == r.revision && (k.Spec == nil) == (spec == nil)) {
		return
	}
	if k == nil || k.Record.ID != r.ID {
		k = new(known)
		m.slices[r.Name] = k
	}
	k.Record, k.Corrupt, k.Spec, k.at = r, r.Corrupt, spec, revision
	m.keepSliceLocked(r.Name)
}

// heardGone takes it that there was no such slice at a revision.
func (m *memory) heardGone(name string, revision int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.slices[name]; k != nil && k.at <= revision {
		m.dropLocked(name)
	}
}

func (m *memory) dropLocked(name string) {
	delete(m.slices, name)
	delete(m.reports, name)
	if i := slices.Index(m.names, name); i >= 0 {
		m.names = slices.Delete(slices.Clone(m.names), i, i+1)
		m.keepLocked(m.names, "names")
	}
	if m.dir != "" {
		if err := os.Remove(filepath.Join(m.dir, "slices", name)); err != nil {
			m.forget(err)
		}
	}
}

// heardOverrides takes what users changed of a slice, as it was at a revision.
func (m *memory) heardOverrides(name string, data []byte, revision int64) {
	m.heardOf(name, func(k *known) (news bool) {
		news = revision >= k.overridesAt && !bytes.Equal(k.Overrides, data)
		if news {
			k.Overrides = data
		}
		k.overridesAt = max(k.overridesAt, revision)
		return news
	})
}

// heardGenerations takes what the hosts' reports of a slice bear, as it was at a revision.
func (m *memory) heardGenerations(name string, generations map[string]int64, revision int64) {
	m.heardOf(name, func(k *known) (news bool) {
		news = revision >= k.generationsAt && !maps.Equal(k.Generations, generations)
		if news {
			k.Generations = generations
		}
		k.generationsAt = max(k.generationsAt, revision)
		return news
	})
}

// heardOf changes what is known of a slice, if anything is.
func (m *memory) heardOf(name string, change func(*known) (news bool)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.slices[name]; k != nil && change(k) {
		m.keepSliceLocked(name)
	}
}

// heardHosts takes the list of hosts. Of each, only where it is matters later: the rest changes all the time.
func (m *memory) heardHosts(states []HostState) {
	if m == nil {
		return
	}
	next := make([]HostState, len(states))
	for i, h := range states {
		next[i] = HostState{Host: hosts.Host{Name: h.Name, Machine: h.Machine, Address: h.Address, API: h.API}, Alive: h.Alive}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !reflect.DeepEqual(m.hosts, next) {
		m.hosts = next
		m.keepLocked(next, "hosts")
	}
}

// said takes what this host reports of a slice, whether or not anybody hears it.
func (m *memory) said(host string, st slice.Status) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports[st.Slice] = ownReport{host, st}
}
