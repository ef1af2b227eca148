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

// consents stores this machine's terms where only its root can write: all members can write the store. A machine that
// is alone stores them too, in case it joins a cluster later; they count only in a cluster.
type consents struct {
	dir   *identityDir
	terms atomic.Pointer[hosts.Terms]

	mu    sync.Mutex   // held while terms change
	store *store.Store // set before anything is given
}

const consentFile = "consent.json"

func openConsents(dataDir string) (*consents, error) {
	c, terms := &consents{dir: &identityDir{dir: dataDir}}, new(hosts.Terms)
	text, err := c.dir.read(consentFile)
	if err == nil && text != nil {
		err = json.Unmarshal(text, terms)
	}
	if err != nil {
		return nil, fmt.Errorf("read what slices may have of this machine in %s: %w",
			c.dir.path(consentFile), err)
	}
	c.terms.Store(terms)
	return c, nil
}

// Terms are the present terms.
func (c *consents) Terms() *hosts.Terms { return c.terms.Load() }

// allow stores the values of flags; nil means that a flag was not given.
func (c *consents) allow(paths []string, network *bool) error {
	plain := make([]string, len(paths))
	for i, p := range paths {
		if plain[i] = filepath.Clean(p); !filepath.IsAbs(p) {
			return fmt.Errorf("--host-paths %q: write directories from / on, such as /srv/labs", p)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changeLocked(func(t *hosts.Terms) {
		if paths != nil {
			t.Paths = plain
		}
		if network != nil {
			t.Network = *network
		}
	})
}

// Give implements controller.Consents: this machine's root applied a slice that holds this of it. Until the slice is
// stored, its running version keeps what it was given.
func (c *consents) Give(name string, holds []slice.Hold, put func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	both := slices.Clone(c.Terms().Given[name])
	for _, h := range holds {
		if !slices.ContainsFunc(both, h.Within) {
			both = append(both, h)
		}
	}
	if err := c.giveLocked(name, both); err != nil {
		return err
	}
	if err := put(); err != nil {
		return err
	}
	return c.giveLocked(name, holds)
}

// Forget withdraws what a slice was given that is being deleted or is gone: another slice may get its name.
func (c *consents) Forget(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.Terms().Given[name]) == 0 {
		return nil
	}
	r, err := c.store.Record(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound), r.Deleting:
		return c.giveLocked(name, nil)
	case errors.Is(err, store.ErrCorrupt):
		return nil
	}
	return err
}

// prune withdraws what was given to slices that were deleted while this server did not run.
func (c *consents) prune(ctx context.Context) error {
	for name := range c.Terms().Given {
		if err := c.Forget(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *consents) giveLocked(name string, holds []slice.Hold) error {
	return c.changeLocked(func(t *hosts.Terms) {
		if t.Given[name] = holds; len(holds) == 0 {
			delete(t.Given, name)
		}
	})
}

// changeLocked replaces the terms, on disk first.
func (c *consents) changeLocked(edit func(*hosts.Terms)) error {
	was := c.Terms()
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
	if err := c.dir.write(consentFile, append(after, '\n')); err != nil {
		return fmt.Errorf("keep what slices may have of this machine: %w", err)
	}
	c.terms.Store(next)
	return nil
}
