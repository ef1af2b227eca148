package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/host/rootless"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/wording"
)

// dial connects to the running server.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	c, err := client.Dial(ctx, a.socket)
	if err := a.trusted(); err != nil { // now that it is there: whoever has made it cannot make it another's
		if c != nil {
			c.Close()
		}
		return nil, err
	}
	if errors.Is(err, client.ErrNoServer) {
		return a.dialWithout(ctx, err)
	}
	return c, a.adviseConnect(err)
}

// ensure connects to the server and starts one where none runs.
func (a *app) ensure(ctx context.Context) (*client.Client, error) {
	if a.isOwn() {
		if err := os.MkdirAll(a.usual.state, 0o700); err != nil {
			return nil, fmt.Errorf("start the server: %w", err)
		}
	}
	if err := a.trusted(); err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, a.socket)
	if err == nil || !errors.Is(err, client.ErrNoServer) {
		return c, a.adviseConnect(err)
	}
	if a.socket != a.usual.socket {
		return nil, ui.Advise(err, startOther, a.socket)
	}
	if os.Geteuid() != 0 && !a.usual.own {
		return nil, ui.Advise(err, "only root can start the machine's: run this command with sudo,\n"+
			"or let an administrator start it (`systemctl start pergola`)")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	a.Detail("starting the server: %s server", self)
	c, err = client.EnsureServer(ctx, client.EnsureOptions{
		Socket:  a.socket,
		Command: []string{self, "server", "--exit-when-idle", "--listen", "none", "--socket", a.socket},
		LogFile: a.usual.serverLog(),
	})
	if err != nil {
		return nil, ui.Advise(err, "its log is %s", a.usual.serverLog())
	}
	if a.usual.own {
		a.Say("a server of yours is running, without root's rights; `pergola status` says what there is not")
	}
	return c, nil
}

// trusted refuses the place of a user's own server if it is another user's.
func (a *app) trusted() error {
	if !a.isOwn() {
		return nil
	}
	return rootless.Safe(a.usual.state)
}

// isOwn reports whether commands are about a user's own server, of which the user is root.
func (a *app) isOwn() bool { return a.usual.own && a.socket == a.usual.socket }

// network is a connection, with the slice that a command is about.
type network struct {
	*client.Client
	name string
}

// network connects to the server and finds the slice that name means; an empty name means the default one (see
// target.Slice).
func (a *app) network(ctx context.Context, name string) (*network, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	name, err = target.Slice(ctx, c, name, source.Described("."))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &network{c, name}, nil
}

// state gives all that is known of the slice.
func (n *network) state(ctx context.Context) (*api.Slice, error) { return n.Slice(ctx, n.name) }

// adviseConnect adds to a failed connection what to do about it.
func (a *app) adviseConnect(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EACCES):
		return ui.Advise(fmt.Errorf("connect to %s: permission denied", a.socket),
			"use sudo, or become a member of the group pergola: "+
				"`sudo usermod -aG pergola $USER`, then log in again")
	}
	return err
}

// ended adds to the error of a command whose server ended meanwhile what that means, and how to go on.
func (a *app) ended(err error) error {
	if !errors.Is(err, client.ErrEnded) {
		return err
	}
	do := "nodes run on without it; `pergola up`, as root, starts a server that goes on\nits log: " +
		a.usual.serverLog() + ", or `journalctl -u pergola` where systemd started it"
	if a.usual.own {
		do = "nodes run on without it; `pergola up` starts a server that goes on\nits log: " +
			a.usual.serverLog()
	}
	if a.socket != a.usual.socket {
		do = "nodes run on without it; `pergola up` goes on when a server is there again\n" +
			"its log is where it was started: its standard error, and etcd.log in its --log-dir\n" +
			fmt.Sprintf(startOther, a.socket)
	}
	return &ui.Error{Code: ui.Code(err), Err: err, Do: do}
}

// explain turns a refusal of the server into the text that a person reads: what, why, and each fault on its line.
func explain(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || len(p.Errors) == 0 {
		return err
	}
	var lines []string
	for _, e := range p.Errors {
		line := e.Message
		if e.Location != "" {
			line = e.Location + ": " + line
		}
		lines = append(lines, line)
	}
	var advice *ui.Error
	if errors.As(err, &advice) && advice.Do != "" {
		lines = append(lines, advice.Do)
	}
	return &ui.Error{Code: ui.Code(err), Err: err, Do: strings.Join(lines, "\n")}
}

// faults is an error for what is wrong with a topology file, once each fault was written with its place.
func (a *app) faults(err error) error {
	var found topology.Diagnostics
	if !errors.As(err, &found) {
		return err
	}
	file, errs := "the topology", 0
	for _, d := range found {
		if !d.Warning {
			errs++
		}
		if d.File != "" {
			file = d.File
		}
	}
	fmt.Fprintln(a.Err, found.Error())
	return &ui.Error{Code: ui.Code(err), Err: fmt.Errorf("%s has %s", file, wording.Count(errs, "error"))}
}

// isNotFound reports whether the server said that a thing does not exist.
func isNotFound(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Status == 404
}
