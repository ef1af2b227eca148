package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/follow"
	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
)

func newDown(a *app) *cobra.Command {
	var all, purge, volumes bool
	var file string
	cmd := &cobra.Command{
		Use:     "down [NETWORK|FILE]",
		Aliases: []string{"destroy"},
		Short:   "Take a network down, and remove all of it",
		Long: `Take a network down: remove its nodes, links and addresses, and nothing else. Without an
argument, this is the network of the topology file in the current directory, or the only one
that runs.

The logs of its nodes stay for a week, in /var/log/pergola; of all networks that are gone,
256 MiB at most. Its volumes stay, too, unless --volumes is given. With --purge, logs, volumes, the
server's state and the images that it stores are removed, after the last network.`,
		Example:           "  pergola down\n  pergola down abilene\n  pergola down --all",
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && (len(args) > 0 || file != ""):
				return ui.Usage("", "--all takes every network down: leave out the name")
			case volumes && os.Geteuid() != 0 && !a.isOwn():
				// The server says so, too, but only when the network is down.
				return ui.Advise(errors.New("only root can remove volumes"),
					"use sudo; without --volumes, they stay")
			case purge && os.Geteuid() != 0 && !a.isOwn():
				return ui.Advise(errors.New("only root can remove the server's state"), "use sudo")
			case purge && a.socket != a.usual.socket:
				return ui.Usage("remove its directories by hand",
					"--purge is for the usual server: %s belongs to another", a.socket)
			}
			word := file
			if len(args) > 0 {
				word = args[0]
			}
			names, err := a.down(cmd.Context(), word, all, volumes)
			switch {
			case err == nil && purge:
				err = a.purge(cmd.Context())
			case err == nil && len(names) > 0:
				a.sayWhatStays(names)
			}
			if err == nil && a.JSON {
				return a.Emit(append([]string{}, names...))
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "take every network down")
	cmd.Flags().BoolVar(&volumes, "volumes", false, "remove the volumes of its nodes, too")
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the server's state too")
	cmd.Flags().StringVarP(&file, "topo", "t", "", "the topology `FILE` of the network")
	return cmd
}

// down takes networks down and gives their names. A server that was started on demand ends with its last network:
// that is waited for too, so that the machine is as it was.
func (a *app) down(ctx context.Context, word string, all, volumes bool) ([]string, error) {
	c, err := a.dial(ctx)
	if errors.Is(err, errNothingRuns) {
		a.Say("nothing to do: no server is running, so no network is")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	names, err := a.chosenNetworks(ctx, c, word, all)
	if err != nil {
		return nil, err
	}
	v, err := c.Version(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := a.confirmLoss(ctx, c, name); err != nil {
			return nil, err
		}
	}
	keep := c
	if volumes {
		if keep, err = a.secondClient(ctx); err != nil {
			return nil, err
		}
		defer keep.Close()
	}
	p := a.Progress()
	defer p.Close()
	for _, name := range names {
		if err := c.Delete(ctx, name); err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("take %s down: %w", name, err)
		}
	}
	for _, name := range names {
		if err := follow.Gone(ctx, c, p, name); err != nil && !isNotFound(err) && !a.endedIdle(ctx, v) {
			if ctx.Err() != nil {
				return nil, ui.Interrupted("the server goes on taking " + name +
					" down; `pergola ls` shows when it is gone")
			}
			return nil, err
		}
		p.Note("%s is down", name)
	}
	if volumes {
		if err := a.removeVolumes(ctx, keep.RemoveVolumes, names); err != nil {
			return nil, err
		}
		keep.Close()
	}
	a.awaitServer(ctx, c, p)
	return names, nil
}

// secondClient is connected while the networks go: a server ends when it has neither networks nor clients.
func (a *app) secondClient(ctx context.Context) (*client.Client, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Version(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// endedIdle reports whether a server ended because its last network was deleted: it may end before it reports that. A
// server that crashed leaves its socket.
func (a *app) endedIdle(ctx context.Context, v *api.Version) bool {
	const patience = 5 * time.Second
	if !v.ExitsWhenIdle || !follow.ServerEnd(ctx, v.PID, patience) {
		return false
	}
	_, err := os.Lstat(a.socket)
	return errors.Is(err, fs.ErrNotExist)
}

// awaitServer waits until a server that has nothing left to do has ended.
func (a *app) awaitServer(ctx context.Context, c *client.Client, p *ui.Progress) {
	const patience = 20 * time.Second
	v, err := c.Version(ctx)
	if err != nil || !v.ExitsWhenIdle {
		return
	}
	if left, err := c.Slices(ctx); err != nil || len(left) > 0 {
		return
	}
	c.Close() // an idle server has no clients
	p.Step("waiting for the server to end", 0, 0)
	if !follow.ServerEnd(ctx, v.PID, patience) {
		a.Detail("the server (pid %d) keeps running: another client uses it", v.PID)
	}
}

// sayWhatStays names the logs and the state that networks leave. Only the usual server has them where this looks.
func (a *app) sayWhatStays(names []string) {
	if a.socket != a.usual.socket {
		return
	}
	var logs []string
	for _, name := range names {
		if dir := filepath.Join(a.usual.log, name); isDir(dir) {
			logs = append(logs, dir)
		}
	}
	for _, name := range names {
		if dir := filepath.Join(a.usual.data, "volumes", name); isDir(dir) {
			a.Say("%s", a.PaintErr(a.Styles.Faint, "volumes stay in "+dir+"; `pergola prune` removes them"))
		}
	}
	if len(logs) == 0 {
		return
	}
	where := logs[0]
	if len(logs) > 1 {
		where = a.usual.log
	}
	a.Say("%s", a.PaintErr(a.Styles.Faint, "logs stay in "+where+" for a week; `pergola down --purge` "+
		"removes them, and the server's state in "+a.usual.data))
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// purge removes what survives the last network: the server's state and logs.
func (a *app) purge(ctx context.Context) error {
	if c, err := client.Dial(ctx, a.socket); err == nil {
		c.Close()
		return ui.Advise(errors.New("the server is still running, so its state stays"),
			"take all networks down (`pergola down --all`); a server that runs as a service is stopped "+
				"by `systemctl stop pergola`")
	}
	for _, dir := range []string{a.usual.state, a.usual.data, a.usual.log} {
		if a.isOwn() {
			openDirs(dir)
		}
		// A directory that an administrator mounted stays, empty.
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("remove the server's state: %w", err)
		}
		a.Detail("%s removed", dir)
	}
	a.Say("the server's state is gone")
	return nil
}

// openDirs lets this user remove what is in directories: those of images may be read-only. What it cannot do, the
// removal says.
func openDirs(top string) {
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory
		}
		return nil
	})
}

// chosenNetworks lists the networks to take down.
func (a *app) chosenNetworks(ctx context.Context, c *client.Client, word string, all bool) ([]string, error) {
	if all {
		slices, err := c.Slices(ctx)
		names := make([]string, len(slices))
		for i, s := range slices {
			names[i] = s.Name
		}
		return names, err
	}
	name, err := source.NameOf(word)
	if err != nil {
		return nil, err
	}
	// The user works on the file here: another network that happens to be the only one is not meant.
	if word == "" {
		name = source.Described(".")
	}
	name, err = target.Slice(ctx, c, name, "")
	return []string{name}, err
}
