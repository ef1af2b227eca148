package fastpath

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/sliver"
)

// Watch polls the fast path until ctx ends, and calls changed when it fails for some router or works again, or when a
// router has lost an interface.
func (f *FastPath) Watch(ctx context.Context, changed func()) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if f.poll() {
			changed()
		}
	}
}

// troubledPolls is how many polls, one a second, a router may take to be read: a million routes take some.
const troubledPolls = 5

// poll notes the troubles that there are, and reports whether others last than before, or whether a router has lost an
// interface: one that is moved away is told by the mirror alone.
func (f *FastPath) poll() (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	troubled, lost, lasting := make(map[sliver.ID]int), make(map[sliver.ID]int), make(map[sliver.ID]string)
	for id := range f.routers {
		if st, err := f.mirror.Status(id.String()); err == nil && len(st.Lost) > 0 {
			lost[id] = len(st.Lost)
		}
		if t := f.troubleLocked(id); t != "" {
			if troubled[id] = f.troubled[id] + 1; troubled[id] >= troubledPolls {
				lasting[id] = t
			}
		}
	}
	changed = !maps.Equal(lasting, f.troubles) || !maps.Equal(lost, f.lost)
	f.troubled, f.lost, f.troubles = troubled, lost, lasting
	return changed
}

// troubleLocked words what keeps a router off the fast path that may be on it; empty: nothing.
func (f *FastPath) troubleLocked(id sliver.ID) string {
	_, known := f.routers[id]
	switch {
	case f.trouble != nil:
		return f.trouble.Error()
	case !known:
		return ""
	case f.refused[id] != nil:
		return f.refused[id].Error()
	}
	st, err := f.mirror.Status(id.String())
	if err != nil {
		return err.Error()
	}
	if !st.Synchronised {
		return strings.Join(st.IPv4.Why, "; ")
	}
	return ""
}
