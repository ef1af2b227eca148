package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/lab/testbed"
	"github.com/pergola-net/pergola/model/wording"
)

// devUpOptions are the flags of dev cluster up.
type devUpOptions struct {
	machines, servers, mtu int
	bestEffort             float64
	timeout                time.Duration
}

func newDevUp(d *devCluster) *cobra.Command {
	var o devUpOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the machines and their cluster",
		Long: `Make machines h1, h2, ... and start Pergola in each: servers in the first ones, as many as
--servers says, and agents in the others. The command returns when all have joined.

The machines' addresses are 198.18.0.1, 198.18.0.2, ... and fd00:198:18::1, ...; each machine
can resolve the names of the others.`,
		Example: "  sudo pergola dev cluster up\n  sudo pergola dev cluster up -n 5 --servers 3 --mtu 9000",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout,
				fmt.Errorf("not done within %v", o.timeout))
			defer cancel()
			return d.up(ctx, o)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.machines, "machines", "n", 3, "make `N` machines")
	f.IntVar(&o.servers, "servers", 1, "this many of them are servers: 1, 3 or 5")
	f.IntVar(&o.mtu, "mtu", testbed.DefaultMTU, "the wires carry IP packets of so many `BYTES`")
	f.Float64Var(&o.bestEffort, "best-effort", 0,
		"`share` of each core that frames of tunnels without a reservation may have, as of `pergola server`")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "give up after this time")
	return cmd
}

func (o devUpOptions) check() error {
	switch {
	case o.machines < 1 || o.machines > testbed.MaxMachines:
		return ui.Usage("", "-n: a cluster of %d machines: between 1 and %d can be made", o.machines,
			testbed.MaxMachines)
	case o.servers < 1 || o.servers > o.machines:
		return ui.Usage("", "--servers: %d of %d machines", o.servers, o.machines)
	case o.servers%2 == 0:
		advice := fmt.Sprintf("use --servers %d", o.servers-1)
		if o.servers < o.machines {
			advice += fmt.Sprintf(" or %d", o.servers+1)
		}
		return ui.Usage(advice, "--servers %d: %d of them would have to answer, so only "+
			"%d may fail, as of %d", o.servers, o.servers/2+1, o.servers/2-1, o.servers-1)
	case o.mtu < testbed.MinMTU || o.mtu > testbed.MaxMTU:
		return ui.Usage("", "--mtu: %d: a wire carries %d to %d", o.mtu, testbed.MinMTU, testbed.MaxMTU)
	}
	return nil
}

func (d *devCluster) up(ctx context.Context, o devUpOptions) error {
	if err := d.root(); err != nil {
		return err
	}
	unlock, err := testbed.Lock(d.dir)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := testbed.Open(d.dir); err == nil {
		return ui.Advise(errors.New("a cluster of namespaces is there already"),
			"`pergola dev cluster ls` shows it, `pergola dev cluster down` removes it")
	}
	progress := d.Progress()
	defer progress.Close()
	progress.Step("making machines", 0, o.machines)
	b, err := d.boot(ctx, o)
	if err != nil {
		// Nothing runs in it that a user could inspect.
		left := testbed.Remove(context.WithoutCancel(ctx), d.dir)
		if errors.Is(left, testbed.ErrNone) { // the directory is another's
			left = nil
		}
		return errors.Join(err, left)
	}
	if err := d.startCluster(ctx, b, o, progress); err != nil {
		const rest = "`pergola dev cluster down` removes what was made"
		if errors.Is(ctx.Err(), context.Canceled) {
			return ui.Interrupted(rest)
		}
		return ui.Advise(err, rest)
	}
	progress.Close()
	d.Say("%s; `pergola dev cluster exec h1 -- pergola host ls` shows them, "+
		"`pergola dev cluster down` removes them", wording.Count(o.machines, "machine"))
	return nil
}

// boot makes the testbed with all machines.
func (d *devCluster) boot(ctx context.Context, o devUpOptions) (*testbed.Testbed, error) {
	c := testbed.Config{MTU: o.mtu}
	for i := range o.machines {
		c.Machines = append(c.Machines, fmt.Sprintf("h%d", i+1))
	}
	b, err := testbed.Create(d.dir, c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find pergola: %w", err)
	}
	return b, each(b.Machines(), func(m *testbed.Machine) error { return m.Boot(ctx, self, "dev", verbMachine) })
}
