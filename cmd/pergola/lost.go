package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/model/wording"
)

// lostTimeout is how long a command that starts nodes anew, or takes them away, waits to hear what they lose.
const lostTimeout = 3 * time.Second

// confirmLoss says what nodes lose that was configured in them while they ran, and how it is kept. A person at a
// terminal is asked whether to go on; else, and where it cannot be found out in time, the command goes on. Without
// nodes, all of the network are meant.
func (a *app) confirmLoss(ctx context.Context, c *client.Client, network string, nodes ...string) error {
	return a.confirm(ctx, network, a.changed(ctx, c, network, nodes...))
}

// confirmUp is confirmLoss for the nodes that a topology changes or removes.
func (a *app) confirmUp(ctx context.Context, c *client.Client, p *ui.Progress, src *source.Source) (err error) {
	changes := a.changed(ctx, c, src.Name)
	if len(lost(changes)) == 0 {
		return nil
	}
	applied, err := c.Apply(ctx, src.Name, src.Topology, true)
	if err != nil {
		return nil //nolint:nilerr // the apply itself says what is wrong
	}
	nodes := losers(applied.Plan)
	changes = slices.DeleteFunc(changes, func(n api.NodeChanges) bool { return !slices.Contains(nodes, n.Node) })
	p.Aside(func() { err = a.confirm(ctx, src.Name, changes) })
	return err
}

// changed finds out what was changed in nodes, if the server says so in time.
func (a *app) changed(ctx context.Context, c *client.Client, network string, nodes ...string) []api.NodeChanges {
	limited, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	changes, err := c.Changes(limited, network, api.ChangesQuery{Nodes: nodes})
	if err != nil {
		a.Detail("what was changed in nodes of %s while they ran is not known: %v", network, err)
		return nil
	}
	return changes.Nodes
}

func (a *app) confirm(ctx context.Context, network string, changes []api.NodeChanges) error {
	lines := lost(changes)
	if len(lines) == 0 {
		return nil
	}
	a.Say("%s changed while it ran, and lost now: %s", a.PaintErr(a.Styles.Warn, "warning:"), ui.Some(lines))
	if !a.isAsked() {
		a.Say("         `pergola save %s`, before, keeps such changes", network)
		return nil
	}
	switch yes, err := a.ask(ctx, "`pergola save "+network+"` keeps it. Go on without? [y/N] "); {
	case err != nil:
		return err
	case !yes:
		return ui.Advise(errors.New("nothing was done"), "`pergola save %s` keeps what was changed", network)
	}
	return nil
}

// isAsked reports whether a person types and reads.
func (a *app) isAsked() bool { return a.Stdin() != nil && a.Stderr() != nil && !a.Quiet && !a.JSON }

// ask asks a question. A signal ends the wait for the answer.
func (a *app) ask(ctx context.Context, question string) (yes bool, err error) {
	fmt.Fprint(a.Err, question)
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(a.In).ReadString('\n')
		if err != nil { // a line that was not ended is no answer
			line = ""
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return false, ui.Interrupted("nothing was done")
	case word := <-answer:
		return word == "y" || word == "yes", nil
	}
}

// lost names what nodes lose if they start anew.
func lost(changes []api.NodeChanges) (words []string) {
	for _, n := range changes {
		var what []string
		if n.Routing {
			what = append(what, "running configuration")
		}
		switch len(n.Files) {
		case 0:
		case 1:
			what = append(what, n.Files[0].Path)
		default:
			what = append(what, wording.Count(len(n.Files), "file"))
		}
		if len(what) > 0 {
			words = append(words, n.Node+" ("+strings.Join(what, ", ")+")")
		}
	}
	return words
}

// losers are the nodes of a plan that start anew, go, or whose daemon gets another configuration.
func losers(p api.Plan) (nodes []string) {
	for _, c := range p.Nodes {
		if c.Op != api.Create {
			nodes = append(nodes, c.Name)
		}
	}
	return nodes
}
