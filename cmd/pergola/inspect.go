package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

func newInspect(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "inspect [SLICE] [NODE]",
		Aliases: []string{"status"},
		Short:   "Show the nodes and links of a network, and what they do",
		Long: `Show the nodes of a network with their state and addresses, and its links with what happens to frames that leave
each end. A star marks what was changed by hand since ` + "`pergola up`" + `. With NODE, show its interfaces.`,
		Example:           "  pergola inspect\n  pergola inspect abilene denver\n  pergola inspect --json | jq .status.nodes",
		Args:              arguments(0, 2),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
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
			if a.JSON {
				return a.inspectJSON(s, node)
			}
			a.inspect(s, node)
			return nil
		},
	}
	return cmd
}

// inspected finds out what one or two words mean: SLICE, NODE, SLICE/NODE or SLICE NODE.
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
	if err == nil || ui.Code(err) == ui.ExitInterrupted {
		return net, "", err
	}
	// No network of that name: the word may be a node of the obvious one.
	obvious, other := a.network(cmd.Context(), "")
	if other != nil {
		return nil, "", err
	}
	if s, other := obvious.state(cmd.Context()); other == nil && s.Spec.Node(args[0]) != nil {
		return obvious, args[0], nil
	}
	obvious.Close()
	return nil, "", err
}

func (a *app) inspect(s *api.Slice, node string) {
	now := time.Now()
	if node != "" {
		a.Table(report.Nodes(s, a.Styles, now, node))
		a.Print("")
		a.Table(report.Interfaces(s, s.Spec.Node(node)))
	} else {
		a.Print("%s", report.Headline(s, a.Terminal, now))
		a.Print("")
		a.Table(report.Nodes(s, a.Styles, now))
	}
	if len(s.Spec.Links) > 0 {
		a.Print("")
		a.Table(report.Links(s, a.Styles, node))
	}
	for _, trouble := range report.Troubles(&s.Status, s.Spec.Nodes) {
		a.Say("%s", trouble)
	}
	if s.Spec.Attribution != "" && node == "" {
		a.Print("\n%s", a.Paint(a.Styles.Faint, s.Spec.Attribution))
	}
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
