package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/wording"
)

func newValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check topology files, without a server",
		Long: `Read topology files, with all files that they name, and print what is wrong with them: all
errors of a file at once, each with its position. Errors that only the server can find (a
missing kernel module, a name that is taken) are found by ` + "`pergola up --dry-run`" + `.

Exit status: 0 all are valid; 1 one is not.`,
		Example: "  pergola validate\n  pergola validate labs/*.yaml\n  pergola validate lab.yaml --json",
		Args:    arguments(0, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{""}
			}
			return a.validate(args)
		},
	}
}

func (a *app) validate(files []string) error {
	bad := 0
	verdicts := []source.Verdict{}
	for _, file := range files {
		v, err := source.Validate(file)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, v)
		if !v.Valid {
			bad++
		}
		if !a.JSON {
			a.verdict(v)
		}
	}
	if a.JSON {
		if err := a.Emit(verdicts); err != nil {
			return err
		}
	}
	switch {
	case bad == 0:
		return nil
	case a.JSON:
		return ui.Exit(ui.ExitFailed)
	}
	if bad == 1 && len(files) == 1 {
		return fmt.Errorf("%s has %s", verdicts[0].File, wording.Count(len(verdicts[0].Errors), "error"))
	}
	return fmt.Errorf("%d of %s have errors", bad, wording.Count(len(files), "file"))
}

func (a *app) verdict(v source.Verdict) {
	for _, d := range v.Errors {
		a.Print("%s", d.String())
	}
	a.warn(v.Warnings)
	if v.Valid {
		a.Print("%s: valid, %s and %s", v.File, wording.Count(v.Nodes, "node"), wording.Count(v.Links, "link"))
	}
}
