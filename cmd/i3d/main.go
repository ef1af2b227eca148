// I3d is a server of I3, the Internet Indirection Infrastructure: a program without dependencies that runs in a sliver
// or on any machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "unknown"

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks the server to leave the ring in order; the second ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run serves until ctx ends, and gives the exit status.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	root := newRoot(stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "i3d:", err)
	var wrong usageError
	if errors.As(err, &wrong) {
		fmt.Fprintln(stderr, "see `i3d --help`")
		return exitUsage
	}
	return exitFailed
}

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
