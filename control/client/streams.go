package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/api/eventstream"
	"github.com/pergola-net/pergola/control/events"
)

// Progress calls each with the state of the slice now and after every change, until each returns true, the slice
// has gone (the last call has Gone set) or ctx ends.
func (c *Client) Progress(ctx context.Context, name string, each func(api.Progress) (stop bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := false
	err := c.sse(ctx, http.MethodGet, path("slices", name, "progress"), nil, func(_ string, data []byte) error {
		var p api.Progress
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		if stopped = each(p) || p.Gone; stopped {
			return io.EOF
		}
		return nil
	})
	switch {
	case stopped:
		return nil
	case err == nil:
		return ErrEnded
	}
	return err
}

// Check runs the slice's checks. progress may be nil.
func (c *Client) Check(ctx context.Context, slice string, r api.CheckRequest,
	progress func(api.CheckProgress)) ([]api.CheckResult, error) {
	var outcome *api.CheckOutcome
	err := c.sse(ctx, http.MethodPost, path("slices", slice, "check"), r, func(event string, data []byte) error {
		switch event {
		case "progress":
			var p api.CheckProgress
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			if progress != nil {
				progress(p)
			}
		case "outcome":
			outcome = new(api.CheckOutcome)
			return json.Unmarshal(data, outcome)
		}
		return nil
	})
	if err == nil && outcome == nil {
		err = ErrEnded
	}
	if err != nil {
		return nil, err
	}
	return outcome.Results, nil
}

// Events calls each with the recent events of a slice, or of all where slice is empty; with follow, also with
// those to come, until each returns an error or ctx ends.
func (c *Client) Events(ctx context.Context, slice string, follow bool, each func(events.Event) error) error {
	q := url.Values{"slice": {slice}, "follow": {strconv.FormatBool(follow)}}
	err := c.sse(ctx, http.MethodGet, "/v1/events?"+q.Encode(), nil, func(_ string, data []byte) error {
		var e events.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		return each(e)
	})
	if err == nil && follow {
		return ErrEnded
	}
	return err
}

// sse reads server-sent events until each returns an error, which it returns, or the stream ends.
func (c *Client) sse(ctx context.Context, method, path string, in any,
	each func(event string, data []byte) error) error {
	resp, err := c.ask(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = eventstream.Read(resp.Body, each)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isCut(err):
		return ErrEnded
	}
	return err
}

// Logs gives what a node's first process wrote. The caller closes the reader.
func (c *Client) Logs(ctx context.Context, slice, node string, opt api.LogOptions) (io.ReadCloser, error) {
	q := url.Values{"tail": {strconv.Itoa(opt.Tail)}, "follow": {strconv.FormatBool(opt.Follow)}}
	return c.stream(ctx, path("slices", slice, "nodes", node, "logs")+"?"+q.Encode())
}

// Capture gives the frames that pass an interface, as a pcap stream. The caller closes the reader.
func (c *Client) Capture(ctx context.Context, slice, node, iface string, opt api.CaptureOptions) (io.ReadCloser,
	error) {
	q := url.Values{"filter": {opt.Filter}, "snaplen": {strconv.Itoa(opt.Snaplen)},
		"count": {strconv.Itoa(opt.Count)}}
	return c.stream(ctx, path("slices", slice, "nodes", node, "interfaces", iface, "capture")+"?"+q.Encode())
}

func (c *Client) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, path, nil) //nolint:bodyclose // the caller closes the stream
	if err != nil {
		return nil, err
	}
	return &stream{resp}, nil
}

// stream is a body whose trailer may say why it ended.
type stream struct{ resp *http.Response }

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.resp.Body.Read(p)
	if errors.Is(err, io.EOF) {
		if why := s.resp.Trailer.Get(api.ErrorTrailer); why != "" {
			return n, errors.New(why)
		}
	}
	if isCut(err) {
		return n, ErrEnded
	}
	return n, err
}

func (s *stream) Close() error { return s.resp.Body.Close() }

// HasBlob reports whether the server has a blob: a root file system archive, named by its SHA-256 in hex.
func (c *Client) HasBlob(ctx context.Context, sum string) (bool, error) {
	resp, err := c.open(ctx, http.MethodHead, path("blobs", sum), nil)
	var p *api.Problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, resp.Body.Close()
}

// GetBlob writes an archive that the server has. Only root may have it: it may hold what not all users may read.
func (c *Client) GetBlob(ctx context.Context, sum string, to io.Writer) error {
	r, err := c.ask(ctx, http.MethodGet, path("blobs", sum), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(to, r.Body)
	return err
}

// PutBlob sends a blob. size is -1 where it is not known.
func (c *Client) PutBlob(ctx context.Context, sum string, size int64, r io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+path("blobs", sum), io.NopCloser(r))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Expect", "100-continue") // a refusal comes before gigabytes are sent
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
