package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/lab/testbed"
)

func newDevDown(d *devCluster) *cobra.Command {
	return &cobra.Command{
		Use:     "down",
		Short:   "Remove the machines and all that runs in them",
		Example: "  sudo pergola dev cluster down",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.root(); err != nil {
				return err
			}
			unlock, err := testbed.Lock(d.dir)
			if err != nil {
				return err
			}
			defer unlock()
			err = testbed.Remove(cmd.Context(), d.dir)
			if errors.Is(err, testbed.ErrNone) {
				d.Say("no cluster of namespaces is there")
				return nil
			}
			return err
		},
	}
}

// devMachine is a machine as `dev cluster ls` shows it.
type devMachine struct {
	Name     string   `json:"name"`
	Role     string   `json:"role"` // server or agent; empty: neither was started
	Address  string   `json:"address"`
	Address6 string   `json:"address6"`
	Wire     string   `json:"wire"`    // up or cut
	Pergola  string   `json:"pergola"` // running, or how it ended
	Command  []string `json:"command"`
	PID      int      `json:"pid"` // of the machine's first process
	Socket   string   `json:"socket"`
	Log      string   `json:"log"`
}

func newDevLs(d *devCluster) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the machines",
		Long: `List the machines. SOCKET is the socket of the machine's Pergola, for use from outside:
PERGOLA_SOCKET=PATH pergola ls. Inside the machine, commands find it by themselves.`,
		Example: "  sudo pergola dev cluster ls",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			b, err := d.open()
			if err != nil {
				return err
			}
			all := []devMachine{}
			for _, m := range b.Machines() {
				all = append(all, describe(m))
			}
			if d.JSON {
				return d.Emit(all)
			}
			table := ui.Table{Columns: []string{"HOST", "ROLE", "ADDRESS", "WIRE", "PERGOLA", "SOCKET"}}
			for _, m := range all {
				table.Row(m.Name, m.Role, m.Address, m.Wire, m.Pergola, m.Socket)
			}
			d.Table(&table)
			return nil
		},
	}
}

// describe says what can be found out of a machine; of one that has ended that is little.
func describe(m *testbed.Machine) devMachine {
	v4, v6 := m.Addresses()
	is := devMachine{
		Name: m.Name, Address: v4.Addr().String(), Address6: v6.Addr().String(), Wire: "gone",
		Pergola: "machine is gone",
		Socket:  m.Socket(), Log: m.Log(),
	}
	if cut, err := m.IsCut(); err == nil {
		is.Wire = "up"
		if cut {
			is.Wire = "cut"
		}
	}
	var err error
	if is.PID, err = m.PID(); err != nil {
		return is
	}
	s, err := m.Status()
	if err != nil {
		return is
	}
	is.Command = s.Args
	if len(s.Args) > 0 {
		is.Role = s.Args[0]
	}
	switch {
	case s.Running:
		is.Pergola = "running"
	case s.Ended != "":
		is.Pergola = s.Ended
	default:
		is.Pergola = "not started"
	}
	return is
}

func newDevExec(d *devCluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec HOST -- COMMAND...",
		Short: "Run a command in a machine",
		Long: `Run a command in a machine, as root, in the current directory (unless that is below /run or
/var, of which each machine has its own). The exit status is that of the command; 125 if it
could not be started.`,
		Example: "  sudo pergola dev cluster exec h2 -- pergola ls\n" +
			"  sudo pergola dev cluster exec h2 -- ping -c 3 h3",
		Args: arguments(2, -1),
		RunE: func(_ *cobra.Command, args []string) error { return d.enter(args[0], args[1:]...) },
	}
	cmd.Flags().SetInterspersed(slices.Contains(d.args, "--")) // as `pergola exec` has it
	return cmd
}

func newDevShell(d *devCluster) *cobra.Command {
	return &cobra.Command{
		Use:     "shell HOST",
		Short:   "Open a shell in a machine",
		Example: "  sudo pergola dev cluster shell h2",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			return d.enter(args[0], "sh", "-c", bestShell)
		},
	}
}

// enter runs a command in a machine, in the place of this process: signals and the terminal are the command's.
func (d *devCluster) enter(name string, args ...string) error {
	m, err := d.machine(name)
	if err != nil {
		return ui.WithCode(err, ui.ExitNotRun)
	}
	command, err := m.Command(args...)
	if err != nil {
		return ui.WithCode(err, ui.ExitNotRun)
	}
	path, err := exec.LookPath(command[0])
	if err == nil {
		err = unix.Exec(path, command, os.Environ())
	}
	return ui.WithCode(fmt.Errorf("enter machine %s: %w", name, err), ui.ExitNotRun)
}
