package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func newLinkStats(a *app) *cobra.Command {
	var name string
	var rates bool
	var o looks
	cmd := &cobra.Command{
		Use:   "stats [LINK...]",
		Short: "Show the counters of links' classes and queues",
		Long: `Show what went through the queues of links that have a rate, a queue or classes: one line for
each class in each direction, as ` + "`tc -s class show`" + ` has it. Named by one end, as NODE:IFACE, only
frames that leave this end are counted.

FRAMES and BYTES were sent, DROPS found the queue full, OVERLIMITS is how often the class had used up
its limit and had to wait, and BACKLOG is what waits now. Counters begin when a class is made. With
--watch, show them per second, again and again.`,
		Example: "  pergola link stats\n  pergola link stats r1:eth2 --watch\n" +
			"  pergola link stats --json | jq '.queues[].dropped'",
		Args:              arguments(0, -1),
		ValidArgsFunction: a.completeLinks,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("link stats"); err != nil {
				return err
			}
			net, links, err := a.links(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			if len(args) == 0 {
				return a.linkStats(cmd.Context(), net, allLinks(links), nil, rates, o)
			}
			return a.linkStats(cmd.Context(), net, allLinks(links), links, rates, o)
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVar(&rates, "watch", false, "show what goes through, per second")
	o.add(cmd.Flags())
	return cmd
}

func allLinks(chosen []chosenLink) (links []*slice.Link) {
	for _, l := range chosen {
		links = append(links, l.Link)
	}
	return links
}

// linkStats shows the queues of links: of those that are chosen, or where none is, of all.
func (a *app) linkStats(ctx context.Context, net *network, links []*slice.Link, chosen []chosenLink, rates bool,
	o looks) error {
	names := make([]string, len(chosen))
	for i, l := range chosen {
		names[i] = l.Name
	}
	slices.Sort(names)
	names = slices.Compact(names)
	read := func(ctx context.Context) (*api.SliceQueues, error) {
		all, err := net.Queues(ctx, net.name, names...)
		if err == nil {
			others := func(q api.QueueTraffic) bool { return !isChosen(q, chosen) }
			all.Queues = slices.DeleteFunc(all.Queues, others)
		}
		return all, err
	}
	now, err := read(ctx)
	if err != nil {
		return err
	}
	a.warn(report.UnreachableHosts(now.Unreachable))
	if !rates {
		return a.showQueues(now, report.Queues(links, now))
	}
	return watch(ctx, a, o, now, read, func(before, after *api.SliceQueues, span time.Duration) error {
		if a.IsTTY() && !a.JSON {
			a.Clear()
		}
		return a.showQueues(after, report.QueueRates(links, before, after, span))
	})
}

// isChosen reports whether a queue is of a link that was named, and of the end by which it was.
func isChosen(q api.QueueTraffic, chosen []chosenLink) bool {
	return len(chosen) == 0 || slices.ContainsFunc(chosen, func(l chosenLink) bool {
		return l.Name == q.Link && (l.end == "" || l.end == q.From)
	})
}

func (a *app) showQueues(all *api.SliceQueues, table *ui.Table) error {
	if a.JSON {
		return a.Emit(all)
	}
	if len(table.Rows) == 0 {
		a.Say("no link of these has a rate, a queue or classes")
		return nil
	}
	a.Table(table)
	return nil
}
