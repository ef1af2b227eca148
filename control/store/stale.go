package store

import "context"

// AllowStale makes reads of an agent with the context return what servers told it last, while none answers. It is for
// callers that change nothing in the store by it.
func AllowStale(ctx context.Context) context.Context {
	return context.WithValue(ctx, allowStale{}, true)
}

type allowStale struct{}

// MayBeStale reports whether a context comes from AllowStale.
func MayBeStale(ctx context.Context) bool { return ctx.Value(allowStale{}) != nil }
