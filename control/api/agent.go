package api

import (
	"context"
	"errors"
	"io"

	"github.com/pergola-net/pergola/model/slice"
)

// Agent is what the API needs of a host: everything that touches a running node. All calls end when ctx does.
// A node that does not run is an error that wraps ErrNotRunning.
type Agent interface {
	// Supports says, as an error, what the machine lacks for a slice.
	Supports(context.Context, *slice.Slice) error
	// Retry forgets what failed of a slice: its user asks for it anew, and may have mended the cause. If anything had, what the host
	// reports of the slice is no longer settled when Retry returns.
	Retry(ctx context.Context, slice string)
	// Exec runs a command in a node and gives its exit status, 128 + signal where a signal ended it.
	Exec(ctx context.Context, slice, node string, r ExecRequest) (status int, err error)
	// Logs writes what a node's first process wrote.
	Logs(ctx context.Context, slice, node string, opt LogOptions, w io.Writer) error
	// Capture writes frames of an interface as pcap. The file header comes as soon as the capture has begun.
	Capture(ctx context.Context, slice, node, iface string, opt CaptureOptions, w io.Writer) error
	// Convergence says whether routing has settled.
	Convergence(ctx context.Context, slice string) (Convergence, error)
	// Check tries checks and calls progress, which may be nil, from one goroutine at a time.
	Check(ctx context.Context, slice string, r CheckRequest, progress func(CheckProgress)) ([]CheckResult, error)
	// FastPath says what the fast path does for the routers of a slice.
	FastPath(ctx context.Context, slice string) (FastPath, error)
	// Verify compares the fast path's mirror with the kernels of routers: of these nodes, or of all that run.
	Verify(ctx context.Context, slice string, nodes ...string) (Verification, error)
	// Traffic gives what went through the interfaces of nodes.
	Traffic(ctx context.Context, slice string) (SliceTraffic, error)
	// Underlay gives what went through all tunnels of this host.
	Underlay(ctx context.Context) (UnderlayTraffic, error)
}

// ErrNotRunning means that a node has no processes now.
var ErrNotRunning = errors.New("it does not run")

// ExecRequest is a command to run in a node.
type ExecRequest struct {
	Command []string
	Env     []string // NAME=value, beside the node's own
	Dir     string
	TTY     bool // run in a pseudo terminal; its output goes to Stdout
	Size    Size // of the terminal at first
	// Resize brings new sizes of the terminal; it is closed when there will be none.
	Resize         <-chan Size
	Stdin          io.Reader // ends when the client has no more, or Exec has returned: Exec does not wait for its end
	Stdout, Stderr io.Writer
}
