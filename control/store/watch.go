package store

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What says which part of a slice changed.
type What string

// The parts.
const (
	SpecChanged      What = "spec" // also: it was created, or marked as going
	OverridesChanged What = "overrides"
	StatusChanged    What = "status"
	Gone             What = "gone"
	// HostsChanged means that hosts came, went or were described or treated otherwise. Slice is empty.
	HostsChanged What = "host"
	// Resync means that changes may have been missed: look at everything. Slice is empty.
	Resync What = "resync"
)

// Change is a hint to look again: it says what to read, not what is there.
type Change struct {
	Slice string
	What  What
}

// Watch reports what changes from now on, until ctx ends, which closes the channel. A slow reader does not miss a
// change, but changes of the same kind that it has not read yet become one.
func (s *Store) Watch(ctx context.Context) (<-chan Change, error) {
	now, err := s.get(ctx, s.prefix, clientv3.WithCountOnly())
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
		for r := range s.kv.Watch(clientv3.WithRequireLeader(ctx), s.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
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
		s.pause(ctx)
	}
}

// pause waits before etcd is asked again, which may be away for long. Without a quorum nothing changes.
func (s *Store) pause(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if s.quorum.missing() == nil {
			return
		}
	}
}

func (s *Store) change(e *clientv3.Event) (Change, bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), s.prefix), "/")
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
	}
	return Change{}, false
}

// coalesce hands changes on in order; one that already waits is not queued again. It closes out after in.
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
