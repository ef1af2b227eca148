package controller

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// edit changes a slice that runs, and leaves its nodes where they are. change gets the version that is stored, and a
// copy of it to be changed. Nothing is stored where both are equal then, or where change fails; changed says whether
// something was. The error is store.ErrConflict where somebody else changed the slice meanwhile.
func (c *Controller) edit(ctx context.Context, name string, change func(prev, next *slice.Slice) error) (changed bool,
	err error) {
	c.placeMu.Lock()
	defer c.placeMu.Unlock()
	admission, err := c.admission(ctx, name)
	if err != nil {
		return false, err
	}
	prev, record, err := c.Slice(ctx, name)
	if err != nil {
		return false, err
	}
	if record.Deleting {
		return false, fmt.Errorf("%s: %w", name, store.ErrDeleting)
	}
	next := copyForPlacing(prev)
	if err := change(prev, next); err != nil {
		return false, err
	}
	if Diff(prev, next).Empty() {
		return false, nil
	}
	if err := c.store.PutSlice(ctx, next, record.Generation, admission.of(prev, next)...); err != nil {
		return false, fmt.Errorf("store network %s: %w", name, err)
	}
	return true, nil
}
