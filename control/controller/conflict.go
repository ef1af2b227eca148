package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pergola-net/pergola/control/store"
)

// How long a request is tried again after conflicts with others, and what is waited between. Each conflict means that
// another request was carried out. Waits grow until all of many members have their turn, and no further: a request that
// has waited for long is not to be tried less often than one that has just come.
const (
	patience  = 10 * time.Second
	firstWait = 4 * time.Millisecond
	longWait  = 250 * time.Millisecond
)

// untilNoConflict tries a request until it ends by no conflict with another one, for as long as is reasonable.
func untilNoConflict(ctx context.Context, try func() error) error {
	wait, start := firstWait, time.Now()
	for n := 1; ; n++ {
		err := try()
		switch took := time.Since(start); {
		case !errors.Is(err, store.ErrConflict):
			return err
		case took >= patience:
			return fmt.Errorf("given up after %d attempts in %s: %w", n, took.Round(time.Second), err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(wait)):
		}
		wait = min(2*wait, longWait)
	}
}
