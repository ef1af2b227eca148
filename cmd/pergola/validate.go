package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/wording"
)

func newValidate(a *app) *cobra.Command {
	var here bool
	var o source.Options
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check topology files",
		Long: `Read topology files, with all files that they name, and print what is wrong with them: all
errors of a file at once, each with its position. This needs no server.

With --here, what this machine, or the cluster, lacks for the networks is looked for, too:
routing daemons, images, sources of binds, commands, kernel modules, sysctls, room. This starts
a server if none runs; nothing is made.

Exit status: 0 all are valid; 1 one is not.`,
		Example: "  pergola validate\n  pergola validate labs/*.yaml\n  pergola validate lab.yaml --here\n" +
			"  pergola validate lab.clab.yml --kind all=frr",
		Args: arguments(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{""}
			}
			sources, err := a.validate(cmd.Context(), args, o)
			if err != nil || !here {
				return err
			}
			return a.validateHere(cmd.Context(), sources)
		},
	}
	cmd.Flags().BoolVar(&here, "here", false, "look for what this machine lacks, too")
	o.AddImportFlags(cmd.Flags())
	completeImportFlags(cmd)
	return cmd
}

// validateHere asks the server what is missing for networks that are valid.
func (a *app) validateHere(ctx context.Context, sources []*source.Source) error {
	var faults []error
	for _, src := range sources {
		p := a.Progress()
		net, applied, err := a.apply(ctx, p, src, upOptions{dryRun: true})
		p.Close()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		net.Close()
		a.warn(applied.Warnings)
		if !a.JSON {
			a.Print("%s: this machine has what it needs", src.Path)
		}
	}
	return errors.Join(faults...)
}

// validate gives what it has read, if all of it is valid.
func (a *app) validate(ctx context.Context, files []string, o source.Options) (sources []*source.Source, err error) {
	bad := 0
	verdicts := []source.Verdict{}
	for _, file := range files {
		v, err := source.Validate(ctx, file, o)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, v)
		sources = append(sources, v.Source)
		if !v.Valid {
			bad++
		}
		if !a.JSON {
			a.verdict(v)
		}
	}
	if a.JSON {
		if err := a.Emit(verdicts); err != nil {
			return nil, err
		}
	}
	switch {
	case bad == 0:
		return sources, nil
	case a.JSON:
		return nil, ui.Exit(ui.ExitFailed)
	}
	if bad == 1 && len(files) == 1 {
		return nil, fmt.Errorf("%s has %s", verdicts[0].File, wording.Count(len(verdicts[0].Errors), "error"))
	}
	return nil, fmt.Errorf("%d of %s have errors", bad, wording.Count(len(files), "file"))
}

func (a *app) verdict(v source.Verdict) {
	for _, d := range v.Errors {
		a.Print("%s", d.String())
	}
	a.warn(v.Warnings)
	a.leftOut(v.LeftOut)
	if v.Valid {
		a.Print("%s: valid, %s and %s", v.File, wording.Count(v.Nodes, "node"), wording.Count(v.Links, "link"))
	}
}
