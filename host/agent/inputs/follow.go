package inputs

import (
	"context"
	"time"

	"github.com/pergola-net/pergola/control/store"
)

// RetryStore is how long an agent waits before it asks a store again that gave no answer.
const RetryStore = time.Second

// Follow reads what the store says has changed, until ctx ends or changes is closed, and calls changed when that may
// change what is wanted here. What could not be read is read again when the store answers.
func (i *Inputs) Follow(ctx context.Context, changes <-chan store.Change, changed func()) {
	var retry <-chan time.Time // something was not read
	for {
		c := store.Change{What: store.Resync}
		select {
		case <-ctx.Done():
			return
		case <-retry:
			retry = nil
		case next, open := <-changes:
			if !open {
				return
			}
			c = next
		}
		if c.What == store.StatusChanged && !i.awaits(c.Slice) ||
			c.What == store.LinkStateChanged && !i.isSignalled(c.Slice) {
			continue
		}
		news, err := i.Load(ctx, c)
		i.cfg.Contact.Note(err)
		if err != nil && retry == nil {
			retry = time.After(RetryStore)
		}
		if news {
			changed()
		}
	}
}
