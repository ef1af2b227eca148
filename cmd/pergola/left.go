package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/host/rootless"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/wording"
)

// changesNetworks marks a command that changes running networks. If they run without a server, because it was killed,
// the command starts one first.
func changesNetworks(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[changing] = "yes"
	return cmd
}

const changing = "changes networks"

// errNothingRuns means that there is no server, and nothing that one has left.
var errNothingRuns = errors.New("no network is running")

// dialWithout goes on where no server answered: networks that run without one get one, if the command is to change
// them, and are named, if it is not. The error is an errNothingRuns where nothing runs.
func (a *app) dialWithout(ctx context.Context, noServer error) (*client.Client, error) {
	if a.socket != a.usual.socket {
		return nil, a.noOtherServer(noServer)
	}
	if a.usual.own {
		return a.dialOwn(ctx, noServer)
	}
	names, err := sliver.Left(a.usual.state)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, ui.Advise(noServer, "`sudo pergola up FILE` starts a network and the server; "+
			"whether networks run on without one, only root can see: `sudo pergola ls`")
	case err != nil:
		return nil, errors.Join(noServer, err)
	case len(names) == 0:
		return nil, ui.Advise(nothingRuns{noServer}, startSome)
	}
	on := runOn(len(names)) + ": " + ui.Some(names)
	if !a.changes {
		return nil, ui.Advise(fmt.Errorf("%w, but %s", noServer, on),
			"`sudo systemctl start pergola` or `sudo pergola server` takes over what the last server "+
				"left;\n"+
				"commands that change it do so, too: `pergola down %s` removes it", names[0])
	}
	a.Say("no server is running, but %s; starting the server", on)
	return a.ensure(ctx)
}

// dialOwn is dialWithout for a user's own server. What it left is in namespaces, into which only a server looks.
func (a *app) dialOwn(ctx context.Context, noServer error) (*client.Client, error) {
	if !rootless.Held(a.usual.state) {
		return nil, ui.Advise(nothingRuns{noServer}, startSome)
	}
	if !a.changes {
		return nil, ui.Advise(fmt.Errorf("%w, but its networks may run on", noServer),
			"commands that change networks start it again, as do `pergola up` and `pergola server`")
	}
	a.Say("your server is not running, but its networks may be; starting the server")
	return a.ensure(ctx)
}

// noOtherServer is the error where a server with directories of its own does not answer: what it left, only it can
// find. One that ended by itself has removed its socket.
func (a *app) noOtherServer(noServer error) error {
	_, err := os.Lstat(a.socket)
	if errors.Is(err, fs.ErrNotExist) {
		return ui.Advise(nothingRuns{noServer}, startSome)
	}
	return ui.Advise(fmt.Errorf("%w: it was killed, and its networks may run on", noServer), startOther, a.socket)
}

const startSome = "`pergola up FILE` starts a network and, where none runs, the server"

// startOther is how to start a server with directories of its own. It has one verb, for the socket.
const startOther = "a server that listens there was started with directories of its own; start it again:\n" +
	"pergola server --listen none --socket %s --state-dir DIR --data-dir DIR --log-dir DIR"

// nothingRuns is the error of a client, and an errNothingRuns.
type nothingRuns struct{ error }

func (nothingRuns) Is(target error) bool { return target == errNothingRuns }
func (n nothingRuns) Unwrap() error      { return n.error }

func runOn(networks int) string {
	if networks == 1 {
		return "a network runs on without one"
	}
	return wording.Count(networks, "network") + " run on without one"
}
