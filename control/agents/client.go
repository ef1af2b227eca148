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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/lease"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
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

func (c *Client) tellServers(all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.servers, all) {
		c.servers = all
		close(c.heard)
		c.heard = make(chan struct{})
	}
}

// FollowServers calls each with where the cluster's servers are, whenever a server says something else, until ctx ends.
func (c *Client) FollowServers(ctx context.Context, each func(servers []string)) error {
	for {
		c.mu.Lock()
		servers, heard := c.servers, c.heard
		c.mu.Unlock()
		each(servers)
		select {
		case <-ctx.Done():
			return nil
		case <-heard:
		}
	}
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

// Register implements store.ForAgent.
func (c *Client) Register(ctx context.Context, h hosts.Host, ttl time.Duration) (*store.Lease, error) {
	return lease.Register(ctx, c.life, keeper{c}, h, ttl)
}

// keeper keeps the host's lease at a server.
type keeper struct{ *Client }

// Claim implements lease.Keeper.
func (k keeper) Claim(ctx context.Context, h hosts.Host, ttl time.Duration, again bool) (int64, error) {
	var got leaseID
	err := k.ask(ctx, http.MethodPost, "lease", claim{h, ttl, again}, &got)
	k.dropIfLate(ctx)
	return got.ID, err
}

// dropIfLate leaves a server that did not answer in time.
func (k keeper) dropIfLate(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		k.cfg.Session.Drop()
	}
}

// Renew implements lease.Keeper. A server that does not answer in time is left for another one.
func (k keeper) Renew(ctx context.Context, _ string, id int64) error {
	err := k.ask(ctx, http.MethodPut, "lease/"+strconv.FormatInt(id, 10), nil, nil)
	k.dropIfLate(ctx)
	return err
}

// End implements lease.Keeper.
func (k keeper) End(ctx context.Context, _ string, id int64) error {
	return k.ask(ctx, http.MethodDelete, "lease/"+strconv.FormatInt(id, 10), nil, nil)
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

// Slices implements store.ForAgent: those that may have a part on the host.
func (c *Client) Slices(ctx context.Context) ([]store.Record, error) {
	if err := c.fetching.lock(ctx); err != nil {
		return nil, err
	}
	var records []store.Record
	err := c.ask(ctx, http.MethodGet, "slices", nil, &records)
	if err == nil {
		for i := range records {
			records[i].Corrupt = isCorrupt(&records[i])
		}
		c.cache.putNames(records)
	}
	c.fetching.unlock()
	if err != nil {
		return orStale(ctx, err, c.cache.Slices)
	}
	return records, nil
}

// isCorrupt tells a record that a server could not read: of it, there is a name.
func isCorrupt(r *store.Record) bool { return r.Generation == 0 && !r.Deleting }

// lock is a mutex that is waited for as long as a context lasts.
type lock chan struct{}

func (l lock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) unlock() { <-l }

// fetch asks for the host's part of a slice, if it may have changed.
func (c *Client) fetch(ctx context.Context, name string, always bool) (*known, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(ctx))
	defer cancel()
	if err := c.fetching.lock(ctx); err != nil {
		return nil, unreachable(err)
	}
	defer c.fetching.unlock()
	have := c.cache.get(name)
	c.mu.Lock()
	if have != nil && have.ETag != "" && !always && !c.changed[name] {
		c.mu.Unlock()
		return have, nil
	}
	c.changed[name] = false
	c.mu.Unlock()
	next, err := c.fetchPart(ctx, name, have)
	switch {
	case errors.Is(err, store.ErrNotFound):
		c.cache.drop(name)
		c.mu.Lock()
		delete(c.changed, name)
		c.mu.Unlock()
	case err != nil:
		c.markChanged(name)
	}
	return next, err
}

func (c *Client) fetchPart(ctx context.Context, name string, have *known) (*known, error) {
	header := http.Header{}
	if have != nil && have.ETag != "" {
		header.Set("If-None-Match", have.ETag)
	}
	resp, err := c.send(ctx, http.MethodGet, slicePath(name, ""), nil, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		c.cache.keep(have)
		return have, nil
	}
	next := &known{ETag: resp.Header.Get("ETag")}
	if err := json.NewDecoder(resp.Body).Decode(&next.Part); err != nil {
		return nil, unreachable(err)
	}
	if next.Part.Record.Name != name { // files are named by it
		return nil, fmt.Errorf("asked for network %s, the server answers with %.80q", name,
			next.Part.Record.Name)
	}
	if err := next.join(); err != nil {
		return nil, err
	}
	c.cache.put(next)
	return next, nil
}

// slicePath is the path of a request about a slice.
func slicePath(name, rest string) string { return "slices/" + url.PathEscape(name) + rest }

func (c *Client) markChanged(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[name] = true
}

// part gives the host's part of a slice: as it was told last, if nothing was said of a change since.
func (c *Client) part(ctx context.Context, name string, always bool) (*known, error) {
	k, err := c.fetch(ctx, name, always)
	if err != nil {
		return orStale(ctx, err, func() (*known, error) { return c.cache.Part(name) })
	}
	return k, nil
}

// Slice implements store.ForAgent.
func (c *Client) Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error) {
	k, err := c.part(ctx, name, true)
	if err != nil {
		return nil, store.Record{}, err
	}
	return k.slice()
}

// Record gives a slice's record, or ErrNotFound where there is no such slice. It has the name alone if the slice has no
// part on the host.
func (c *Client) Record(ctx context.Context, name string) (store.Record, error) {
	_, r, err := c.Slice(ctx, name)
	if !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnreachable) {
		return r, err
	}
	var exists yes
	if askErr := c.ask(ctx, http.MethodGet, slicePath(name, "/exists"), nil, &exists); askErr != nil {
		return store.Record{}, askErr
	}
	if exists.Yes {
		return store.Record{Name: name}, nil
	}
	return store.Record{}, err
}

// Overrides implements store.ForAgent.
func (c *Client) Overrides(ctx context.Context, name string) (slice.Overrides, error) {
	k, err := c.part(ctx, name, false)
	if err != nil {
		return slice.Overrides{}, err
	}
	return k.Part.Overrides, nil
}

// Generations implements store.ForAgent.
func (c *Client) Generations(ctx context.Context, name string) (map[string]int64, error) {
	k, err := c.part(ctx, name, false)
	if err != nil {
		return nil, err
	}
	return k.Part.Generations, nil
}

// LinkStates implements store.ForAgent. Without servers nothing new is reserved by what other hosts said.
func (c *Client) LinkStates(ctx context.Context, name string) (map[string]slice.LinkState, error) {
	k, err := c.fetch(ctx, name, false)
	if err != nil {
		return orStale(ctx, err, func() (map[string]slice.LinkState, error) { return nil, nil })
	}
	return k.Part.LinkStates, nil
}

// PutStatus implements store.ForAgent.
func (c *Client) PutStatus(ctx context.Context, _ string, st slice.Status) error {
	c.cache.putReport(st)
	return c.ask(ctx, http.MethodPut, slicePath(st.Slice, "/status"), st, nil)
}

// Status is what this host itself reports of a slice. Nodes of other hosts count as lost.
func (c *Client) Status(_ context.Context, name string) (slice.Status, error) {
	return c.cache.Status(name), nil
}

// PutLinkState implements store.ForAgent.
func (c *Client) PutLinkState(ctx context.Context, _, name string, is slice.LinkState) error {
	return c.ask(ctx, http.MethodPut, slicePath(name, "/linkstate"), is, nil)
}

// SettledBy implements store.ForAgent.
func (c *Client) SettledBy(ctx context.Context, _, name string) (bool, error) {
	var is yes
	err := c.ask(ctx, http.MethodGet, slicePath(name, "/settled"), nil, &is)
	return is.Yes, err
}

// Release implements store.ForAgent.
func (c *Client) Release(ctx context.Context, _, name string) error {
	return c.ask(ctx, http.MethodDelete, slicePath(name, ""), nil, nil)
}

// SetLink asks for a change of a link, for a node of this host.
func (c *Client) SetLink(ctx context.Context, name, link string, patch api.LinkPatch) error {
	return c.ask(ctx, http.MethodPatch, slicePath(name, "/links/"+url.PathEscape(link)), patch, nil)
}

// Reserve asks for a reservation, for a node of this host.
func (c *Client) Reserve(ctx context.Context, name, node string, change api.ReservationChange) error {
	return c.ask(ctx, http.MethodPost, slicePath(name, "/reserve/"+url.PathEscape(node)), change, nil)
}

// Blob fetches an archive that a node of this host is made of. The caller closes the answer's body.
func (c *Client) Blob(ctx context.Context, sum string) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, "blobs/"+url.PathEscape(sum), nil, nil)
}

// Watch implements store.ForAgent. The channel begins with a Resync, once there is a session, and has another one after
// each time without one.
func (c *Client) Watch(ctx context.Context) (<-chan store.Change, error) {
	sub := &subscriber{ready: make(chan struct{}, 1), waiting: map[change]bool{}}
	out := make(chan store.Change)
	go func() {
		for ctx.Err() == nil {
			if resp, err := c.send(ctx, http.MethodGet, "changes", nil, nil); err == nil {
				c.read(resp, sub)
			}
			pause(ctx)
		}
	}()
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case <-sub.ready:
			}
			for _, next := range sub.take() {
				select {
				case <-ctx.Done():
					return
				case out <- store.Change{Slice: next.Slice, What: next.What}:
				}
			}
		}
	}()
	return out, nil
}

// read reads a stream of changes until it ends.
func (c *Client) read(resp *http.Response, to *subscriber) {
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		var next change
		if err := lines.Decode(&next); err != nil {
			return
		}
		if next.Servers != "" {
			c.tellServers(strings.Fields(next.Servers))
			next.Servers = ""
		}
		switch next.What {
		case "":
			continue
		case store.Resync:
			for _, name := range c.cache.names() {
				c.markChanged(name)
			}
		case store.HostsChanged:
		default:
			c.markChanged(next.Slice)
		}
		to.put(next)
	}
}

// known is what a server told of a slice.
type known struct {
	ETag string `json:"etag"` // of the answer
	Part part   `json:"part"`

	spec    *slice.Slice // joined of the part; nil where nothing is wanted, or it cannot be read
	corrupt error
}

// join puts the slice together.
func (k *known) join() error {
	k.Part.Record.Corrupt = isCorrupt(&k.Part.Record)
	if k.Part.Corrupt != "" {
		k.corrupt = &answerError{k.Part.Corrupt, store.ErrCorrupt}
		return nil
	}
	if len(k.Part.Outline) == 0 {
		return nil
	}
	spec, excerpt := new(slice.Slice), new(slice.Slice)
	err := errors.Join(record.Unpack(k.Part.Outline, spec), record.Unpack(k.Part.Excerpt, excerpt))
	if err != nil {
		return fmt.Errorf("decode what a server told of network %s: %w", k.Part.Record.Name, err)
	}
	spec.Join(excerpt)
	r := &k.Part.Record
	spec.Name, spec.ID, spec.Generation = r.Name, r.ID, r.Generation
	k.spec = spec
	return nil
}

func (k *known) slice() (*slice.Slice, store.Record, error) {
	switch {
	case k.corrupt != nil:
		return nil, k.Part.Record, k.corrupt
	case k.spec == nil:
		return k.Part.Record.NameOnly(), k.Part.Record, nil
	}
	return k.spec, k.Part.Record, nil
}
