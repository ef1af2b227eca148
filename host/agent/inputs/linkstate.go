package inputs

import (
	"context"

	"github.com/pergola-net/pergola/model/slice"
)

// isSignalled reports whether a slice has LSPs that choose their way by what other hosts have unreserved.
func (i *Inputs) isSignalled(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.wanted[name]
	return w != nil && w.Corrupt == nil && w.Spec.IsSignalled()
}

// loadLinkState reads again what other hosts say of their links of a slice.
func (i *Inputs) loadLinkState(ctx context.Context, name string) error {
	i.mu.Lock()
	w := i.wanted[name]
	i.mu.Unlock()
	if w == nil || w.Corrupt != nil {
		return nil
	}
	is, err := i.linkStateOf(ctx, w.Spec)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.wanted[name] == w { // else it was read with the newer version
		next := *w
		next.LinkState = is
		i.wanted[name] = &next
	}
	return nil
}

// linkStateOf gives what other hosts say of their links of a slice; nil where no LSP needs it.
func (i *Inputs) linkStateOf(ctx context.Context, s *slice.Slice) (slice.LinkState, error) {
	if i.cfg.Cluster == nil || !s.IsSignalled() {
		return nil, nil
	}
	told, err := i.cfg.Store.LinkStates(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	return s.LinkStateBeside(i.cfg.Host, told), nil
}
