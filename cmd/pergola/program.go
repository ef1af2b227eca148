package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/datapath/program"
)

func newProgram(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "program",
		Short: "Build, try and measure packet programs: a network's own fast path",
		Long: `A packet program is the code of a node that forwards frames of the network's own design,
on the fast path. It is written in C against one header, pergola/program.h, which says
all about it; ` + "`pergola program headers DIR`" + ` writes it for an editor. These commands need
no server and no network, but for counters, which asks a network that runs. A topology names
a program as ` + "`program: x.c`" + `, in a node of kind: program.`,
		Example: `  pergola program build router.c
  pergola program test router.o --frame frames.pcap
  pergola program profile router.o --frame frames.pcap
  pergola program counters --watch`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newProgramBuild(a), newProgramTest(a), newProgramProfile(a), newProgramHeaders(a),
		newProgramCounters(a))
	return cmd
}

func newProgramBuild(a *app) *cobra.Command {
	var out, filters string
	var user bool
	cmd := &cobra.Command{
		Use:   "build FILE.c [-- COMPILER-FLAG...]",
		Short: "Compile a packet program and check it",
		Long: `Compile a packet program to an object file, FILE.o, by clang of this machine, and check
it as a host does that is to run it. The checks that need a kernel are made where the
caller is root.

With --user the same source becomes an executable, FILE, by the command in $CC, or cc:
FILE INTERFACE... forwards between devices by packet sockets. It reads filters from the
file in $PERGOLA_FILTERS, which --filters writes as FILE.filters.

Exit status: 0 it was built, and may run; 1 it was not, or may not.`,
		Example: `  pergola program build router.c
  pergola program build router.c -o build/router.o -- -DPORTS=8 -I common
  pergola program build router.c --user --filters filters.txt`,
		Args: arguments(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 1 && len(args) > 1 {
				return ui.Usage("flags for clang stand behind --: pergola program build x.c -- -DN=8",
					"%q is one argument too many", args[1])
			}
			if filters != "" && !user {
				return ui.Usage("",
					"--filters is for --user: a host gets filters when the program runs")
			}
			if user {
				return a.buildUserProgram(cmd.Context(), args[0], out, filters, args[1:])
			}
			if out == "" {
				out = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + ".o"
			}
			return a.buildProgram(cmd.Context(), args[0], out, args[1:])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "write the object, or the executable, to `FILE`")
	f.BoolVar(&user, "user", false, "build an executable that does the same in user space")
	f.StringVar(&filters, "filters", "", "with --user: take filters from `FILE`, as `pergola program test` does")
	return cmd
}

func newProgramHeaders(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "headers DIR",
		Short:   "Write pergola/program.h and what belongs to it into a folder",
		Long:    "Write the headers that programs include below a folder, for an editor or a compiler: -I DIR.",
		Example: "  pergola program headers include",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := program.WriteHeaders(args[0]); err != nil {
				return ui.Advise(err, "name a folder that has no pergola/ in it")
			}
			a.Say("wrote %s", filepath.Join(args[0], "pergola"))
			return nil
		},
	}
}

func (a *app) buildProgram(ctx context.Context, source, out string, flags []string) error {
	if filepath.Ext(source) != ".c" {
		return ui.Usage("name the C file: pergola program build x.c", "%s is no C file", source)
	}
	file, err := program.Build(ctx, source, flags...)
	if err != nil {
		return a.explainProgram(err)
	}
	o, err := program.Read(source, file)
	if err != nil {
		return a.explainProgram(err)
	}
	b := report.BuiltProgram{File: out, Object: o, Instructions: o.Instructions()}
	if os.Geteuid() == 0 {
		p, err := program.Load(o, nil)
		if err != nil {
			return a.explainProgram(err)
		}
		b.Costs = p.Costs
		if err := p.Close(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(out, file, 0o644); err != nil {
		return err
	}
	if a.JSON {
		return a.Emit(b)
	}
	a.Print("%s", b)
	return nil
}

func (a *app) buildUserProgram(ctx context.Context, source, out, filters string, flags []string) error {
	if filepath.Ext(source) != ".c" {
		return ui.Usage("name the C file: pergola program build --user x.c", "%s is no C file", source)
	}
	if out == "" {
		out = strings.TrimSuffix(source, filepath.Ext(source))
	}
	if err := program.BuildUser(ctx, source, out, flags...); err != nil {
		return a.explainProgram(err)
	}
	if filters == "" {
		return nil
	}
	o, err := a.readProgram(ctx, source) // which names the fields of the key
	if err != nil {
		return err
	}
	all, err := (&programInput{filters: filters}).readFilters(o)
	if err != nil {
		return err
	}
	table, err := program.EncodeFilters(all)
	if err != nil {
		return err
	}
	return os.WriteFile(out+".filters", table, 0o644)
}

// readProgram reads an object, or compiles a C file.
func (a *app) readProgram(ctx context.Context, name string) (*program.Object, error) {
	var file []byte
	var err error
	if filepath.Ext(name) == ".c" {
		file, err = program.Build(ctx, name)
	} else {
		file, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, a.explainProgram(err)
	}
	o, err := program.Read(name, file)
	return o, a.explainProgram(err)
}

// explainProgram shows what the compiler or the kernel's verifier said, and adds what to do.
func (a *app) explainProgram(err error) error {
	var refused *program.RefusedError
	var compile *program.CompileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &compile):
		fmt.Fprintln(a.Err, compile.Output)
	case errors.As(err, &refused):
		for _, line := range refused.Log {
			a.Detail("%s", line)
		}
		if refused.Advice != "" {
			return ui.Advise(err, "%s", refused.Advice)
		}
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		return ui.Advise(err, "only root may put programs into the kernel: sudo pergola program ...")
	}
	return err
}
