package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pergola-net/pergola/control/store"
)

// How often a request is tried again after conflicts with others, and what is waited between. Each conflict means that
// another request was carried out; so with waits that grow and are random, all of many are, one after the other.
const (
	attempts  = 12
	firstWait = 4 * time.Millisecond
	longWait  = time.Second
)

// untilNoConflict tries a request until it ends by no conflict with another one, as often as is reasonable.
func untilNoConflict(ctx context.Context, try func() error) error {
	wait := firstWait
	for n := 1; ; n++ {
		err := try()
		switch {
		case !errors.Is(err, store.ErrConflict):
			return err
		case n == attempts:
			return fmt.Errorf("given up after %d attempts: %w", n, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(wait)):
		}
		wait = min(2*wait, longWait)
	}
}
