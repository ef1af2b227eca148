package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/pergola-net/pergola/control/api"
)

// base is a made-up address: the transport always connects to the socket.
const base = "http://pergola"

// path joins the parts of a resource's path; parts may hold any character.
func path(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return "/v1/" + strings.Join(escaped, "/")
}

func get[T any](ctx context.Context, c *Client, path string) (*T, error) {
	out := new(T)
	if err := c.do(ctx, http.MethodGet, path, nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// do sends in as JSON, unless it is nil, and decodes the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	r, err := c.ask(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(r.Body).Decode(out); isCut(err) {
		return ErrEnded
	} else if err != nil {
		return fmt.Errorf("decode the server's answer: %w", err)
	}
	return nil
}

// ask sends in as JSON, unless it is nil, and gives the answer, if it is not a problem. The caller closes its body.
func (c *Client) ask(ctx context.Context, method, path string, in any) (*http.Response, error) {
	if in == nil {
		return c.open(ctx, method, path, nil)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return c.open(ctx, method, path, bytes.NewReader(data))
}

// open sends a request and gives the answer, if it is not a problem. The caller closes its body.
func (c *Client) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.send(r)
}

func (c *Client) send(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return nil, c.noAnswer(err)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemOf(resp)
}

// problemOf reads the problem of a refusal.
func problemOf(resp *http.Response) *api.Problem {
	p := new(api.Problem)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if json.Unmarshal(text, p) != nil || p.Detail == "" {
		p.Detail = strings.TrimSpace(string(text))
		if p.Detail == "" {
			p.Detail = "the server answers " + resp.Status
		}
	}
	p.Status = resp.StatusCode
	return p
}
