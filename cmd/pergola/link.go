package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/shape"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func newLink(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Change rate, delay and loss of links, or take links down and up",
		Long: `Change links while the network runs, or list them. LINK is a link's name, or one of its ends as
NODE:IFACE; for ` + "`set`" + `, an end limits the change to frames that leave it. A change holds until
` + "`link reset`" + `: it survives a restart of the server and ` + "`pergola up`" + `.`,
		Example: "  pergola link set denver:eth1 --delay 20ms --loss 0.5\n  pergola link reset --all\n" +
			"  pergola link down a:eth1--b:eth1",
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(changesNetworks(newLinkSet(a)), changesNetworks(newLinkReset(a)),
		newLinkVerb(a, "down LINK...", "Take links down: their ends lose the carrier", "down",
			func(ctx context.Context, n *network, link string) error {
				return n.LinkDown(ctx, n.name, link)
			}),
		newLinkVerb(a, "up LINK...", "Take links up again", "up",
			func(ctx context.Context, n *network, link string) error {
				return n.LinkUp(ctx, n.name, link)
			}),
		newLinkLs(a), newLinkStats(a))
	return cmd
}

func newLinkSet(a *app) *cobra.Command {
	var name string
	var f shape.Flags
	cmd := &cobra.Command{
		Use:   "set LINK",
		Short: "Change rate, delay, jitter, loss, queues or policer of a link",
		Long: `Change how a link treats frames, at once and without a restart. Values that are not given stay
as they are. If LINK is one end, as NODE:IFACE, only frames that leave this end are affected.

A queue of a packet program whose number is that after the last one is added; --remove-queue removes
the last one.`,
		Example: `  pergola link set denver:eth1 --rate 10Mbit --delay 20ms
  pergola link set a:eth1--b:eth1 --loss 1 --jitter 2ms
  pergola link set a:eth1--b:eth1 --rate 0        # no limit any more
  pergola link set a:eth1 --police 10Mbit --burst 64KiB
  pergola link set west:eth2 --share 1=40,2=10 --length 1=128KiB   # queues of a packet program
  pergola link set west:eth2 --share 3=5   # there are 0 to 2: one more
  pergola link set west:eth2 --remove-queue 3`,
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeInterfaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := f.Patch(cmd.Flags())
			if err != nil {
				return err
			}
			net, links, err := a.links(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			patch.End = links[0].end
			if err := net.SetLink(cmd.Context(), net.name, links[0].Name, patch); err != nil {
				return fmt.Errorf("set link %s: %w", args[0], err)
			}
			return a.linksDone(cmd.Context(), net, links, "changed")
		},
	}
	a.sliceFlag(cmd, &name)
	f.Add(cmd.Flags())
	return cmd
}

func newLinkReset(a *app) *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:               "reset [LINK...]",
		Short:             "Restore the rate, delay and loss that the file gives to links",
		Example:           "  pergola link reset denver:eth1\n  pergola link reset --all",
		Args:              arguments(0, -1),
		ValidArgsFunction: a.completeLinks,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return ui.Usage("", "name links, or --all")
			}
			net, links, err := a.links(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			if all {
				links = slices.DeleteFunc(links, func(l chosenLink) bool { return !l.changed })
			}
			for _, l := range links {
				if err := net.ResetLink(cmd.Context(), net.name, l.Name); err != nil {
					return fmt.Errorf("reset link %s: %w", l.Name, err)
				}
			}
			return a.linksDone(cmd.Context(), net, links, "as the file says")
		},
	}
	a.sliceFlag(cmd, &name)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all links of the network")
	return cmd
}

func newLinkVerb(a *app, use, short, done string, do func(context.Context, *network, string) error) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Example: fmt.Sprintf("  pergola link %s denver:eth1\n"+
			"  pergola link %[1]s a:eth1--b:eth1 -s abilene", done),
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeLinks,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, links, err := a.links(cmd.Context(), name, args)
			if err != nil {
				return err
			}
			defer net.Close()
			for _, l := range links {
				if err := do(cmd.Context(), net, l.Name); err != nil {
					return fmt.Errorf("%s link %s: %w", done, l.Name, err)
				}
			}
			return a.linksDone(cmd.Context(), net, links, done)
		},
	}
	a.sliceFlag(cmd, &name)
	return changesNetworks(cmd)
}

func newLinkLs(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:               "ls [NETWORK]",
		Aliases:           []string{"list"},
		Short:             "List the links of a network",
		Example:           "  pergola link ls\n  pergola link ls abilene --json",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withState(cmd.Context(), either(first(args), name), func(s *api.Slice) error {
				if a.JSON {
					return a.Emit(report.LinkStates(s))
				}
				a.Table(report.Links(s, a.Styles, ""))
				return nil
			})
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

// chosenLink is a link, with the end by which it was named, if any.
type chosenLink struct {
	*slice.Link
	end     string
	changed bool // by hand
}

// links finds the links that words mean, all of one network; without words, all links.
func (a *app) links(ctx context.Context, name string, words []string) (*network, []chosenLink, error) {
	for i, w := range words {
		in, word := target.Split(w)
		name, words[i] = either(name, in), word
	}
	net, err := a.network(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := net.state(ctx)
	if err != nil {
		net.Close()
		return nil, nil, err
	}
	var found []chosenLink
	for _, w := range words {
		l, end, err := target.Link(s.Spec, w)
		if err != nil {
			net.Close()
			return nil, nil, err
		}
		found = append(found, chosenLink{l, end, true})
	}
	if len(words) == 0 {
		for i := range s.Spec.Links {
			l := &s.Spec.Links[i]
			found = append(found, chosenLink{l, "", report.Changed(s, l)})
		}
	}
	return net, found, nil
}

// linksDone waits until links are as they were asked to be, and says so.
func (a *app) linksDone(ctx context.Context, net *network, links []chosenLink, what string) error {
	names := make([]string, 0, len(links))
	for _, l := range links {
		names = append(names, l.Name)
	}
	wanted, err := net.state(ctx)
	if err != nil {
		return err
	}
	if err := a.until(ctx, net, "change "+ui.Some(names), func(st *slice.Status) bool {
		for _, l := range links {
			if !follow.LinkIs(l.Link, &wanted.Overrides, st) {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	if len(links) == 0 {
		a.Say("%s: all links are as the file says", net.name)
	}
	for _, l := range links {
		a.Say("%s/%s: %s", net.name, either(l.end, l.Name), what)
	}
	if a.JSON {
		return a.Emit(names)
	}
	return nil
}
