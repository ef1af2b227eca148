package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// termsFile stores this machine's terms where only its root can write: all servers can write the store. A machine that
// is alone stores them too, in case it joins a cluster later; they count only in a cluster. It implements
// hosts.TermsStore and controller.HoldStore.
type termsFile struct {
	dir   *identityDir
	terms atomic.Pointer[hosts.Terms]

	mu      sync.Mutex  // held while terms change
	records interface { // set before anything is given
		Record(ctx context.Context, name string) (store.Record, error)
	}
}

// termsName is the name of the file. It was called so before the terms were.
const termsName = "consent.json"

func openTerms(dataDir string) (*termsFile, error) {
	f, terms := &termsFile{dir: &identityDir{dir: dataDir}}, new(hosts.Terms)
	text, err := f.dir.read(termsName)
	if err == nil && text != nil {
		err = json.Unmarshal(text, terms)
	}
	if err != nil {
		return nil, fmt.Errorf("read what networks may have of this machine in %s: %w",
			f.dir.path(termsName), err)
	}
	f.terms.Store(terms)
	return f, nil
}

// Terms are the present terms.
func (f *termsFile) Terms() *hosts.Terms { return f.terms.Load() }

// allow stores the values of flags; nil means that a flag was not given.
func (f *termsFile) allow(paths []string, network, outside *bool, ports []string) error {
	ranges := make([]hosts.Ports, len(ports))
	for i, text := range ports {
		var err error
		if ranges[i], err = slice.ParsePorts(text); err != nil {
			return fmt.Errorf("--ports: %w", err)
		}
	}
	plain := make([]string, len(paths))
	for i, p := range paths {
		if plain[i] = filepath.Clean(p); !filepath.IsAbs(p) {
			return fmt.Errorf("--host-paths %q: write directories from / on, such as /srv/labs", p)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changeLocked(func(t *hosts.Terms) {
		if paths != nil {
			t.Paths = plain
		}
		if network != nil {
			t.Network = *network
		}
		if outside != nil {
			t.Outside = *outside
		}
		if ports != nil {
			t.Ports = ranges
		}
	})
}

// allowVolumes stores the value of a flag; nil means that it was not given.
func (f *termsFile) allowVolumes(on *bool) error {
	if on == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changeLocked(func(t *hosts.Terms) { t.Volumes = *on })
}

// Give implements controller.HoldStore: this machine's root applied a slice that holds this of it. Until the slice is
// stored, its running version keeps what it was given. If it was certainly not stored, nothing was given: the slice may
// be refused next, and another one may have its name later.
func (f *termsFile) Give(name string, holds []slice.Hold, put func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.Terms().Given[name]
	both := slices.Clone(before)
	for _, h := range holds {
		if !slices.ContainsFunc(both, h.Within) {
			both = append(both, h)
		}
	}
	if err := f.giveLocked(name, both); err != nil {
		return err
	}
	switch err := put(); {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrDeleting):
		return errors.Join(err, f.giveLocked(name, before))
	case err != nil:
		return err
	}
	return f.giveLocked(name, holds)
}

// Forget withdraws what a slice was given that is being deleted or is gone: another slice may get its name.
func (f *termsFile) Forget(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.Terms().Given[name]) == 0 {
		return nil
	}
	r, err := f.records.Record(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound), r.Deleting:
		return f.giveLocked(name, nil)
	case errors.Is(err, store.ErrCorrupt):
		return nil
	}
	return err
}

// prune withdraws what was given to slices that were deleted while this server did not run.
func (f *termsFile) prune(ctx context.Context) error {
	for name := range f.Terms().Given {
		if err := f.Forget(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (f *termsFile) giveLocked(name string, holds []slice.Hold) error {
	return f.changeLocked(func(t *hosts.Terms) {
		if t.Given[name] = holds; len(holds) == 0 {
			delete(t.Given, name)
		}
	})
}

// changeLocked replaces the terms, on disk first.
func (f *termsFile) changeLocked(edit func(*hosts.Terms)) error {
	was := f.Terms()
	next := &hosts.Terms{Allowance: was.Allowance, Given: maps.Clone(was.Given)}
	if next.Given == nil {
		next.Given = map[string][]slice.Hold{}
	}
	edit(next)
	before, err := json.Marshal(was)
	if err != nil {
		return err
	}
	after, err := json.Marshal(next)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	if err := f.dir.write(termsName, append(after, '\n')); err != nil {
		return fmt.Errorf("keep what networks may have of this machine: %w", err)
	}
	f.terms.Store(next)
	return nil
}
