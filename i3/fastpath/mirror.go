package fastpath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/trigger"
)

// Mirror keeps a fast path as a server's tables are. It is told each change after it was made in the tables and before
// anybody is told of it. It is not safe for concurrent use.
//
// The change of one trigger is one or two calls. Between them every packet meets the filters as before or as after:
// filters are set from the longest prefix to the shortest, and deleted afterwards.
//
// If the fast path refuses a filter, all filters of that key are deleted, from the shortest prefix to the longest, and
// its packets are punted: a filter may be missing only together with those that it is longer than. If even that fails,
// all packets are punted, until Retry succeeds.
type Mirror struct {
	path   FastPath
	routes chord.Routes
	// installed is what the fast path has, for each key in the order of prefixes' identifiers.
	installed map[ident.Key][]Filter
	missing   map[ident.Key]bool // keys whose packets are punted, because there was no room
	broken    bool               // the fast path may hold what it should not
}

// NewMirror clears the fast path. On an error it is as it was, and Retry tries again.
func NewMirror(p FastPath) (*Mirror, error) {
	m := &Mirror{path: p, installed: make(map[ident.Key][]Filter), missing: make(map[ident.Key]bool)}
	if err := p.Replace(chord.Routes{}, nil); err != nil {
		m.broken = true
		return m, fmt.Errorf("clear the fast path: %w", err)
	}
	return m, nil
}

// Missing gives the number of keys whose packets are punted because the fast path refused their filters.
func (m *Mirror) Missing() int { return len(m.missing) }

// Broken reports whether the fast path could not be brought into a state that is right. It was told to punt all.
func (m *Mirror) Broken() bool { return m.broken }

// SetRoutes hands the table of the ring on, if it has changed.
func (m *Mirror) SetRoutes(r chord.Routes) error {
	if m.routes.Equal(&r) {
		return nil
	}
	m.routes = r
	if m.broken {
		return nil
	}
	if err := m.path.SetRoutes(r); err != nil {
		m.breakOff()
		return fmt.Errorf("set the routes of the fast path: %w", err)
	}
	return nil
}

// Update makes the filters of a key those of its triggers.
func (m *Mirror) Update(k ident.Key, groups []trigger.Group) error {
	if m.broken {
		m.missing[k] = true
		return nil
	}
	wanted := Compile(groups, m.path.Limits())
	set, gone := difference(m.installed[k], wanted)
	for _, f := range set {
		if err := m.path.Set(f); err != nil {
			m.withdraw(k, wanted)
			return fmt.Errorf("set filter %s of the fast path: %w", f.Prefix, err)
		}
	}
	for _, p := range gone {
		if err := m.path.Delete(p); err != nil {
			m.breakOff()
			return fmt.Errorf("delete filter %s of the fast path: %w", p, err)
		}
	}
	delete(m.missing, k)
	if m.installed[k] = wanted; len(wanted) == 0 {
		delete(m.installed, k)
	}
	return nil
}

// difference gives the filters to set, the longest first, and the prefixes to delete.
func difference(old, wanted []Filter) (set []Filter, gone []ident.Prefix) {
	byPrefix := make(map[ident.Prefix]Action, len(old))
	for _, f := range old {
		byPrefix[f.Prefix] = f.Action
	}
	for _, f := range wanted {
		if a, ok := byPrefix[f.Prefix]; !ok || !a.Equal(f.Action) {
			set = append(set, f)
		}
		delete(byPrefix, f.Prefix)
	}
	slices.SortStableFunc(set, func(a, b Filter) int { return b.Prefix.Bits - a.Prefix.Bits })
	for _, f := range old {
		if _, unwanted := byPrefix[f.Prefix]; unwanted {
			gone = append(gone, f.Prefix)
		}
	}
	return set, gone
}

// withdraw deletes all filters of a key, those that are there and those that may be.
func (m *Mirror) withdraw(k ident.Key, perhaps []Filter) {
	m.missing[k] = true
	all := append(slices.Clone(m.installed[k]), perhaps...)
	delete(m.installed, k)
	slices.SortStableFunc(all, func(a, b Filter) int { return a.Prefix.Bits - b.Prefix.Bits })
	for _, f := range all {
		if err := m.path.Delete(f.Prefix); err != nil {
			m.breakOff()
			return
		}
	}
}

// breakOff makes the fast path punt everything; its filters do not matter then.
func (m *Mirror) breakOff() {
	m.broken = true
	for k := range m.installed {
		m.missing[k] = true
	}
	clear(m.installed)
	// If this fails too, there is nothing left to try before Retry.
	_ = m.path.SetRoutes(chord.Routes{})
}

// Retry tries again what was refused. groups gives the triggers of a key.
func (m *Mirror) Retry(groups func(k ident.Key) []trigger.Group) error {
	if m.broken {
		if err := m.path.Replace(m.routes, nil); err != nil {
			return fmt.Errorf("clear the fast path: %w", err)
		}
		m.broken = false
	}
	const most = 100 // requests: a server does nothing else meanwhile
	var first error
	tried := 0
	for k := range m.missing {
		err := m.Update(k, groups(k))
		if err != nil && first == nil {
			first = err
		}
		if tried++; m.broken || tried == most || errors.Is(err, ErrFull) {
			break
		}
	}
	return first
}
