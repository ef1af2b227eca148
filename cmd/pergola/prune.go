package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

func newPrune(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the volumes of networks that are gone, and saved images that are unused",
		Long: `Remove the volumes of nodes (volumes: in topology files) whose networks were taken down, on all
machines of the cluster. Those of networks that run stay. ` + "`pergola down --volumes`" + ` removes
the volumes of a network with it.

Remove images that ` + "`pergola up`" + ` has saved in the caller's cache (~/.cache/pergola/images): those
that were not used for 14 days, and, of more than 10 GiB, those whose last use is longest ago.

Logs of networks that are gone are no part of this: the server removes them after 7 days, or
beyond 256 MiB.`,
		Example: "  pergola prune --dry-run\n  pergola prune",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.pruneImages(dryRun)
			if err != nil {
				return err
			}
			c, err := a.ensure(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			ask := c.RemoveVolumes
			if dryRun {
				ask = c.Volumes
			}
			all, err := ask(cmd.Context(), "")
			if err != nil {
				return err
			}
			return a.pruned(all, images, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list what would be removed, and what stays")
	return cmd
}

// pruned shows what was removed, or would be.
func (a *app) pruned(all *api.Volumes, images []source.SavedImage, dryRun bool) error {
	if a.JSON {
		err := a.Emit(struct {
			*api.Volumes
			Images []source.SavedImage `json:"images,omitempty"`
		}{all, images})
		if err != nil {
			return err
		}
		return a.missed(all)
	}
	t := &ui.Table{Columns: []string{"NETWORK", "NODE", "VOLUME", "SIZE", "HOST", "STATE"}}
	removed, bytes := 0, int64(0)
	for _, v := range all.Volumes {
		what := "used"
		if v.Unused {
			what = "unused"
			removed++
			bytes += v.Bytes
		}
		if v.Unused && !dryRun {
			what = "removed"
		}
		t.Row(v.Slice, v.Node, v.Name, ui.Bytes(v.Bytes), v.Host, what)
	}
	if len(all.Volumes) > 0 {
		a.Table(t)
	}
	verb := "removed"
	if dryRun {
		verb = "would be removed"
	}
	if removed == 0 {
		a.Say("there is no volume of a network that is gone")
	} else {
		a.Say("%s %s, %s", wording.Count(removed, "volume"), verb, ui.Bytes(bytes))
	}
	return a.missed(all)
}

// pruneImages removes saved images of the caller, and gives them; or all that there are. It is done before the server
// is asked: they are the caller's, who need not be root.
func (a *app) pruneImages(dryRun bool) ([]source.SavedImage, error) {
	images, err := source.SavedImages(time.Now())
	verb := "would be removed"
	if err == nil && !dryRun {
		images, err = source.RemoveUnused(images)
		verb = "removed"
	}
	if err != nil || a.JSON || len(images) == 0 {
		return images, err
	}
	t := &ui.Table{Columns: []string{"IMAGE", "SIZE", "LAST USE", "STATE"}}
	count, bytes := 0, int64(0)
	for _, i := range images {
		what := "used"
		if i.Unused {
			what = "unused"
			count++
			bytes += i.Bytes
		}
		if !dryRun {
			what = "removed"
		}
		t.Row(i.Path, ui.Bytes(i.Bytes), i.Used.Format(time.DateOnly), what)
	}
	a.Table(t)
	if count > 0 {
		a.Say("%s %s, %s", wording.Count(count, "saved image"), verb, ui.Bytes(bytes))
	}
	return images, nil
}

// missed is the error where hosts did not answer.
func (a *app) missed(all *api.Volumes) error {
	for _, h := range all.Unreachable {
		a.Say("%s host %s did not answer: %s", a.PaintErr(a.Styles.Warn, "warning:"), h.Host, h.Why)
	}
	if len(all.Unreachable) > 0 {
		return ui.Advise(errors.New("not all hosts have answered: their volumes stay"),
			"`pergola prune`, when they are back")
	}
	return nil
}

// removeVolumes removes the volumes of networks that were just taken down.
func (a *app) removeVolumes(ctx context.Context, remove func(context.Context, string) (*api.Volumes, error),
	networks []string) error {
	var missed []error
	for _, name := range networks {
		all, err := remove(ctx, name)
		if err != nil {
			return err
		}
		for _, v := range all.Volumes {
			a.Say("volume %s of %s/%s is removed: %s", v.Name, v.Slice, v.Node, ui.Bytes(v.Bytes))
		}
		missed = append(missed, a.missed(all))
	}
	return errors.Join(missed...)
}
