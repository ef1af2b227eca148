package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/lab/testbed"
)

// defaultTestbedDir is the directory of a testbed's files, unless --dir or PERGOLA_DEV_DIR says otherwise.
const defaultTestbedDir = "/run/pergola-dev"

func newDev(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "Try and test Pergola itself",
		Example: `  sudo pergola dev cluster up -n 5 --servers 3`,
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newDevCluster(a), newDevMachine(), newDevInit())
	return cmd
}

func newDevCluster(a *app) *cobra.Command {
	d := &devCluster{app: a}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make a cluster of machines that are namespaces",
		Long: `Make a cluster whose machines are namespaces of this machine. Each has a network, processes,
/run and /var of its own, a wire to a common switch, and a Pergola process. Kill these processes
and cut these wires to see what happens to the networks. ` + "`down`" + ` removes everything; a server of
the real machine is not needed and not disturbed.

Environment: PERGOLA_DEV_DIR is the default of --dir.`,
		Example: `  sudo pergola dev cluster up -n 5 --servers 3
  sudo pergola dev cluster exec h1 -- pergola host ls
  sudo pergola dev cluster cut h5
  sudo pergola dev cluster down`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.PersistentFlags().StringVar(&d.dir, "dir", cmp.Or(os.Getenv("PERGOLA_DEV_DIR"), defaultTestbedDir),
		"`directory` of the machines' files")
	cmd.PersistentFlags().Lookup("dir").DefValue = defaultTestbedDir
	cmd.AddCommand(newDevUp(d), newDevDown(d), newDevLs(d), newDevExec(d), newDevShell(d),
		newDevVerb(d, "cut", "Disconnect the wire of a machine",
			"its interface and the switch's port lose their carrier", (*testbed.Machine).Cut),
		newDevVerb(d, "mend", "Connect the wire of a machine again", "undoes cut", (*testbed.Machine).Mend),
		newDevVerb(d, "kill", "Kill the Pergola process of a machine", "kill -9; the nodes on it keep running",
			(*testbed.Machine).Kill),
		newDevVerb(d, "restart", "Start the Pergola process of a machine again",
			"one that runs is stopped first", (*testbed.Machine).Restart))
	return cmd
}

// devCluster is what the verbs of dev cluster share.
type devCluster struct {
	*app
	dir string
}

// open finds the testbed.
func (d *devCluster) open() (*testbed.Testbed, error) {
	if err := d.root(); err != nil {
		return nil, err
	}
	b, err := testbed.Open(d.dir)
	if errors.Is(err, testbed.ErrNone) {
		return nil, ui.Advise(errors.New("no cluster of namespaces is there"),
			"`pergola dev cluster up` makes one")
	}
	return b, err
}

func (d *devCluster) root() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return ui.Advise(errors.New("the machines are namespaces, which only root may make and enter"),
		"run it with sudo")
}

// machine finds one by its name.
func (d *devCluster) machine(name string) (*testbed.Machine, error) {
	b, err := d.open()
	if err != nil {
		return nil, err
	}
	m, ok := b.Machine(name)
	if !ok {
		return nil, ui.Usage(ui.DidYouMean(name, "machine", b.Config.Machines), "there is no machine %q", name)
	}
	return m, nil
}

// newDevVerb is a verb that does one thing to some machines.
func newDevVerb(d *devCluster, verb, short, more string, do func(*testbed.Machine) error) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     verb + " HOST...",
		Short:   short,
		Long:    short + ": " + more + ".",
		Example: "  sudo pergola dev cluster " + verb + " h2\n  sudo pergola dev cluster " + verb + " --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return arguments(0, 0)(cmd, args)
			}
			return arguments(1, -1)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := d.open()
			if err != nil {
				return err
			}
			if all {
				args = b.Config.Machines
			}
			var machines []*testbed.Machine
			for _, name := range args { // all of them exist, or nothing is done
				m, err := d.machine(name)
				if err != nil {
					return err
				}
				machines = append(machines, m)
			}
			for _, m := range machines {
				err = errors.Join(err, do(m))
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all machines")
	return cmd
}

// The words by which a machine's first process is called: see testbed.Build and testbed.Init.
const (
	verbMachine = "machine"
	verbInit    = "init"
)

func newDevMachine() *cobra.Command {
	return &cobra.Command{
		Use:    verbMachine + " DIR NAME",
		Short:  "Become a machine of a testbed",
		Hidden: true,
		Args:   arguments(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return testbed.Build(args[0], args[1], self, "dev", verbInit)
		},
	}
}

func newDevInit() *cobra.Command {
	return &cobra.Command{
		Use:    verbInit,
		Short:  "Be the first process of a machine of a testbed",
		Hidden: true,
		Args:   arguments(0, 0),
		RunE:   func(cmd *cobra.Command, _ []string) error { return testbed.Init(cmd.Context()) },
	}
}
