package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/model/wording"
)

func newHost(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "host",
		Aliases: []string{"hosts"},
		Short:   "Show and change the machines of the cluster",
		Long:    "Show and change the machines of the cluster. Only root can change them, on any machine.",
		Example: "  pergola host ls\n  pergola host drain h2",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cordon, uncordon := true, false
	cmd.AddCommand(newHostLs(a), newHostInspect(a),
		newHostSet(a, "cordon", "Give machines no new nodes; what runs on them stays", "takes no new nodes",
			api.HostPatch{Cordoned: &cordon}),
		newHostSet(a, "uncordon", "Give machines new nodes again, and end a drain", "takes nodes",
			api.HostPatch{Cordoned: &uncordon, Draining: &uncordon}),
		newHostDrain(a), newHostRm(a), newHostLabel(a))
	return cmd
}

func newHostLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the machines, with what they have and what is placed on them",
		Long: `List the machines of the cluster. CORES and MEMORY show how much of what a machine has the nodes
placed on it may use, as far as these have limits. LOAD is measured.`,
		Example: "  pergola host ls\n  pergola host ls --json | jq -r '.[] | select(.alive) | .name'",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				hosts, err := c.Hosts(ctx)
				switch {
				case err != nil:
					return err
				case a.JSON:
					return a.Emit(hosts)
				case len(hosts) == 0:
					a.Say("this machine is in no cluster: `pergola server` without " +
						"--listen none makes one")
					return nil
				}
				a.Table(report.Hosts(hosts, a.Styles, time.Now()))
				for i := range hosts {
					a.sayTrouble(&hosts[i])
				}
				return nil
			})
		},
	}
}

func newHostInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "inspect HOST",
		Aliases:           []string{"show"},
		Short:             "Show a machine: its interfaces, kernel, features and networks",
		Example:           "  pergola host inspect h2",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				h, err := c.Host(ctx, args[0])
				if err != nil {
					return a.noHost(ctx, c, args[0], err)
				}
				u := a.underlayTraffic(ctx, c, h)
				if a.JSON {
					return a.Emit(inspectedHost{h, u})
				}
				a.inspectHost(h)
				if u != nil {
					a.Print("")
					a.Table(report.UnderlayTraffic(u))
				}
				return nil
			})
		},
	}
}

func (a *app) inspectHost(h *api.Host) {
	for _, line := range report.Host(h, time.Now()) {
		a.Print("%s", line)
	}
	if len(h.Underlays) > 0 {
		a.Print("")
		a.Table(report.Underlays(h, a.Styles))
	}
	if len(h.Slices) > 0 {
		a.Print("")
		a.Table(report.HostSlices(h))
	}
	a.sayTrouble(h)
}

func (a *app) sayTrouble(h *api.Host) {
	if h.Problem != "" {
		a.Say("%s takes no nodes: it %s", h.Name, h.Problem)
	}
	if h.Trouble != "" {
		a.Say("%s: %s", h.Name, h.Trouble)
	}
}

// inspectedHost is what there is to see of a machine.
type inspectedHost struct {
	*api.Host
	Tunnels *api.UnderlayTraffic `json:"tunnels,omitempty"`
}

// underlayTraffic asks a host what went through its tunnels; nil: it is not known.
func (a *app) underlayTraffic(ctx context.Context, c *client.Client, h *api.Host) *api.UnderlayTraffic {
	if !h.Alive || len(h.Underlays) == 0 {
		return nil
	}
	u, err := c.Underlay(ctx, h.Name)
	if err != nil {
		a.Say("what went through the tunnels is not known: %v", err)
		return nil
	}
	return u
}

// newHostSet is a verb that changes one thing of hosts.
func newHostSet(a *app, verb, short, now string, patch api.HostPatch) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " HOST...",
		Short:             short,
		Example:           "  pergola host " + verb + " h2",
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(ctx context.Context, c *client.Client, host string) error {
				if err := c.SetHost(ctx, host, patch); err != nil {
					return err
				}
				a.Say("%s %s", host, now)
				return nil
			}
			return a.eachHost(cmd.Context(), args, do)
		},
	}
}

func newHostDrain(a *app) *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain HOST...",
		Short: "Move the nodes of machines to others, and give them no new ones",
		Long: `Move the nodes of machines to other machines, and place no new nodes there until
` + "`pergola host uncordon`" + `. A node that moves is started anew. Nodes that their file pins to the
machine stay.`,
		Example:           "  pergola host drain h2\n  pergola host drain h2 --wait --timeout 5m",
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			yes := true
			patch := api.HostPatch{Cordoned: &yes, Draining: &yes}
			do := func(ctx context.Context, c *client.Client, host string) error {
				if err := c.SetHost(ctx, host, patch); err != nil {
					return err
				}
				if !wait {
					a.Say("%s is drained: `pergola host ls` shows the nodes that are left", host)
					return nil
				}
				limited, cancel := limit(ctx, timeout)
				defer cancel()
				return a.drained(limited, c, host)
			}
			return a.eachHost(cmd.Context(), args, do)
		},
	}
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until no node is left")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultWait, "how long --wait waits; 0 for ever")
	return cmd
}

// drained waits until a host has no nodes.
func (a *app) drained(ctx context.Context, c *client.Client, host string) error {
	p := a.Progress()
	defer p.Close()
	for most := 0; ; {
		h, err := c.Host(ctx, host)
		if err != nil {
			return err
		}
		if h.Nodes == 0 {
			p.Close()
			a.Say("%s has no nodes", host)
			return nil
		}
		most = max(most, h.Nodes)
		p.Step("draining "+host, most-h.Nodes, most)
		select {
		case <-ctx.Done():
			return ui.Advise(fmt.Errorf("%s has %s still", host, wording.Count(h.Nodes, "node")),
				"`pergola host inspect %s` shows of which networks; nodes whose file says `host: "+
					"%[1]s` stay, and others where no host fits", host)
		case <-time.After(drainLook):
		}
	}
}

const drainLook = 500 * time.Millisecond

func newHostRm(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "rm HOST...",
		Aliases: []string{"remove"},
		Short:   "Remove machines from the cluster that have left or are lost for good",
		Long: `Remove machines from the cluster: nothing waits for them any more, and they can join again only
with a new token. A machine that is alive must be stopped first. This does not end what runs on
a lost machine: reboot it, or keep it off the network, before its nodes start elsewhere.`,
		Example:           "  pergola host rm h2\n  pergola host rm h2 --force",
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(ctx context.Context, c *client.Client, host string) error {
				if err := c.RemoveHost(ctx, host, force); err != nil {
					return err
				}
				a.Say("%s removed", host)
				return nil
			}
			return a.eachHost(cmd.Context(), args, do)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also where nodes are placed on it")
	return cmd
}

func newHostLabel(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "label HOST KEY=VALUE|KEY-...",
		Short: "Set or remove labels of a machine",
		Long: `Set labels of a machine. Topologies choose by them where nodes run (host_labels). KEY- removes a
label.`,
		Example:           "  pergola host label h2 rack=a ssd=yes\n  pergola host label h2 ssd-",
		Args:              arguments(2, -1),
		ValidArgsFunction: a.completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			labels, err := parseLabels(args[1:], true)
			if err != nil {
				return err
			}
			do := func(ctx context.Context, c *client.Client, host string) error {
				if err := c.SetHost(ctx, host, api.HostPatch{Labels: labels}); err != nil {
					return err
				}
				h, err := c.Host(ctx, host)
				if err == nil {
					a.Say("%s has the labels %s", host, report.Labels(h))
				}
				return err
			}
			return a.eachHost(cmd.Context(), args[:1], do)
		},
	}
}

// parseLabels reads KEY=VALUE, and KEY- where labels can be taken away.
func parseLabels(words []string, takeAway bool) (map[string]string, error) {
	labels := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if gone, cut := strings.CutSuffix(word, "-"); !ok && cut && takeAway {
			key, ok = gone, true
		} else if ok && value == "" {
			ok = false
		}
		if !ok || key == "" || strings.ContainsAny(key+value, " ,\t\n") {
			return nil, ui.Usage("write such as rack=a", "label %q", word)
		}
		labels[key] = value
	}
	return labels, nil
}

// withServer runs one request.
func (a *app) withServer(ctx context.Context, do func(context.Context, *client.Client) error) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}

// eachHost calls do for hosts, one after the other.
func (a *app) eachHost(ctx context.Context, hosts []string,
	do func(ctx context.Context, c *client.Client, host string) error,
) error {
	return a.withServer(ctx, func(ctx context.Context, c *client.Client) error {
		for _, host := range hosts {
			if err := do(ctx, c, host); err != nil {
				return a.noHost(ctx, c, host, err)
			}
		}
		if a.JSON {
			return a.Emit(hosts)
		}
		return nil
	})
}

// noHost adds to the error for a host that does not exist which one was meant.
func (a *app) noHost(ctx context.Context, c *client.Client, name string, err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != 404 {
		return err
	}
	hosts, other := c.Hosts(ctx)
	if other != nil {
		return err
	}
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	if near := wording.Nearest(name, names); near != "" {
		return ui.Advise(err, "did you mean %s?", near)
	}
	return err
}
