package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// Session is the way to a server. A *session.Client is one.
type Session interface {
	http.RoundTripper
	// Drop ends the present session, as its server does not answer.
	Drop()
}

// ClientConfig is what a Client needs.
type ClientConfig struct {
	Host    string // of the agent
	Session Session
	// CacheDir has the offline cache: what servers told last. Reads with store.AllowStale return it while none of
	// them answers.
	CacheDir string
	Log      *slog.Logger
}

// Client is the store as the agent of one host sees it: only the part of its host is in it. It is safe for concurrent
// use.
type Client struct {
	cfg   ClientConfig
	cache *cache
	life  context.Context // until which leases are renewed

	fetching lock // held while something is fetched that is kept: answers are kept in order

	mu      sync.Mutex      // guards all below
	changed map[string]bool // by slice: it may have changed since its part was fetched
	dropped time.Time       // when a session was ended because its server had no quorum
	servers []string        // as a server said last
	heard   chan struct{}   // closed when servers change
}

var _ store.ForAgent = (*Client)(nil)

// NewClient makes a client, whose leases are renewed until life ends.
func NewClient(life context.Context, cfg ClientConfig) *Client {
	return &Client{cfg: cfg, life: life, cache: openCache(cfg.CacheDir, cfg.Host, cfg.Log),
		fetching: make(lock, 1), changed: map[string]bool{}, heard: make(chan struct{})}
}

// requestTimeout bounds a request that is no stream.
const requestTimeout = 10 * time.Second

// staleTimeout bounds one that has another answer, too: the offline cache's.
const staleTimeout = 2 * time.Second

func timeoutOf(ctx context.Context) time.Duration {
	if store.MayBeStale(ctx) {
		return staleTimeout
	}
	return requestTimeout
}

// ask asks a server. in is sent as JSON, unless it is nil; out gets the answer, unless it is nil.
func (c *Client) ask(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(ctx))
	defer cancel()
	resp, err := c.send(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return unreachable(err)
	}
	return nil
}

// send asks a server, and gives its answer unless that is an error. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://server"+Prefix+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if store.MayBeStale(ctx) {
		r.Header.Set(staleHeader, "1")
	}
	resp, err := c.cfg.Session.RoundTrip(r)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	err = readError(resp)
	if errors.Is(err, store.ErrNoQuorum) {
		c.leave()
	}
	return nil, err
}

func unreachable(err error) error {
	if errors.Is(err, store.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnreachable, err)
}

// unanswered explains why a request has no answer: it came to no server, or one refused a session.
func (c *Client) unanswered(ctx context.Context, err error) error {
	if refused := new(session.RefusedError); errors.As(err, &refused) && codes[refused.Code] != nil {
		return &answerError{refused.Why, codes[refused.Code]}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return unreachable(err)
}

// leavePause is the time between two sessions that are ended for want of a quorum.
const leavePause = 30 * time.Second

// leave ends the session with a server that has no quorum: it may be the only one. Where none has one, it is not left
// again soon, because what it has can be read.
func (c *Client) leave() {
	c.mu.Lock()
	due := time.Since(c.dropped) > leavePause
	if due {
		c.dropped = time.Now()
	}
	c.mu.Unlock()
	if due {
		c.cfg.Session.Drop()
	}
}

// PutHost implements store.ForAgent.
func (c *Client) PutHost(ctx context.Context, h hosts.Host) error {
	return c.ask(ctx, http.MethodPut, "host", h, nil)
}

// Hosts implements store.ForAgent. Of other hosts it is known where they are.
func (c *Client) Hosts(ctx context.Context) ([]store.HostState, error) {
	var peers []peer
	err := c.ask(ctx, http.MethodGet, "hosts", nil, &peers)
	if err == nil {
		c.cache.putHosts(peers)
	} else if peers, err = orStale(ctx, err, c.cache.Hosts); err != nil {
		return nil, err
	}
	all := make([]store.HostState, len(peers))
	for i, p := range peers {
		all[i] = store.HostState{Host: p.Host, Alive: p.Alive}
	}
	return all, nil
}

// orStale reads from the offline cache while no server answers, if the context allows it.
func orStale[T any](ctx context.Context, err error, cached func() (T, error)) (none T, _ error) {
	if !store.MayBeStale(ctx) || !errors.Is(err, store.ErrUnreachable) {
		return none, err
	}
	return cached()
}

// HostState gives one host, or ErrNoHost.
func (c *Client) HostState(ctx context.Context, name string) (store.HostState, error) {
	all, err := c.Hosts(ctx)
	if err != nil {
		return store.HostState{}, err
	}
	for _, h := range all {
		if h.Name == name {
			return h, nil
		}
	}
	return store.HostState{}, fmt.Errorf("%s: %w", name, store.ErrNoHost)
}
