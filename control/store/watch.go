package store

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What is the kind of a change.
type What string

// The parts.
const (
	SpecChanged      What = "spec" // also: the slice was created, or marked for deletion
	OverridesChanged What = "overrides"
	StatusChanged    What = "status"
	LinkStateChanged What = "linkstate"
	Gone             What = "gone"
	// HostsChanged means that hosts were added, removed, lost or found, or that their description or policy
	// changed. Slice is empty.
	HostsChanged What = "host"
	// Resync means that changes may have been missed: look at everything. Slice is empty.
	Resync What = "resync"
)

// Change is a hint to look again: it says what to read, not what is there.
type Change struct {
	Slice string
	What  What
}

// Watch reports what changes from now on, until ctx ends, which closes the channel. A slow reader misses no change, but
// equal changes that it has not read yet become one.
func (s *Store) Watch(ctx context.Context) (<-chan Change, error) {
	now, err := s.db.Get(ctx, s.db.Key(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	in, out := make(chan Change), make(chan Change)
	go s.follow(ctx, now.Header.Revision+1, in)
	go coalesce(in, out)
	return out, nil
}

// follow turns events of etcd into changes. It closes out when ctx ends.
func (s *Store) follow(ctx context.Context, revision int64, out chan<- Change) {
	defer close(out)
	for ctx.Err() == nil {
		// A watch ends by itself when its revision was compacted: start again from now and say so.
		events := s.db.Etcd().Watch(clientv3.WithRequireLeader(ctx), s.db.Key(),
			clientv3.WithPrefix(), clientv3.WithRev(revision))
		for r := range events {
			for _, e := range r.Events {
				if c, ok := s.change(e); ok {
					out <- c
				}
			}
			if r.Header.Revision > 0 {
				revision = r.Header.Revision + 1
			}
			if r.CompactRevision > revision {
				revision = r.CompactRevision
			}
		}
		if ctx.Err() == nil {
			out <- Change{What: Resync}
		}
		s.db.Pause(ctx)
	}
}

func (s *Store) change(e *clientv3.Event) (Change, bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), s.db.Key()), "/")
	name, _, _ := strings.Cut(rest, "/")
	gone := e.Type == mvccpb.DELETE
	switch {
	case kind == "hosts" || kind == "policies" || kind == "alive":
		return Change{What: HostsChanged}, true
	case kind == "slices" && gone:
		return Change{name, Gone}, true
	case kind == "slices":
		return Change{name, SpecChanged}, true
	case kind == "overrides" && !gone:
		return Change{name, OverridesChanged}, true
	case kind == "status" && !gone:
		return Change{name, StatusChanged}, true
	case kind == "linkstate" && !gone:
		return Change{name, LinkStateChanged}, true
	}
	return Change{}, false
}

// coalesce passes changes on in order; a change that already waits is not queued again. It closes out after in.
func coalesce(in <-chan Change, out chan<- Change) {
	defer close(out)
	var queue []Change
	waiting := map[Change]bool{}
	for {
		var next Change
		var ready chan<- Change
		if len(queue) > 0 {
			next, ready = queue[0], out
		}
		select {
		case c, ok := <-in:
			if !ok {
				return
			}
			if !waiting[c] {
				waiting[c] = true
				queue = append(queue, c)
			}
		case ready <- next:
			queue = queue[1:]
			delete(waiting, next)
		}
	}
}
