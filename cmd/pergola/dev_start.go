package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/client"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/lab/testbed"
	"github.com/pergola-net/pergola/model/wording"
)

// startCluster starts Pergola in all machines, as a person would do on real ones: a server on the first, and on the
// others what joins it by a token.
func (d *devCluster) startCluster(ctx context.Context, b *testbed.Testbed, o devUpOptions,
	progress *ui.Progress) error {
	machines := b.Machines()
	var flags []string
	if o.bestEffort != 0 {
		flags = append(flags, "--best-effort", strconv.FormatFloat(o.bestEffort, 'g', -1, 64))
	}
	var mu sync.Mutex
	started := 0
	start := func(m *testbed.Machine, args ...string) error {
		v4, _ := m.Addresses()
		args = slices.Concat(args, []string{"--listen", v4.Addr().String()}, flags)
		if err := d.start(ctx, m, args...); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		started++
		progress.Step("starting pergola", started, len(machines))
		return nil
	}
	if err := start(machines[0], "server"); err != nil {
		return err
	}
	c, err := client.Dial(ctx, machines[0].Socket())
	if err != nil {
		return err
	}
	defer c.Close()
	join := func(m *testbed.Machine, verb string, role pki.Role) error {
		t, err := c.CreateToken(ctx, api.TokenRequest{Role: role, Note: "dev cluster " + m.Name})
		if err != nil {
			return fmt.Errorf("make a token for %s: %w", m.Name, err)
		}
		return start(m, verb, "--join", t.Join, "--token", t.Text)
	}
	for _, m := range machines[1:o.servers] { // one after the other: the servers that are there decide on each
		if err := join(m, "server", pki.Server); err != nil {
			return err
		}
	}
	err = each(machines[o.servers:], func(m *testbed.Machine) error { return join(m, "agent", pki.Agent) })
	if err != nil {
		return err
	}
	progress.Step("waiting for all to be alive", len(machines), len(machines))
	return await(ctx, func() error { return allAlive(ctx, c, len(machines)) })
}

// allAlive fails unless as many hosts are alive.
func allAlive(ctx context.Context, c *client.Client, want int) error {
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return err
	}
	alive := 0
	for _, h := range hosts {
		if h.Alive {
			alive++
		}
	}
	if alive < want {
		return fmt.Errorf("%d of %s are alive", alive, wording.Count(want, "machine"))
	}
	return nil
}

// start starts Pergola in a machine and waits until it answers.
func (d *devCluster) start(ctx context.Context, m *testbed.Machine, args ...string) error {
	if err := m.Start(args...); err != nil {
		return err
	}
	err := await(ctx, func() error {
		c, err := client.Dial(ctx, m.Socket())
		if err == nil {
			return c.Close()
		}
		if s, failed := m.Status(); failed != nil {
			return &final{failed}
		} else if !s.Running {
			return &final{fmt.Errorf("it has ended (%s): %s", s.Ended, lastLine(m.Log()))}
		}
		return err
	})
	if err != nil {
		return ui.Advise(fmt.Errorf("start pergola in %s: %w", m.Name, err), "its log: %s", m.Log())
	}
	return nil
}

// final is an error after which nothing is tried again.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }

// await tries until it succeeds, fails for good, or ctx ends.
func await(ctx context.Context, try func() error) error {
	for {
		err := try()
		var last *final
		switch {
		case err == nil:
			return nil
		case errors.As(err, &last):
			return last.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// each does something to all machines at once.
func each(machines []*testbed.Machine, do func(*testbed.Machine) error) error {
	errs := make([]error, len(machines))
	var all sync.WaitGroup
	for i, m := range machines {
		all.Go(func() { errs[i] = do(m) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lastLine is that of a log.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	last := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		last = lines.Text()
	}
	return last
}
