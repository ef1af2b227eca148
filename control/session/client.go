package session

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/store/record"
)

// ClientConfig is what an agent's end of a session needs.
type ClientConfig struct {
	TLS     *tls.Config     // shows the agent's certificate, and accepts servers alone
	Servers func() []string // of the cluster: host:port
	Handler http.Handler    // answers what servers ask; set before Run
	// Proxy, for a request to a server, as an http.Transport has it; nil: http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Client keeps a session with one of the servers: it goes to another one when that ends. It is an http.RoundTripper;
// see RoundTrip.
type Client struct {
	cfg ClientConfig

	mu      sync.Mutex           // guards all below
	session *Session             // nil: there is none
	failed  error                // why the last attempt failed; nil: it did not, or there was none
	changed chan struct{}        // closed when one of both changes
	left    map[string]time.Time // by server: when its session was dropped
}

// NewClient makes a client, which has no session before Run.
func NewClient(cfg ClientConfig) *Client {
	return &Client{cfg: cfg, changed: make(chan struct{}), left: map[string]time.Time{}}
}

// ErrNone means that no server answers.
var ErrNone = record.ErrUnreachable

// noneError says so, and why each does not.
type noneError struct {
	servers []string
	whys    []error
}

func (e *noneError) Error() string {
	all := make([]string, len(e.servers))
	for i, server := range e.servers {
		all[i] = server + ": " + reason(e.whys[i])
	}
	if len(all) == 0 {
		all = []string{"none is known"}
	}
	return fmt.Sprintf("%v (%s)", ErrNone, strings.Join(all, "; "))
}

func (e *noneError) Unwrap() []error { return append([]error{ErrNone}, e.whys...) }

// reason is the error of a connection that failed, without what is said before it.
func reason(err error) string {
	failed := new(net.OpError)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &failed) && failed.Err != nil:
		err = failed.Err
	}
	if errno := new(os.SyscallError); errors.As(err, &errno) {
		err = errno.Err
	}
	return err.Error()
}

// RefusedError is a server's answer that there is to be no session.
type RefusedError struct {
	Status int    `json:"-"`
	Code   string `json:"code"` // of those that both ends agreed on; may be empty
	Why    string `json:"detail"`
}

func (e *RefusedError) Error() string { return e.Why }

func refusal(resp *http.Response) error {
	e := new(RefusedError)
	if err := json.NewDecoder(resp.Body).Decode(e); err != nil || e.Why == "" {
		e.Why = "it answers " + resp.Status
	}
	e.Status = resp.StatusCode
	return e
}

// Pauses between attempts to reach a server.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	askTimeout = 5 * time.Second
	// stagger is after how long the next server is asked, too.
	stagger = 300 * time.Millisecond
	// steady is how long a session lasts after which the next one may begin at once. Two machines with one
	// certificate end each other's.
	steady = 3 * time.Second
	// avoidance is for how long a server that was left is asked after all others.
	avoidance = 30 * time.Second
)

// Run keeps a session, until ctx ends.
func (c *Client) Run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		s, err := c.connect(ctx)
		c.set(s, err)
		if err == nil {
			began := time.Now()
			ended := context.AfterFunc(ctx, s.Close)
			s.Serve(ctx, c.cfg.Handler)
			ended()
			c.set(nil, nil)
			if time.Since(began) > steady {
				pause = firstPause
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // agents that lost one server do not come all at once
		}
		pause = min(2*pause, maxPause)
	}
	c.set(nil, ctx.Err())
}

func (c *Client) set(s *Session, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.failed = s, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// connect asks the servers for a session, in an order of chance, each a moment after the one before it. The first that
// agrees has it.
func (c *Client) connect(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	servers := slices.Clone(c.cfg.Servers())
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	slices.SortStableFunc(servers, func(a, b string) int { return c.avoided(a).Compare(c.avoided(b)) })
	type result struct {
		server string
		s      *Session
		err    error
	}
	results := make(chan result)
	var asked sync.WaitGroup
	failed := make(chan struct{}, len(servers)) // the next need not wait
	for i, server := range servers {
		asked.Go(func() {
			for range i {
				select {
				case <-failed:
				case <-time.After(stagger):
				case <-ctx.Done():
				}
			}
			s, err := ask(ctx, c.transport(), server)
			if err != nil {
				failed <- struct{}{}
			}
			results <- result{server, s, err}
		})
	}
	go func() {
		asked.Wait()
		close(results)
	}()
	none := new(noneError)
	var got *Session
	for r := range results {
		switch {
		case r.err != nil:
			none.servers, none.whys = append(none.servers, r.server), append(none.whys, r.err)
		case got == nil:
			got = r.s
			got.server = r.server
			cancel()
		default:
			r.s.Close()
		}
	}
	if got != nil {
		return got, nil
	}
	return nil, none
}

// transport is for one attempt: its connection becomes the session's. It goes by the proxy that the environment names
// (HTTPS_PROXY), if any.
func (c *Client) transport() *http.Transport {
	proxy := c.cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &http.Transport{
		Proxy: proxy,
		DialContext: (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: pingEvery, Interval: pingTimeout, Count: 3,
		}}).DialContext,
		TLSClientConfig: c.cfg.TLS, DisableKeepAlives: true, DisableCompression: true,
	}
}

// Session gives the present session. Where there is none, it waits for the outcome of the attempt under way, or gives
// the error of the last one.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	for {
		c.mu.Lock()
		s, failed, changed := c.session, c.failed, c.changed
		c.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case failed != nil:
			return nil, failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNone, ctx.Err())
		}
	}
}

// RoundTrip implements http.RoundTripper: the server of the present session answers. An error wraps ErrNone where the
// request did not come to a server.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	s, err := c.Session(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := s.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNone, err)
	}
	return resp, err
}

// Drop ends the present session, which does not answer: another server may.
func (c *Client) Drop() {
	c.mu.Lock()
	s := c.session
	if s != nil {
		c.left[s.server] = time.Now()
	}
	c.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// avoided is when a server was left a short time ago; the zero time where it was not.
func (c *Client) avoided(server string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.left[server]; time.Since(at) < avoidance {
		return at
	}
	return time.Time{}
}
