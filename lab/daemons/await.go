package daemons

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/model/slice"
)

// Await waits until a network has converged.
type Await struct {
	Slice *slice.Slice
	// PIDs gives a process of every node that runs, by name; it is asked before every look. Nodes that are to run
	// and do not yet must be awaited first: here, a node that does not run is not missed.
	PIDs func(ctx context.Context) (map[string]int, error)
	// Up tells which links are not taken down; nil: all.
	Up func(link string) bool
	// Progress is called with the verdict of every look; may be nil.
	Progress func(probe.Verdict)
}

// Pauses between two looks: at least settle, so that two equal looks mean something, and three times what a look
// takes, so that looking leaves the processors to the routers.
const (
	settle   = 200 * time.Millisecond
	maxPause = 2 * time.Second
)

// Converged returns when two looks in a row found the network converged and the tables unchanged, or when ctx ends:
// then with ctx's error and the last verdict.
func (a Await) Converged(ctx context.Context) (probe.Verdict, error) {
	var before map[string]probe.Table
	var verdict probe.Verdict
	for {
		begin := time.Now()
		pids, err := a.PIDs(ctx)
		if err != nil {
			return verdict, fmt.Errorf("list running nodes: %w", err)
		}
		tables, err := probe.AllTables(ctx, pids)
		if err != nil && ctx.Err() == nil {
			return verdict, err
		}
		if err == nil {
			verdict = probe.Converged(a.Slice, tables, a.Up)
			if a.Progress != nil {
				a.Progress(verdict)
			}
			if verdict.Converged && before != nil && maps.EqualFunc(before, tables, probe.Table.Equal) {
				return verdict, nil
			}
			before = tables
		}
		select {
		case <-ctx.Done():
			return verdict, fmt.Errorf("wait until %s has converged (%d of %d): %w", a.Slice.Name,
				verdict.Reached, verdict.Pairs, ctx.Err())
		case <-time.After(min(maxPause, max(settle, 3*time.Since(begin)))):
		}
	}
}
