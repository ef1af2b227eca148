package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/sliver"
)

// openFastPath makes the node's packet program a fast path, and keeps it as the kernel's routes and neighbors are.
// After stop it punts all.
func openFastPath(ctx context.Context, server netip.AddrPort, log *slog.Logger) (f *sliver.FastPath, stop func(),
	err error,
) {
	const patience, pause = 30 * time.Second, time.Second
	waiting, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("waited %s: a Pergola node with `program: i3.c` has a control socket", patience))
	defer cancel()
	if f, err = sliver.Open(waiting, server); err != nil {
		return nil, nil, fmt.Errorf("open the fast path: %w", err)
	}
	refreshing, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		refresh(refreshing, f, pause, log)
	}()
	return f, func() {
		end()
		<-ended
		if err := f.Close(); err != nil {
			log.Error("close the fast path: what it has is left to it", "error", err)
		}
	}, nil
}

// refresh logs an error when it begins. After one, it does not hurry.
func refresh(ctx context.Context, f *sliver.FastPath, pause time.Duration, log *slog.Logger) {
	was := ""
	for {
		late := f.Late()
		if was != "" {
			late = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-late:
		}
		now := ""
		if err := f.Refresh(); err != nil {
			now = err.Error()
		}
		if now != "" && now != was {
			log.Error("refresh the fast path", "error", now)
		}
		was = now
	}
}
