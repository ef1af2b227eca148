// I3 is the command for those who use I3, the Internet Indirection Infrastructure: it sends to identifiers, receives by
// them, and shows the ring of servers. Each file holds one verb or two.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/names"
)

// version is set by the linker.
var version = "unknown"

// Exit statuses.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks the command to end in order; the second ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams is where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what all verbs share.
type app struct {
	streams
	via   []string
	quiet bool
}

// run carries out one command line and gives its exit status.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		return exitInterrupted
	}
	fmt.Fprintln(s.err, "i3:", err)
	if errors.As(err, &usageError{}) {
		fmt.Fprintln(s.err, "see `i3 --help`")
		return exitUsage
	}
	return exitFailed
}

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "i3",
		Short: "Send to identifiers and receive by them",
		Long: `i3 sends packets to identifiers, and receives those of an identifier, by a ring of servers (i3d).
Receivers may move: senders need not know.

An ID is 64 hexadecimal digits, or any other text: a name, whose identifier is its SHA-256.

Exit status: 0 done; 1 failed; 2 the command line is wrong; 130 interrupted. recv and insert end by an interrupt with 0.

Environment: I3_VIA is the default of --via; several servers are separated by commas.`,
		Example: `  i3 recv camera --via n1          # on one machine
  echo hello | i3 send camera --via n2   # on another one`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q", args[0])}
			}
			return c.Help()
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("i3 {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	var via []string
	if text := os.Getenv("I3_VIA"); text != "" {
		via = strings.Split(text, ",")
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&a.via, "via", via, "`SERVER`[:PORT] by which packets go into the ring; may be repeated: "+
		"the next one is used if one does not answer")
	f.Lookup("via").DefValue = "[]"
	f.BoolVarP(&a.quiet, "quiet", "q", false, "write results and errors only")
	root.AddCommand(newSend(a), newRecv(a), newInsert(a), newRemove(a), newLookup(a), newRing(a), newID(a))
	for _, c := range root.Commands() {
		wanted := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if err := wanted(c, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	return root
}

// connect makes a client, and finds a server that answers.
func (a *app) connect(ctx context.Context, o client.Options) (*client.Client, error) {
	if len(a.via) == 0 {
		return nil, usageError{errors.New("no server is named: give --via, or set I3_VIA")}
	}
	var err error
	if o.Gateways, err = names.ResolveAll(ctx, a.via); err != nil {
		return nil, err
	}
	c, err := client.New(o)
	if err != nil {
		return nil, err
	}
	if err := c.Reach(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// note writes something that is no result.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// stackOf reads identifiers that are separated by commas.
func stackOf(text string) (stack []ident.ID, err error) {
	for word := range strings.SplitSeq(text, ",") {
		id, err := ident.Parse(word)
		if err != nil {
			return nil, usageError{err}
		}
		stack = append(stack, id)
	}
	return stack, nil
}

// insertTimeout is how long a command waits for a server to store a trigger.
const insertTimeout = 15 * time.Second

// secretKey gives the secret that a constrained identifier is made of.
func secretKey(text string) ident.Key { return ident.FromName("i3 secret " + text).Key() }
