package store

import (
	"context"

	"github.com/pergola-net/pergola/control/store/cache"
)

// AllowStale makes reads with the context return what is in the offline cache while no server answers. It is for
// callers that change nothing in the store by it.
func AllowStale(ctx context.Context) context.Context {
	return context.WithValue(ctx, allowStale{}, true)
}

type allowStale struct{}

// orCached asks the servers or, with AllowStale, reads from the offline cache while none of them answers.
func orCached[T any](
	ctx context.Context, s *Store, ask func() (T, error), cached func(*cache.Cache) (T, error),
) (T, error) {
	if s.offline == nil || ctx.Value(allowStale{}) == nil {
		return ask()
	}
	if !s.db.Unanswered() {
		if answer, err := ask(); err == nil || !s.db.IsUnreachable(err) {
			return answer, err
		}
	}
	return cached(s.offline)
}
