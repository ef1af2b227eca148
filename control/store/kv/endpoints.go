package kv

import (
	"context"
	"errors"
	"time"
)

// Pause waits a second, and then for the quorum: it is called before a watch is begun again, and without a quorum
// nothing changes.
func (d *DB) Pause(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if d.quorum.missing() == nil {
			return
		}
	}
}

// registerMemberLater registers this server as a member when the quorum is back.
func (d *DB) registerMemberLater(ctx context.Context) {
	for {
		d.Pause(ctx)
		if err := d.registerMember(ctx); ctx.Err() != nil || !errors.Is(err, ErrNoQuorum) {
			return
		}
	}
}
