package agents

import (
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

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// cache is the offline cache of an agent: what servers told it last, in memory and in files. While no server answers,
// the agent goes on by it, also in the next process of the same machine. The files go with a reboot, as do the nodes.
//
//	names         of all slices that may have a part here
//	slices/NAME   known
//	hosts         []peer
//
// Each file is JSON, compressed by zstd. A slice's file is written before the agent acts on the slice: whatever runs on
// this host belongs to a slice that is cached.
type cache struct {
	host string
	log  *slog.Logger

	mu      sync.Mutex // guards all below
	dir     string     // empty: the files cannot be written
	listed  []string   // names of all slices; nil: they were never listed
	slices  map[string]*known
	peers   []peer                  // nil: they were never listed
	reports map[string]slice.Status // by slice: what this host reports
}

// openCache reads what an earlier process cached in a directory, which it makes. If any file cannot be read, all of
// them are dropped: with only some of the slices, the agent would end the nodes of the others.
func openCache(dir, host string, log *slog.Logger) *cache {
	c := &cache{host: host, log: log, dir: dir}
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

// makePrivate makes the directory, which holds users' files, readable by its owner only.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "slices"), 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

func (c *cache) clear() {
	c.listed, c.peers, c.slices, c.reports = nil, nil, map[string]*known{}, map[string]slice.Status{}
}

func (c *cache) load() error {
	if err := readFile(filepath.Join(c.dir, "names"), &c.listed); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := readFile(filepath.Join(c.dir, "hosts"), &c.peers); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
		k := new(known)
		if err := readFile(filepath.Join(c.dir, "slices", f.Name()), k); err != nil {
			return err
		}
		if err := k.join(); err != nil {
			return err
		}
		c.slices[f.Name()] = k
	}
	return nil
}

// disable removes the files, and keeps everything in memory only.
func (c *cache) disable(why error) {
	c.log.Warn("offline cache: its files are removed, so the next process starts without them", "dir", c.dir,
		"error", why)
	if err := os.RemoveAll(c.dir); err != nil {
		c.log.Warn("offline cache: remove its files", "dir", c.dir, "error", err)
	}
	c.dir = ""
}

// writeLocked writes a file for the next process.
func (c *cache) writeLocked(v any, name ...string) {
	if c.dir == "" {
		return
	}
	if err := writeFile(filepath.Join(append([]string{c.dir}, name...)...), v); err != nil {
		c.disable(err)
	}
}

// isFileName reports whether a slice's name can name a file. Names without a dot cannot be those of temporary files.
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

// putNames caches the list of slices. Parts of slices that are not in it are dropped.
func (c *cache) putNames(records []store.Record) {
	next := make([]string, len(records))
	for i, r := range records {
		next[i] = r.Name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Collect(maps.Keys(c.slices)) {
		if !slices.Contains(next, name) {
			c.dropLocked(name)
		}
	}
	if c.listed == nil || !slices.Equal(c.listed, next) {
		c.listed = next
		c.writeLocked(next, "names")
	}
}

// put caches what a server told of a slice. A slice whose name cannot name a file is not cached, so that Slices fails.
func (c *cache) put(k *known) {
	name := k.Part.Record.Name
	if !isFileName(name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slices[name] = k
	c.writeLocked(k, "slices", name)
	if c.listed != nil && !slices.Contains(c.listed, name) {
		c.listed = append(slices.Clone(c.listed), name)
		c.writeLocked(c.listed, "names")
	}
}

// keep caches again what a list without the slice has dropped.
func (c *cache) keep(k *known) {
	if c.get(k.Part.Record.Name) == nil {
		c.put(k)
	}
}

// drop removes a slice that has no part here any more.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slices[name] != nil || slices.Contains(c.listed, name) {
		c.dropLocked(name)
	}
}

func (c *cache) dropLocked(name string) {
	delete(c.slices, name)
	delete(c.reports, name)
	if i := slices.Index(c.listed, name); i >= 0 {
		c.listed = slices.Delete(slices.Clone(c.listed), i, i+1)
		c.writeLocked(c.listed, "names")
	}
	if c.dir == "" || !isFileName(name) {
		return
	}
	if err := os.Remove(filepath.Join(c.dir, "slices", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.disable(err)
	}
}

// get gives what is known of a slice; nil where that is nothing.
func (c *cache) get(name string) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slices[name]
}

// names are those of the slices of which something is known.
func (c *cache) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.slices))
}

// Slices lists the slices, sorted by name. It fails with ErrUnreachable where they were never listed, or one of them is
// not cached: the agent ends the nodes of slices that are not in the list.
func (c *cache) Slices() ([]store.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed == nil {
		return nil, store.ErrUnreachable
	}
	for _, name := range c.listed {
		if c.slices[name] == nil {
			return nil, fmt.Errorf("%w, and network %s is not cached here", store.ErrUnreachable, name)
		}
	}
	records := make([]store.Record, 0, len(c.slices))
	for _, name := range slices.Sorted(maps.Keys(c.slices)) {
		records = append(records, c.slices[name].Part.Record)
	}
	return records, nil
}

// Part gives what is known of a slice. It fails with ErrNotFound where the slice is not in the list, and with
// ErrUnreachable where there is no list.
func (c *cache) Part(name string) (*known, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch k := c.slices[name]; {
	case k != nil:
		return k, nil
	case c.listed == nil:
		return nil, store.ErrUnreachable
	}
	return nil, fmt.Errorf("%s: %w, as far as is known here: %w", name, store.ErrNotFound, store.ErrUnreachable)
}

// Hosts lists the hosts. It fails with ErrUnreachable where they were never listed.
func (c *cache) Hosts() ([]peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers == nil {
		return nil, store.ErrUnreachable
	}
	return slices.Clone(c.peers), nil
}

// putHosts caches where the hosts are. The rest of what is known of this one changes all the time, and is not cached.
func (c *cache) putHosts(peers []peer) {
	next := make([]peer, len(peers))
	for i, p := range peers {
		next[i] = peer{Host: reach(p.Host), Alive: p.Alive}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(c.peers, next) {
		c.peers = next
		c.writeLocked(next, "hosts")
	}
}

// putReport caches, in memory only, what this host reports of a slice, whether or not a server receives it.
func (c *cache) putReport(st slice.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports[st.Slice] = st
}

// Status is what this host itself reports of a slice. Nodes of other hosts count as lost.
func (c *cache) Status(name string) slice.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, own := c.slices[name], c.reports[name]
	reports := []record.Report{{Host: c.host, Status: own}}
	if k == nil || k.spec == nil {
		return record.Merge(name, nil, reports)
	}
	for _, host := range record.HostsOf(k.spec) {
		if host != c.host {
			unknown := slice.Status{Generation: own.Generation}
			reports = append(reports, record.Report{Host: host, Lost: true, Status: unknown})
		}
	}
	sum := record.Merge(name, k.spec, reports)
	for node, st := range sum.Nodes {
		if st.Phase == slice.Lost {
			st.Message = record.ErrUnreachable.Error()
			sum.Nodes[node] = st
		}
	}
	sum.Settled = false
	return sum
}
