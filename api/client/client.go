// Package client speaks to a Pergola server over its unix socket.
package client

import (
	"context"
	"errors"
	"io"

	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/events"
)

var errTODO = errors.New("not written yet")

// Client speaks to one server. It is safe for concurrent use.
//
// A request that the server refuses gives an *api.Problem (errors.As).
type Client struct {
	socket string
}

// Dial connects to the server that listens on a unix socket. It fails with ErrNoServer where none does, and with
// an error that says what to do where the socket may not be used by the caller.
func Dial(ctx context.Context, socket string) (*Client, error) { return nil, errTODO }

// ErrNoServer means that nobody listens on the socket.
var ErrNoServer = errors.New("no server is running")

// EnsureOptions say where a server is, and how to start it.
type EnsureOptions struct {
	Socket  string   // where it listens
	Command []string // that starts it, detached; typically {os.Executable(), "server", "--exit-when-idle", ...}
	LogFile string   // gets the standard output and error of a started server
}

// EnsureServer connects to the server, and starts one where none runs.
func EnsureServer(ctx context.Context, opt EnsureOptions) (*Client, error) { return nil, errTODO }

// Close releases idle connections.
func (c *Client) Close() error { return nil }

// Version says what answers.
func (c *Client) Version(ctx context.Context) (*api.Version, error) { return nil, errTODO }

// Slices lists the slices, sorted by name.
func (c *Client) Slices(ctx context.Context) ([]api.Summary, error) { return nil, errTODO }

// Slice gives one slice.
func (c *Client) Slice(ctx context.Context, name string) (*api.Slice, error) { return nil, errTODO }

// Apply asks for a topology (a *topology.Topology). It returns as soon as the wish is stored: see Progress. With
// dryRun nothing is stored.
func (c *Client) Apply(ctx context.Context, name string, topology any, dryRun bool) (*api.Applied, error) {
	return nil, errTODO
}

// Delete asks for the removal of a slice. It returns as soon as the wish is stored: see Progress.
func (c *Client) Delete(ctx context.Context, name string) error { return errTODO }

// Progress calls each with the state of the slice now and after every change, until each returns true, the slice
// has gone (the last call has Gone set) or ctx ends.
func (c *Client) Progress(ctx context.Context, name string, each func(api.Progress) (stop bool)) error {
	return errTODO
}

// Node starts, stops, pauses, resumes or restarts a node.
func (c *Client) Node(ctx context.Context, slice, node string, verb api.NodeVerb) error { return errTODO }

// SetLink changes how a link treats frames.
func (c *Client) SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error {
	return errTODO
}

// ResetLink gives a link the file's values again.
func (c *Client) ResetLink(ctx context.Context, slice, link string) error { return errTODO }

// LinkUp and LinkDown connect and cut a link.
func (c *Client) LinkUp(ctx context.Context, slice, link string) error { return errTODO }

// LinkDown cuts a link: its ends lose their carrier.
func (c *Client) LinkDown(ctx context.Context, slice, link string) error { return errTODO }

// Logs gives what a node's first process wrote. The caller closes the reader.
func (c *Client) Logs(ctx context.Context, slice, node string, opt api.LogOptions) (io.ReadCloser, error) {
	return nil, errTODO
}

// Capture gives the frames that pass an interface, as a pcap stream. The caller closes the reader.
func (c *Client) Capture(ctx context.Context, slice, node, iface string, opt api.CaptureOptions) (io.ReadCloser, error) {
	return nil, errTODO
}

// Exec describes a command to run in a node.
type Exec struct {
	Command []string
	Env     []string // NAME=value, beside the node's own
	Dir     string   // working directory; empty: the node's
	TTY     bool     // run in a pseudo terminal: Stderr is not used
	Size    api.Size // of the terminal at first
	Resize  <-chan api.Size

	Stdin          io.Reader // nil: empty
	Stdout, Stderr io.Writer
}

// Exec runs a command in a node and gives its exit status (128 + signal where a signal ended it).
func (c *Client) Exec(ctx context.Context, slice, node string, e Exec) (status int, err error) {
	return 0, errTODO
}

// Convergence says whether routing has settled.
func (c *Client) Convergence(ctx context.Context, slice string) (*api.Convergence, error) {
	return nil, errTODO
}

// Check tries the slice's checks. progress may be nil.
func (c *Client) Check(ctx context.Context, slice string, r api.CheckRequest, progress func(api.CheckProgress)) ([]api.CheckResult, error) {
	return nil, errTODO
}

// Events calls each with the recent events of a slice, or of all where slice is empty; with follow, also with
// those to come, until each returns an error or ctx ends.
func (c *Client) Events(ctx context.Context, slice string, follow bool, each func(events.Event) error) error {
	return errTODO
}

// HasBlob reports whether the server has a blob: a root file system archive, named by its SHA-256 in hex.
func (c *Client) HasBlob(ctx context.Context, sum string) (bool, error) { return false, errTODO }

// PutBlob sends a blob. size is -1 where it is not known.
func (c *Client) PutBlob(ctx context.Context, sum string, size int64, r io.Reader) error { return errTODO }
