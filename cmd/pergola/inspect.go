package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/inventory"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

func newInspect(a *app) *cobra.Command {
	var fastpath bool
	var tool, dir string
	cmd := &cobra.Command{
		Use:   "inspect [NETWORK] [NODE]",
		Short: "Show the nodes and links of a network, with their state",
		Long: `Show the nodes of a network with their state and addresses, and its links with the treatment of
frames that leave each end. A star marks what was changed by hand since ` + "`pergola up`" + `. With NODE,
show its interfaces. Of nodes with packet programs, show the program, its cost to the kernel's
verifier (VERIFIED: so many instructions a frame takes at most) and its counters.

With --fastpath, show for each address family which routers are on the fast path and why others
are not; how many routes and neighbours the fast path has of each router; and how many frames it
punted to their kernels, by reason.

With --inventory, write the nodes that have processes as an inventory of Ansible or Nornir: to
standard output, or with --output into a directory. Nornir's consists of two files.`,
		Example: "  pergola inspect\n  pergola inspect abilene denver\n  pergola inspect denver --fastpath\n" +
			"  pergola inspect --json | jq .status.nodes\n" +
			"  pergola inspect abilene --inventory ansible > inventory.yaml",
		Args:              arguments(0, 2),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkInventory(tool, dir); err != nil {
				return err
			}
			net, node, err := a.inspected(cmd, args)
			if err != nil {
				return err
			}
			defer net.Close()
			s, err := net.state(cmd.Context())
			if err != nil {
				return err
			}
			if node != "" && s.Spec.Node(node) == nil {
				return target.NoNode(s.Spec, node)
			}
			switch {
			case tool != "" && (fastpath || node != ""):
				return ui.Usage("", "--inventory is of a whole network: leave out --fastpath and NODE")
			case tool != "":
				return a.inventory(s.Spec, tool, dir)
			case fastpath && node != "":
				return a.inspectRouter(cmd.Context(), net, node)
			case fastpath:
				return a.inspectFastPath(cmd.Context(), net)
			case a.JSON:
				return a.inspectJSON(s, node)
			}
			return a.inspect(cmd.Context(), net, s, node)
		},
	}
	cmd.Flags().BoolVar(&fastpath, "fastpath", false, "show what the fast path does for routers")
	cmd.Flags().StringVar(&tool, "inventory", "", "write an inventory for `TOOL`: ansible, nornir")
	cmd.Flags().StringVarP(&dir, "output", "o", "", "write the inventory's files into `DIRECTORY`")
	completeValues(cmd, "inventory", inventory.Tools...)
	return cmd
}

// inspected finds out what one or two words mean: NETWORK, NODE, NETWORK/NODE or NETWORK NODE.
func (a *app) inspected(cmd *cobra.Command, args []string) (net *network, node string, err error) {
	switch len(args) {
	case 0:
		net, err = a.network(cmd.Context(), "")
		return net, "", err
	case 2:
		net, err = a.network(cmd.Context(), args[0])
		return net, args[1], err
	}
	if name, node := target.Split(args[0]); name != "" {
		net, err = a.network(cmd.Context(), name)
		return net, node, err
	}
	net, err = a.network(cmd.Context(), args[0])
	if err == nil || !errors.Is(err, target.ErrNotRunning) {
		return net, "", err
	}
	// No network of that name: the word may be a node of the default one.
	if obvious, other := a.network(cmd.Context(), ""); other == nil {
		s, other := obvious.state(cmd.Context())
		if other == nil && s.Spec.Node(args[0]) != nil {
			return obvious, args[0], nil
		}
		obvious.Close()
	}
	c, other := a.dial(cmd.Context())
	if other != nil {
		return nil, "", err
	}
	defer c.Close()
	return nil, "", target.NoName(cmd.Context(), c, c.Slice, args[0])
}

func (a *app) inspect(ctx context.Context, net *network, s *api.Slice, node string) error {
	now := time.Now()
	if node != "" {
		a.Table(report.Nodes(s, a.Styles, now, node))
		a.Print("")
		a.Table(report.Interfaces(s, s.Spec.Node(node)))
		if why := s.Status.Nodes[node].NoIPv6; why != "" {
			a.Print("outside: IPv4 alone: no IPv6: %s", why)
		}
	} else {
		a.Print("%s", report.Headline(s, a.Terminal, now))
		a.Print("")
		a.Table(report.Nodes(s, a.Styles, now))
	}
	if len(s.Spec.Links) > 0 {
		a.Print("")
		a.Table(report.Links(s, a.Styles, node))
	}
	programs := a.showPrograms(ctx, net, s.Spec, node)
	for _, trouble := range report.Troubles(&s.Status, s.Spec.Nodes) {
		a.Say("%s", trouble)
	}
	if programs != nil { // the troubles may say why
		return programs
	}
	if s.Spec.Attribution != "" && node == "" {
		a.Print("\n%s", a.Paint(a.Styles.Faint, s.Spec.Attribution))
	}
	return nil
}

// inspectJSON writes the slice as the API has it, or one node: {"spec": ..., "status": ...}.
func (a *app) inspectJSON(s *api.Slice, node string) error {
	if node == "" {
		return a.Emit(s)
	}
	return a.Emit(struct {
		Spec   any `json:"spec"`
		Status any `json:"status"`
	}{s.Spec.Node(node), s.Status.Nodes[node]})
}

func (a *app) inspectFastPath(ctx context.Context, net *network) error {
	f, err := net.FastPath(ctx, net.name)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Emit(f)
	}
	a.Table(report.FastPath(f, a.Styles))
	a.Print("\nmemory of routes: %s of %s", ui.Bytes(f.Memory.Bytes.Used), ui.Bytes(f.Memory.Bytes.Bound))
	a.warn(report.UnreachableHosts(f.Unreachable))
	return nil
}

func (a *app) inspectRouter(ctx context.Context, net *network, node string) error {
	r, err := net.RouterFastPath(ctx, net.name, node)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Emit(r)
	}
	a.Table(report.Families(r, a.Styles))
	a.Print("\n%s, %s, %s", wording.Count(r.Routes, "route"), wording.Count(r.Neighbours, "neighbour"),
		wording.Count(int(r.Resyncs), "resynchronisation"))
	if t := report.Punts(r.Punts); len(t.Rows) > 0 {
		a.Print("")
		a.Table(t)
	}
	if r.Trouble != "" {
		a.Say("%s: %s", node, r.Trouble)
	}
	return nil
}
