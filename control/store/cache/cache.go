// Package cache keeps what an agent last received from the servers, in memory and in files: the offline cache. While no
// server answers, the agent goes on by it, also in the next process of the same machine. The files go with a reboot, as
// do the nodes.
//
//	names         of all slices
//	slices/NAME   one slice (see entry)
//	hosts         []record.Host, as far as it says where they are
//
// Each file is JSON, compressed by zstd. A slice's file is written before the agent acts on the slice: whatever runs on
// this host belongs to a slice that is cached.
package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Cache is an offline cache. It is safe for concurrent use. A nil Cache keeps nothing.
type Cache struct {
	log *slog.Logger

	mu      sync.Mutex // guards all below
	dir     string     // empty: the files cannot be written
	names   []string   // of all slices; nil: they were never listed
	listed  int64      // the revision of the store at which they were
	slices  map[string]*entry
	hosts   []record.Host        // nil: they were never listed
	reports map[string]ownReport // by slice
}

// entry is what is cached of a slice.
type entry struct {
	Record      record.Slice     `json:"record"`
	Corrupt     bool             `json:"corrupt,omitempty"`
	Spec        *slice.Slice     `json:"spec,omitempty"`      // nil: it cannot be read
	Overrides   []byte           `json:"overrides,omitempty"` // as they are in the store
	Generations map[string]int64 `json:"generations,omitempty"`

	// The revisions of the store at which each part was read: answers may arrive out of order. What an earlier
	// process cached is at 0.
	at, overridesAt, generationsAt int64
}

// ownReport is what this host reports of a slice.
type ownReport struct {
	host string
	slice.Status
}

// Open reads what an earlier process cached in a directory, which it makes. If any file cannot be read, all of them are
// dropped: with only some of the slices, the agent would end the nodes of the others.
func Open(dir string, log *slog.Logger) *Cache {
	c := &Cache{log: log, dir: dir}
	c.clear()
	if err := c.load(); err != nil {
		c.clear()
		c.disable(err)
		c.dir = dir
	}
	if err := makePrivate(dir); err != nil {
		c.disable(err)
	}
	return c
}

// makePrivate makes the directory, which holds users' files, readable by root only.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "slices"), 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

func (c *Cache) clear() {
	c.names, c.hosts, c.slices, c.reports = nil, nil, map[string]*entry{}, map[string]ownReport{}
}

func (c *Cache) load() error {
	if err := readFile(filepath.Join(c.dir, "names"), &c.names); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := readFile(filepath.Join(c.dir, "hosts"), &c.hosts); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := os.ReadDir(filepath.Join(c.dir, "slices"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if !isFileName(f.Name()) {
			continue // a temporary file, left by a crash
		}
		e := new(entry)
		if err := readFile(filepath.Join(c.dir, "slices", f.Name()), e); err != nil {
			return err
		}
		if e.Record.Corrupt = e.Corrupt; e.Spec != nil {
			e.Spec.ID, e.Spec.Generation = e.Record.ID, e.Record.Generation
		}
		c.slices[f.Name()] = e
	}
	return nil
}

// disable removes the files, and keeps everything in memory only.
func (c *Cache) disable(why error) {
	c.log.Warn("offline cache: its files are removed, so the next process starts without them", "dir", c.dir,
		"error", why)
	if err := os.RemoveAll(c.dir); err != nil {
		c.log.Warn("offline cache: remove its files", "dir", c.dir, "error", err)
	}
	c.dir = ""
}

// writeLocked writes a file for the next process.
func (c *Cache) writeLocked(v any, name ...string) {
	if c.dir == "" {
		return
	}
	if err := writeFile(filepath.Join(append([]string{c.dir}, name...)...), v); err != nil {
		c.disable(err)
	}
}

func (c *Cache) writeSliceLocked(name string) { c.writeLocked(c.slices[name], "slices", name) }

// isFileName reports whether a slice's name can name a file. Every member of the cluster can write slices, and so names
// that no topology has. Names without a dot cannot be those of temporary files.
func isFileName(name string) bool {
	return name != "" && len(name) < 128 && !strings.ContainsAny(name, "./\x00")
}

func writeFile(path string, v any) error {
	data, err := record.Pack(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

func readFile(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := record.Unpack(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// PutNames caches the list of slices at a revision of the store. Slices that are newer are not in it, and stay.
func (c *Cache) PutNames(records []record.Slice, revision int64) {
	if c == nil {
		return
	}
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.listed {
		return
	}
	c.listed = revision
	for _, name := range slices.Collect(maps.Keys(c.slices)) {
		if !slices.Contains(names, name) && c.slices[name].at <= revision {
			c.dropLocked(name)
		}
	}
	if c.names == nil || !slices.Equal(c.names, names) {
		c.names = names
		c.writeLocked(names, "names")
	}
}

// PutSlice caches a slice at a revision of the store. spec is nil where it cannot be read. A slice whose name cannot
// name a file is not cached, so that Slices fails.
func (c *Cache) PutSlice(r record.Slice, spec *slice.Slice, revision int64) {
	if c == nil || !isFileName(r.Name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.slices[r.Name]
	if e != nil {
		same := e.at > 0 && e.Record.Revision == r.Revision && (e.Spec == nil) == (spec == nil)
		if same || revision < e.at {
			return
		}
	}
	if e == nil || e.Record.ID != r.ID {
		e = new(entry)
		c.slices[r.Name] = e
	}
	e.Record, e.Corrupt, e.Spec, e.at = r, r.Corrupt, spec, revision
	c.writeSliceLocked(r.Name)
}

// DropSlice removes a slice that did not exist at a revision of the store.
func (c *Cache) DropSlice(name string, revision int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.slices[name]; e != nil && e.at <= revision {
		c.dropLocked(name)
	}
}

func (c *Cache) dropLocked(name string) {
	delete(c.slices, name)
	delete(c.reports, name)
	if i := slices.Index(c.names, name); i >= 0 {
		c.names = slices.Delete(slices.Clone(c.names), i, i+1)
		c.writeLocked(c.names, "names")
	}
	if c.dir != "" {
		if err := os.Remove(filepath.Join(c.dir, "slices", name)); err != nil {
			c.disable(err)
		}
	}
}

// PutOverrides caches the overrides of a slice, encoded, at a revision of the store.
func (c *Cache) PutOverrides(name string, data []byte, revision int64) {
	c.update(name, func(e *entry) (changed bool) {
		changed = revision >= e.overridesAt && !bytes.Equal(e.Overrides, data)
		if changed {
			e.Overrides = data
		}
		e.overridesAt = max(e.overridesAt, revision)
		return changed
	})
}

// PutGenerations caches the generations that the hosts report of a slice, by host, at a revision of the store.
func (c *Cache) PutGenerations(name string, generations map[string]int64, revision int64) {
	c.update(name, func(e *entry) (changed bool) {
		changed = revision >= e.generationsAt && !maps.Equal(e.Generations, generations)
		if changed {
			e.Generations = generations
		}
		e.generationsAt = max(e.generationsAt, revision)
		return changed
	})
}

// update changes the entry of a slice, if there is one, and writes it if it changed.
func (c *Cache) update(name string, change func(*entry) (changed bool)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.slices[name]; e != nil && change(e) {
		c.writeSliceLocked(name)
	}
}

// PutHosts caches where the hosts are. The rest of what the store has of them changes all the time, and is not cached.
func (c *Cache) PutHosts(states []record.Host) {
	if c == nil {
		return
	}
	next := make([]record.Host, len(states))
	for i, h := range states {
		next[i] = record.Host{
			Host:  hosts.Host{Name: h.Name, Machine: h.Machine, Address: h.Address, API: h.API},
			Alive: h.Alive,
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(c.hosts, next) {
		c.hosts = next
		c.writeLocked(next, "hosts")
	}
}

// PutReport caches, in memory only, what this host reports of a slice, whether or not a server receives it.
func (c *Cache) PutReport(host string, st slice.Status) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports[st.Slice] = ownReport{host, st}
}
