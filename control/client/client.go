// Package client speaks to a Pergola server over its unix socket.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/control/api"
)

// Client speaks to one server. It is safe for concurrent use.
//
// A request that the server refuses gives an *api.Problem (errors.As).
type Client struct {
	socket   string
	http     *http.Client
	answered bool // the server has: it was there
}

// ErrNoServer means that no process listens on the socket.
var ErrNoServer = errors.New("no server is running")

// ErrEnded means that a server that was there has ended, before it answered or before a stream was at its end.
var ErrEnded = errors.New("the server ended")

// isCut reports whether an answer ends where the connection was closed.
func isCut(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// dialTimeout bounds the connection to a socket whose server does not accept.
const dialTimeout = 10 * time.Second

// Dial connects to the server that listens on a unix socket. It fails with ErrNoServer where none does, and with
// an error that says what to do where the socket may not be used by the caller.
func Dial(ctx context.Context, socket string) (*Client, error) {
	c := &Client{socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	}}
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	if _, err := c.Version(ctx); err != nil {
		c.Close()
		return nil, err
	}
	c.answered = true
	return c, nil
}

// Close releases idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// noAnswer says why the server could not be asked.
func (c *Client) noAnswer(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED),
		// it ended before it answered
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		err = fmt.Errorf("%w (no process listens on %s)", ErrNoServer, c.socket)
		if c.answered {
			err = fmt.Errorf("%w: %w", ErrEnded, err)
		}
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("connect to %s: %w: use sudo, or become a member of the group pergola", c.socket,
			fs.ErrPermission)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // its address is made up
		err = wrapped.Err
	}
	return fmt.Errorf("ask the server at %s: %w", c.socket, err)
}

// Version describes the server.
func (c *Client) Version(ctx context.Context) (*api.Version, error) {
	return get[api.Version](ctx, c, "/v1/version")
}

// Slices lists the slices, sorted by name.
func (c *Client) Slices(ctx context.Context) ([]api.Summary, error) {
	all, err := get[[]api.Summary](ctx, c, "/v1/slices")
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// Slice gives one slice.
func (c *Client) Slice(ctx context.Context, name string) (*api.Slice, error) {
	return get[api.Slice](ctx, c, path("slices", name))
}

// Apply asks for a topology (a *topology.Topology). It returns as soon as the request is stored: see Progress. With
// dryRun nothing is stored. If a slice of that name is being deleted, Apply waits for the end of that.
func (c *Client) Apply(ctx context.Context, name string, topology any, dryRun bool) (*api.Applied, error) {
	target := path("slices", name) + "?dry_run=" + strconv.FormatBool(dryRun)
	for {
		var applied api.Applied
		err := c.do(ctx, http.MethodPut, target, topology, &applied)
		var p *api.Problem
		if !errors.As(err, &p) || p.Type != api.TypeDeleting {
			return &applied, err
		}
		if err := c.waitGone(ctx, name); err != nil {
			return nil, err
		}
	}
}

func (c *Client) waitGone(ctx context.Context, name string) error {
	err := c.Progress(ctx, name, func(p api.Progress) bool { return !p.Deleting })
	var p *api.Problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// Delete asks for the removal of a slice. It returns as soon as the request is stored: see Progress.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("slices", name), nil, nil)
}

// Node starts, stops, pauses, resumes or restarts a node.
func (c *Client) Node(ctx context.Context, slice, node string, verb api.NodeVerb) error {
	return c.do(ctx, http.MethodPost, path("slices", slice, "nodes", node, string(verb)), nil, nil)
}

// SetLink changes how a link treats frames.
func (c *Client) SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error {
	return c.do(ctx, http.MethodPatch, path("slices", slice, "links", link), patch, nil)
}

// ResetLink gives a link the file's values again, and connects it.
func (c *Client) ResetLink(ctx context.Context, slice, link string) error {
	return c.do(ctx, http.MethodDelete, path("slices", slice, "links", link), nil, nil)
}

// LinkUp connects a link.
func (c *Client) LinkUp(ctx context.Context, slice, link string) error {
	return c.do(ctx, http.MethodPost, path("slices", slice, "links", link, "up"), nil, nil)
}

// LinkDown cuts a link: its ends lose their carrier.
func (c *Client) LinkDown(ctx context.Context, slice, link string) error {
	return c.do(ctx, http.MethodPost, path("slices", slice, "links", link, "down"), nil, nil)
}

// Convergence says whether routing has settled.
func (c *Client) Convergence(ctx context.Context, slice string) (*api.Convergence, error) {
	return get[api.Convergence](ctx, c, path("slices", slice, "convergence"))
}
