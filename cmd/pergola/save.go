package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/save"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

// saveOptions are the flags of save.
type saveOptions struct {
	dir                    string
	diff, replace, partial bool
}

func newSave(a *app) *cobra.Command {
	var o saveOptions
	cmd := &cobra.Command{
		Use:   "save [NETWORK]",
		Short: "Write a network as it runs, with what was configured by hand",
		Long: `Write a network as it runs into a directory: a topology file, and the files that it names beside
it. ` + "`pergola up DIR/topology.yaml`" + ` brings the same network up.

All addresses are written out. Routers whose configuration was changed while they ran, by vtysh or
in bird.conf, get it as their own (config:); so do those that Pergola would configure otherwise
because of that. All others stay as Pergola configures them. Files of nodes that were changed are
saved, and new ones below /etc; of links, what ` + "`pergola link set`" + ` has set.

Not saved are files elsewhere, what nodes have in memory, filters of packet programs that were
changed by hand, and that nodes are stopped or links down. BIRD does not tell what it runs: its file
is saved.

The directory is made whole or not at all.`,
		Example: `  pergola save
  pergola save abilene -o before-the-change
  pergola save --diff
  pergola up abilene-saved/topology.yaml`,
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			net, err := a.network(cmd.Context(), first(args))
			if err != nil {
				return err
			}
			defer net.Close()
			return a.save(cmd.Context(), net, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.dir, "output", "o", "", "the `DIR` to write (default ./NETWORK-saved)")
	f.BoolVar(&o.diff, "diff", false, "show what was changed, and write nothing")
	f.BoolVar(&o.replace, "replace", false, "replace a directory that save has written before")
	f.BoolVar(&o.partial, "partial", false, "save also if it is not known of all nodes what was changed")
	return cmd
}

// saveResult is the JSON of save.
type saveResult struct {
	Slice     string   `json:"slice"`
	Directory string   `json:"directory,omitempty"` // empty where nothing was written
	Topology  string   `json:"topology,omitempty"`
	Changed   []string `json:"changed"`
	Beside    []string `json:"beside"`  // what was done by hand and is not saved
	Unknown   []string `json:"unknown"` // of what it is not known whether it was changed
	Missing   []string `json:"missing"` // archives that are to be put beside the topology
}

func (a *app) save(ctx context.Context, net *network, o saveOptions) error {
	if o.dir == "" {
		o.dir = net.name + "-saved"
	}
	p := a.Progress()
	defer p.Close()
	p.Step("asking nodes what was changed", 0, 0)
	state, err := net.state(ctx)
	if err != nil {
		return err
	}
	changes, err := net.Changes(ctx, net.name, api.ChangesQuery{Content: true})
	if err != nil {
		return err
	}
	saved, err := save.Compose(state, changes.Nodes)
	if err != nil {
		return err
	}
	out := saveResult{Slice: net.name, Changed: saved.Changed, Beside: saved.Beside, Unknown: save.Unknown(changes)}
	if !o.diff {
		if len(out.Unknown) > 0 && !o.partial {
			for _, line := range out.Unknown {
				a.Say("%s %s", a.PaintErr(a.Styles.Warn, "unknown:"), line)
			}
			return ui.Advise(errors.New("nothing is saved: it is not known of all nodes what was changed"),
				"--partial saves the others as they are, and these as they were applied")
		}
		p.Step("writing "+o.dir, 0, 0)
		if out.Missing, err = saved.Write(ctx, o.dir, o.replace, net); err != nil {
			return adviseSave(err)
		}
		out.Directory, out.Topology = o.dir, filepath.Join(o.dir, save.FileName)
	}
	p.Close()
	if a.JSON {
		return a.Emit(out)
	}
	a.tellSaved(out, changes)
	return nil
}

func adviseSave(err error) error {
	if errors.Is(err, save.ErrExists) {
		return ui.Advise(err, "name another directory by -o, or write --replace where an earlier save made it")
	}
	return err
}

func (a *app) tellSaved(out saveResult, changes *api.SliceChanges) {
	show := a.Say
	if out.Directory == "" {
		show = a.Print
	}
	for _, line := range out.Changed {
		show("changed: %s", line)
	}
	if out.Directory == "" || a.Verbose {
		for _, n := range changes.Nodes {
			for _, line := range n.Difference {
				show("%s %s", n.Node, line)
			}
		}
	}
	if len(out.Changed) == 0 {
		show("%s runs as it was applied", out.Slice)
	}
	for _, line := range out.Beside {
		a.Say("%s %s", a.PaintErr(a.Styles.Warn, "not saved:"), line)
	}
	for _, line := range out.Unknown {
		a.Say("%s %s", a.PaintErr(a.Styles.Warn, "unknown:"), line)
	}
	for _, line := range out.Missing {
		a.Say("%s put it there before `pergola up`: %s", a.PaintErr(a.Styles.Warn, "missing:"), line)
	}
	if out.Directory != "" {
		a.Say("%s written, with %s: `pergola up %[1]s` brings it up", out.Topology,
			wording.Count(len(out.Changed), "change"))
	}
}
