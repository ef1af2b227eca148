package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/bench/path"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

func newBench(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure what this machine does",
		Example: `  sudo pergola bench path`,
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newBenchPath(a))
	return cmd
}

func newBenchPath(a *app) *cobra.Command {
	var o benchPathOptions
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Measure how fast frames cross a chain of routers",
		Long: `Measure how fast frames cross chains of virtual routers on the fast path, and compare with the
kernel alone: the same chain of network namespaces and veth pairs, without Pergola. Measured are
rates of 64-byte frames, TCP throughput and round trips.

No server is needed, and a server that runs is not disturbed. All that the measurement makes is
removed after it, also on Ctrl-C. Other load on the machine changes the figures: each is the
median of all rounds, and comparisons are made within each round. A window in which the
hypervisor took processor time away is measured again.`,
		Example: `  sudo pergola bench path
  sudo pergola bench path --rounds 3 --routers 1,2,4,8,16 --only udp,icmp-trip
  sudo pergola bench path --against off,mininet,ovs,relay --table --json > path.json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.config()
			if err != nil {
				return err
			}
			return a.benchPath(cmd, c)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.rounds, "rounds", 10, "measure each thing `N` times")
	f.IntSliceVar(&o.routers, "routers", []int{1, 4, 16}, "lengths of chains")
	f.StringSliceVar(&o.only, "only", nil, "measure only these of nic, udp, tcp, icmp-trip, udp-trip")
	f.StringSliceVar(&o.against, "against", nil,
		"compare also with these of off (Pergola without its fast path), mininet, ovs, relay (a program "+
			"that only forwards frames)")
	f.DurationVar(&o.limit, "limit", 0, "begin no further round after this time; 0: measure all")
	f.BoolVar(&o.table, "table", false, "also a router with 1,000,000 routes (half a minute, 1 GiB of memory)")
	return cmd
}

// benchPathOptions are the flags of bench path.
type benchPathOptions struct {
	rounds        int
	limit         time.Duration
	routers       []int
	only, against []string
	table         bool
}

func (o benchPathOptions) config() (path.Config, error) {
	c := path.Config{Rounds: o.rounds, Routers: o.routers, Table: o.table, Limit: o.limit}
	if o.rounds < 1 {
		return c, ui.Usage("", "--rounds must be at least 1")
	}
	for _, n := range o.routers {
		if n < 0 || n > path.MaxRouters {
			return c, ui.Usage("", "--routers: a chain of %d routers: it has between 0 and %d", n,
				path.MaxRouters)
		}
	}
	var err error
	if c.Measures, err = chosen("--only", o.only, path.Measures); err != nil {
		return c, err
	}
	if c.Networks, err = chosen("--against", o.against, []path.Network{path.Off, path.Mininet, path.OVS,
		path.Relay}); err != nil {
		return c, err
	}
	if os.Geteuid() != 0 {
		return c, ui.Advise(errors.New("bench path makes network namespaces, devices and eBPF "+
			"programs, which only root may"), "run it with sudo")
	}
	return c, nil
}

// chosen turns the words of a flag into what they name.
func chosen[T ~string](flag string, words []string, known []T) ([]T, error) {
	var all []T
	var names []string
	for _, k := range known {
		names = append(names, string(k))
	}
	for _, w := range words {
		found := false
		for _, k := range known {
			if string(k) == w {
				all, found = append(all, k), true
			}
		}
		if !found {
			return nil, ui.Usage("it can be "+strings.Join(names, ", "), "%s: there is no %q", flag, w)
		}
	}
	return all, nil
}

func (a *app) benchPath(cmd *cobra.Command, c path.Config) error {
	progress := a.Progress()
	c.Progress = progress.Step
	result, err := path.Run(cmd.Context(), c)
	progress.Close()
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Emit(result)
	}
	for i, t := range []path.Table{result.SeriesTable(), result.GoalTable()} {
		if i > 0 {
			a.Print("")
		}
		table := ui.Table{Columns: t.Columns}
		for _, row := range t.Rows {
			table.Row(row...)
		}
		a.Table(&table)
	}
	for _, d := range result.Caveats() {
		a.Print("%s", d)
	}
	return nil
}
