package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Recalling lets what is read with the context be what the servers said last, while none of them answers. It is for who changes nothing in
// the store by it.
func Recalling(ctx context.Context) context.Context {
	return context.WithValue(ctx, recalling{}, true)
}

type recalling struct{}

func isRecalling(ctx context.Context) bool { return ctx.Value(recalling{}) != nil }

// isSilence tells an error that stands for no answer of anybody.
func (s *Store) isSilence(err error) bool {
	return errors.Is(err, ErrSilent) || !s.isFollower() && isAway(err)
}

// recall asks the servers or, with Recalling, says what is remembered while none of them answers. remembered says ErrSilent where nothing is.
func recall[T any](ctx context.Context, s *Store, ask func() (T, error), remembered func(*memory) (T, error)) (T, error) {
	if s.memory == nil || !isRecalling(ctx) {
		return ask()
	}
	if !s.memory.isSilent() {
		if answer, err := ask(); err == nil || !s.isSilence(err) {
			return answer, err
		}
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return remembered(s.memory)
}

// note takes it that the last request had no answer, or one.
func (m *memory) note(silent bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
}

func (m *memory) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

// recordsLocked lists the slices, unless one of them was never told of: who acts on what is absent must not take it for that.
func (m *memory) recordsLocked() ([]Record, error) {
	if m.names == nil {
		return nil, ErrSilent
	}
	for _, name := range m.names {
		if m.slices[name] == nil {
			return nil, fmt.Errorf("%w, and nothing is known here of slice %s", ErrSilent, name)
		}
	}
	records := make([]Record, 0, len(m.slices))
	for _, name := range slices.Sorted(maps.Keys(m.slices)) {
		records = append(records, m.slices[name].Record)
	}
	return records, nil
}

// told is what Slice gives.
type told struct {
	spec   *slice.Slice
	record Record
}

func (m *memory) sliceLocked(name string) (told, error) {
	k := m.slices[name]
	switch {
	case k == nil && m.names == nil:
		return told{}, ErrSilent
	case k == nil:
		return told{}, fmt.Errorf("%s: %w, as far as is known here: %w", name, ErrNotFound, ErrSilent)
	case k.Spec != nil:
		return told{k.Spec, k.Record}, nil
	case k.Record.Going:
		return told{nameOnly(k.Record), k.Record}, nil
	}
	return told{nil, k.Record}, fmt.Errorf("slice %s: %w", name, ErrCorrupt)
}

// statusLocked is what this host itself reports of a slice. Nobody can say how the others are.
func (m *memory) statusLocked(name string) (slice.Status, error) {
	k, own := m.slices[name], m.reports[name]
	if k == nil || k.Spec == nil || k.Record.Going {
		return merge(name, nil, []report{{host: own.host, Status: own.Status}}), nil
	}
	reports := []report{{host: own.host, Status: own.Status}}
	for _, host := range hostsOf(k.Spec) {
		if host != own.host {
			reports = append(reports, report{host: host, lost: true, Status: slice.Status{Generation: own.Generation}})
		}
	}
	sum := merge(name, k.Spec, reports)
	for node, st := range sum.Nodes {
		if st.Phase == slice.Lost {
			st.Message = ErrSilent.Error()
			sum.Nodes[node] = st
		}
	}
	sum.Settled = false
	return sum, nil
}

func (m *memory) hostsLocked() ([]HostState, error) {
	if m.hosts == nil {
		return nil, ErrSilent
	}
	return slices.Clone(m.hosts), nil
}
