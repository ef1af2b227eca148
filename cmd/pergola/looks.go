package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

// looks is how often a command reads counters.
type looks struct {
	every time.Duration
	count int // 0: until Ctrl-C on a terminal, else one
}

func (o *looks) add(f *pflag.FlagSet) {
	f.DurationVar(&o.every, "every", time.Second, "time between two looks")
	f.IntVarP(&o.count, "count", "n", 0, "tables to write; 0: until Ctrl-C on a terminal, else one")
}

func (o looks) check(command string) error {
	if o.every <= 0 || o.count < 0 {
		return ui.Usage("write such as --every 2s", "%s: a span of %v, %d times", command, o.every, o.count)
	}
	return nil
}

// watch reads counters again and again, and shows what came between two looks.
func watch[T any](ctx context.Context, a *app, o looks, before T, read func(context.Context) (T, error),
	show func(before, after T, span time.Duration) error) error {
	if o.count == 0 && !a.IsTTY() {
		o.count = 1
	}
	then := time.Now()
	for shown := 0; o.count == 0 || shown < o.count; shown++ {
		select {
		case <-ctx.Done():
			return nil // Ctrl-C ends it in order
		case <-time.After(o.every):
		}
		after, err := read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if err := show(before, after, now.Sub(then)); err != nil {
			return err
		}
		before, then = after, now
	}
	return nil
}
