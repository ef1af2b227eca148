package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// lspFlags are flags of the commands that say what an LSP is to be.
type lspFlags struct {
	network        string
	timeout        time.Duration
	to, path       []string
	match          []string
	bandwidth      string
	excess         string
	protect        string
	setup, holding int
}

func (f *lspFlags) add(a *app, cmd *cobra.Command) {
	a.sliceFlag(cmd, &f.network)
	set := cmd.Flags()
	set.StringSliceVar(&f.to, "to", nil, "prefixes whose packets go this way: 10.9.0.0/24")
	set.StringArrayVar(&f.match, "match", nil, "packets that go this way, in place of prefixes: "+
		"proto=udp,dport=5004; several times for those that match one of several rules")
	set.StringVar(&f.bandwidth, "bandwidth", "", "that each link of the path reserves: 50Mbit")
	set.StringVar(&f.excess, "excess", "", "what becomes of packets that exceed the bandwidth: demote (they go on "+
		"as best effort) or drop")
	set.StringVar(&f.protect, "protect", "", "what packets go round at once if it fails: link, or none")
	// 0 is no default: what is not given is not read. It only keeps the help from naming one.
	set.IntVar(&f.setup, "setup-priority", 0, "which LSPs this one may take bandwidth from: 0, the best, to 7")
	set.IntVar(&f.holding, "holding-priority", 0, "which LSPs may take bandwidth from this one: 0, the best, to 7")
	f.addTimeout(set)
}

func (f *lspFlags) addTimeout(set *pflag.FlagSet) {
	set.DurationVar(&f.timeout, "timeout", 20*time.Second, "how long to wait until it is up; 0: not at all")
}

// rules are those that were given.
func (f *lspFlags) rules() (all []topology.Match, err error) {
	for _, text := range f.match {
		m, err := topology.ParseMatch(text)
		if err != nil {
			return nil, ui.Usage("", "--match: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

// priorities are those that were given.
func (f *lspFlags) priorities(set *pflag.FlagSet) (setup, holding *int) {
	if set.Changed("setup-priority") {
		setup = &f.setup
	}
	if set.Changed("holding-priority") {
		holding = &f.holding
	}
	return setup, holding
}

func newLSPAdd(a *app) *cobra.Command {
	var f lspFlags
	var l topology.LSP
	var signalling, last, ttl string
	cmd := &cobra.Command{
		Use:   "add ROUTER [ROUTER...] ROUTER",
		Short: "Add an LSP to a network that runs",
		Long: `Add an LSP to a network that runs, by the names of its first router, of routers on the way, and
of its last router. With RSVP-TE, others may be between them: the way is the shortest one whose
links have the bandwidth. PE1:eth2 is a link that it has to take. A static LSP names all routers.

Without --to and --match, packets to the loopback addresses of the last router go this way. With
--match, those that the first router forwards, and that match, wherever they are for. Priorities are
7 where none are given; the holding priority is the set-up priority.

The LSP stays until ` + "`lsp rm`" + `, also when a newer version of the file is brought up.`,
		Example: `  pergola lsp add pe1 pe2 --bandwidth 50Mbit
  pergola lsp add pe1 p3 pe2 --bandwidth 50Mbit --to 10.9.0.0/24 --name gold
  pergola lsp add pe1:eth2 pe2 --bandwidth 50Mbit
  pergola lsp add pe1 pe2 --bandwidth 10Mbit --match proto=udp,dport=5004,dst=10.9.0.0/24
  pergola lsp add pe1 p1 p2 pe2                  # static`,
		Args:              arguments(2, -1),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Path, l.To, l.Bandwidth = args, f.to, topology.Rate(f.bandwidth)
			l.Signalling, l.Last = topology.Signalling(signalling), topology.LastLabel(last)
			l.TTL, l.Excess = slice.TTLModel(ttl), slice.Excess(f.excess)
			l.Protect = slice.Protection(f.protect)
			l.Setup, l.Holding = f.priorities(cmd.Flags())
			var err error
			if l.Match, err = f.rules(); err != nil {
				return err
			}
			if _, err := l.Bandwidth.Bits(); err != nil {
				return ui.Usage("", "--bandwidth: %w", err)
			}
			net, err := a.network(cmd.Context(), f.network)
			if err != nil {
				return err
			}
			defer net.Close()
			added, err := net.AddLSP(cmd.Context(), net.name, l)
			if err != nil {
				return fmt.Errorf("add an LSP: %w", err)
			}
			return a.lspDone(cmd.Context(), net, added.Name, f.timeout)
		},
	}
	f.add(a, cmd)
	cmd.Flags().StringVar(&l.Name, "name", "", "name (default: FIRST--LAST)")
	cmd.Flags().StringVar(&signalling, "signalling", "", "rsvp or static (default: rsvp where there is a "+
		"bandwidth, else static)")
	cmd.Flags().StringVar(&last, "last-label", "", "with which label packets come to the last router of a static "+
		"LSP: implicit-null, explicit-null or own (default: implicit-null)")
	cmd.Flags().StringVar(&ttl, "ttl", "", "uniform: each router counts as a hop; pipe: the path is one hop "+
		"(default: uniform)")
	return cmd
}

func newLSPSet(a *app) *cobra.Command {
	var f lspFlags
	cmd := &cobra.Command{
		Use:   "set LSP",
		Short: "Change the bandwidth, the priorities, the path or the packets of an LSP",
		Long: `Change an LSP while it carries packets. The routers set the new one up before they tear the old
one down; where that is refused, the old one stays. An LSP of the file is again as the file says after
the next ` + "`pergola up`" + `.`,
		Example: "  pergola lsp set gold --bandwidth 80Mbit\n  pergola lsp set gold --path pe1,p3,pe2\n" +
			"  pergola lsp set gold --bandwidth 0     # reserve nothing",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeLSPs,
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := f.patch(cmd.Flags())
			if err != nil {
				return err
			}
			net, err := a.network(cmd.Context(), f.network)
			if err != nil {
				return err
			}
			defer net.Close()
			if err := net.SetLSP(cmd.Context(), net.name, args[0], patch); err != nil {
				return fmt.Errorf("set LSP %s: %w", args[0], err)
			}
			return a.lspDone(cmd.Context(), net, args[0], f.timeout)
		},
	}
	f.add(a, cmd)
	cmd.Flags().StringSliceVar(&f.path, "path", nil, "routers on the way: pe1,p3,pe2")
	return cmd
}

// patch is the change that the flags ask for. None at all is an error.
func (f *lspFlags) patch(set *pflag.FlagSet) (p api.LSPPatch, err error) {
	p.Path, p.To = f.path, f.to
	if p.Match, err = f.rules(); err != nil {
		return p, err
	}
	p.Setup, p.Holding = f.priorities(set)
	if set.Changed("bandwidth") {
		rate, err := topology.Rate(f.bandwidth).Bits()
		if err != nil {
			return p, ui.Usage("", "--bandwidth: %w", err)
		}
		p.Bandwidth = &rate
	}
	if set.Changed("protect") {
		protect := slice.Protection(f.protect)
		p.Protect = &protect
	}
	if set.Changed("excess") {
		excess := slice.Excess(f.excess)
		p.Excess = &excess
	}
	if reflect.DeepEqual(p, api.LSPPatch{}) {
		return p, ui.Usage("name at least one of --bandwidth, --excess, --match, --path, --protect, --to, "+
			"--setup-priority, --holding-priority", "nothing to change")
	}
	return p, nil
}

func newLSPReroute(a *app) *cobra.Command {
	var f lspFlags
	cmd := &cobra.Command{
		Use:   "reroute LSP",
		Short: "Look for the way of an LSP again",
		Long: `Look for the way of an LSP by RSVP-TE again: a link may have come back, or a shorter way may have
bandwidth now. The new LSP is set up before the old one is torn down.`,
		Example:           "  pergola lsp reroute gold",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeLSPs,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := a.network(cmd.Context(), f.network)
			if err != nil {
				return err
			}
			defer net.Close()
			if err := net.RerouteLSP(cmd.Context(), net.name, args[0]); err != nil {
				return fmt.Errorf("reroute LSP %s: %w", args[0], err)
			}
			return a.lspDone(cmd.Context(), net, args[0], f.timeout)
		},
	}
	a.sliceFlag(cmd, &f.network)
	f.addTimeout(cmd.Flags())
	return cmd
}

func newLSPRm(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:               "rm LSP...",
		Aliases:           []string{"remove"},
		Short:             "Remove LSPs that were added by `lsp add`",
		Example:           "  pergola lsp rm gold",
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeLSPs,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := a.network(cmd.Context(), name)
			if err != nil {
				return err
			}
			defer net.Close()
			for _, lsp := range args {
				if err := net.RemoveLSP(cmd.Context(), net.name, lsp); err != nil {
					return fmt.Errorf("remove LSP %s: %w", lsp, err)
				}
				a.Say("%s: LSP %s is removed", net.name, lsp)
			}
			if a.JSON {
				return a.Emit(args)
			}
			return nil
		},
	}
	a.sliceFlag(cmd, &name)
	return cmd
}

// lspDone waits until an LSP is as it was asked to be, and says so, or why it is not.
func (a *app) lspDone(ctx context.Context, net *network, name string, timeout time.Duration) error {
	if timeout <= 0 {
		a.Say("%s: LSP %s is asked for", net.name, name)
		if !a.JSON {
			return nil
		}
		l, _, err := lspOf(ctx, net, name)
		if err != nil {
			return err
		}
		return a.Emit(l)
	}
	p := a.Progress()
	defer p.Close()
	show := func(why string) { p.Step("waiting for LSP "+name+": "+why, 0, 0) }
	l, done, err := a.awaitLSP(ctx, net, name, timeout, show)
	p.Close()
	switch {
	case ctx.Err() != nil:
		return ui.Interrupted("the routers go on with it")
	case err != nil:
		return err
	case !done:
		return fmt.Errorf("LSP %s is not as it was asked to be after %s: %s (the routers go on trying; "+
			"`pergola lsp inspect %[1]s` shows what it has)", name, timeout,
			cmp.Or(l.Why(), "its host has not read the change yet"))
	}
	a.Say("%s: LSP %s is up: %s", net.name, name, l.Way())
	if a.JSON {
		return a.Emit(l)
	}
	return nil
}

// awaitLSP looks at an LSP until it is as it was asked to be, or the time is over, and gives it as it was then, and
// whether it is as it was asked to be.
func (a *app) awaitLSP(ctx context.Context, net *network, name string, timeout time.Duration,
	waits func(why string)) (l *report.LSP, done bool, err error) {
	end, ticker := time.After(timeout), time.NewTicker(200*time.Millisecond)
	defer ticker.Stop()
	for {
		l, outdated, err := lspOf(ctx, net, name)
		switch {
		case err != nil:
			return nil, false, err
		case l.AsAsked() && !outdated:
			return l, true, nil
		}
		waits(cmp.Or(l.Why(), "the new one is being set up"))
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-end:
			return l, false, nil
		case <-ticker.C:
		}
	}
}

// lspOf gives an LSP as it is. outdated: of a host that has not read yet what it is to be.
func lspOf(ctx context.Context, net *network, name string) (l *report.LSP, outdated bool, err error) {
	is, err := net.LSPs(ctx, net.name, name)
	if err != nil {
		return nil, false, fmt.Errorf("ask for LSP %s of %s: %w", name, net.name, err)
	}
	all := report.LSPs(&slice.Slice{LSPs: is.Wanted}, is)
	if len(all) != 1 {
		return nil, false, fmt.Errorf("ask for LSP %s of %s: the server says nothing of it", name, net.name)
	}
	return &all[0], is.Outdated, nil
}
