// Pergola hosts virtual networks of unmodified routers on Linux. This is its one program: the command line, and by
// `pergola server` the server.
//
// Each file holds one verb: its flags, its help and the order of its steps. How the steps work is in internal/.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks commands to end in order; the second ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], ui.New(os.Stdin, os.Stdout, os.Stderr)))
}
