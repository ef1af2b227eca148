package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/model/slice"
)

// CheckResult is the outcome of one statement about the network.
type CheckResult struct {
	Name     string          `json:"name"`
	Kind     slice.CheckKind `json:"kind"`
	From     string          `json:"from"`
	To       string          `json:"to,omitempty"` // a node's name or an address
	Address  netip.Addr      `json:"address,omitzero"`
	OK       bool            `json:"ok"`
	Message  string          `json:"message,omitempty"`  // why not; of one that is to fail: what failed as wanted
	RTT      time.Duration   `json:"rtt,omitempty"`      // of pings, ns in JSON
	Duration time.Duration   `json:"duration,omitempty"` // ns in JSON
}

// Checker tries statements about a running network.
type Checker struct {
	Slice *slice.Slice
	// Addresses are those of nodes to which Slice gives none, wherever they run; see the function Addresses.
	Addresses map[string][]netip.Addr
	// PID gives a process of a node; ok is false where the node does not run.
	PID func(node string) (pid int, ok bool)
	// From tells whose checks and pings are tried; nil: everybody's.
	From func(node string) bool
	// Exec runs a shell command in a node. It is needed for checks of kind exec alone.
	Exec func(ctx context.Context, node, command string) (status int, output []byte, err error)
	// Progress is told after each result; nil: nobody. It is not called concurrently.
	Progress func(done, total int)
	// Parallel bounds what is tried at once; 0: four for each processor.
	Parallel int
}

// defaultCheckTimeout is what slice.Check promises for a timeout of zero.
const defaultCheckTimeout = 5 * time.Second

// Run tries the checks and gives the results in their order. The error is ctx's; results that were not reached then
// say so.
func (c Checker) Run(ctx context.Context, checks []slice.Check) ([]CheckResult, error) {
	checks = slices.DeleteFunc(slices.Clone(checks), func(check slice.Check) bool { return !c.tries(check.From) })
	results := make([]CheckResult, len(checks))
	report := c.reporter(len(checks))
	var g errgroup.Group
	g.SetLimit(c.parallel())
	for i, check := range checks {
		g.Go(func() error {
			results[i] = c.one(ctx, check)
			report(1)
			return nil
		})
	}
	_ = g.Wait() // results carry the errors
	return results, ctx.Err()
}

func (c Checker) tries(node string) bool { return c.From == nil || c.From(node) }

func (c Checker) parallel() int { return cmp.Or(c.Parallel, 4*runtime.NumCPU()) }

// reporter counts what is done.
func (c Checker) reporter(total int) func(n int) {
	var mu sync.Mutex // guards done, and keeps calls of Progress apart
	done := 0
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if c.Progress != nil {
			c.Progress(done, total)
		}
	}
}

// one tries one check.
func (c Checker) one(ctx context.Context, check slice.Check) CheckResult {
	r := CheckResult{Name: check.Name, Kind: check.Kind, From: check.From, To: check.To}
	begin := time.Now()
	timeout := cmp.Or(check.Timeout, defaultCheckTimeout)
	if check.Fails && check.Kind == slice.CheckPing {
		timeout = cmp.Or(check.Timeout, 2*time.Second) // the good outcome takes all of it
	}
	err := c.try(ctx, check, timeout, &r)
	r.Duration = time.Since(begin)
	var broken *brokenError
	switch {
	case errors.As(err, &broken):
		r.Message = err.Error() // it could not be tried: neither true nor false
	case check.Fails && err == nil:
		r.Message = "holds, and was to fail"
	case check.Fails:
		r.OK, r.Message = true, "fails as wanted: "+err.Error()
	case err != nil:
		r.Message = err.Error()
	default:
		r.OK = true
	}
	return r
}

// brokenError means that a check could not be tried.
type brokenError struct{ cause error }

func (e *brokenError) Error() string { return "cannot be tried: " + e.cause.Error() }
func (e *brokenError) Unwrap() error { return e.cause }

// try returns nil if the statement holds.
func (c Checker) try(ctx context.Context, check slice.Check, timeout time.Duration, r *CheckResult) error {
	if err := ctx.Err(); err != nil {
		return &brokenError{err}
	}
	pid, ok := c.PID(check.From)
	if !ok {
		return &brokenError{fmt.Errorf("node %s does not run", check.From)}
	}
	if check.Kind == slice.CheckExec {
		return c.tryExec(ctx, check, timeout)
	}
	targets, err := c.targets(check.From, check.To)
	if err != nil {
		return &brokenError{err}
	}
	for _, target := range targets {
		r.Address = target
		source := c.source(check.From, target)
		switch check.Kind {
		case slice.CheckPing:
			err = c.tryPing(ctx, pid, target, source, timeout, r)
		case slice.CheckPath:
			err = c.tryPath(ctx, pid, target, source, timeout, check.Via)
		case slice.CheckExec:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c Checker) tryPing(
	ctx context.Context, pid int, target, source netip.Addr, timeout time.Duration, r *CheckResult,
) error {
	results, err := Ping(ctx, pid, []netip.Addr{target}, PingOptions{Timeout: timeout, Source: source})
	if err != nil {
		return &brokenError{err}
	}
	r.RTT = results[0].RTT
	if err := results[0].Err; err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return nil
}

// tryPath finds the nodes that packets pass and compares them with those that are to be passed, in order; others may
// lie between.
func (c Checker) tryPath(
	ctx context.Context, pid int, target, source netip.Addr, timeout time.Duration, via []string,
) error {
	hops, err := Path(ctx, pid, target, PathOptions{Timeout: timeout, Source: source})
	names := c.nodesOf(hops)
	if err != nil {
		return fmt.Errorf("passed %s: %w", words(names), err)
	}
	rest := via
	for _, name := range names {
		if len(rest) > 0 && name == rest[0] {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("to %s passed %s, not %s", target, words(names), rest[0])
	}
	return nil
}

func (c Checker) tryExec(ctx context.Context, check slice.Check, timeout time.Duration) error {
	if c.Exec == nil {
		return &brokenError{errors.New("nobody to run the command")}
	}
	var want *regexp.Regexp
	if check.Output != "" {
		var err error
		if want, err = regexp.Compile(check.Output); err != nil {
			return &brokenError{fmt.Errorf("read the wanted output: %w", err)}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, output, err := c.Exec(ctx, check.From, check.Command)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%q did not end within %v", check.Command, timeout)
	case err != nil:
		return &brokenError{err}
	case status != check.Status:
		return fmt.Errorf("%q ended with status %d, not %d%s", check.Command, status, check.Status,
			printed(output))
	case want != nil && !want.Match(bytes.TrimRight(output, "\n")): // so that $ is the end of the last line
		return fmt.Errorf("%q printed nothing that matches %q%s", check.Command, check.Output, printed(output))
	}
	return nil
}

// printed ends a message with an output, if there is any, cut down to what fits into a table.
func printed(output []byte) string {
	const most = 200
	s := strings.TrimSpace(string(output))
	switch {
	case s == "":
		return ""
	case len(s) > most:
		s = s[:most] + "..."
	}
	return ": " + s
}

func words(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}
