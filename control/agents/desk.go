package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Decider decides what nodes ask for while they run. Errors are *api.Problem.
type Decider interface {
	SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error
	Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error
}

// Blobs gives archives.
type Blobs interface {
	// Serve answers a request with an archive, wherever in the cluster it is.
	Serve(w http.ResponseWriter, r *http.Request, sum string)
}

// DeskConfig is what a Desk needs.
type DeskConfig struct {
	Store   *store.Store
	Self    string // this server
	Decider Decider
	Blobs   Blobs
	// Servers are where the cluster's servers are, alive or not, as far as it is known: host:port; nil: of those
	// that are alive alone.
	Servers func() []string
	Log     *slog.Logger
}

// Desk answers what agents ask. It is safe for concurrent use.
type Desk struct {
	cfg     DeskConfig
	index   *index
	packing singleflight.Group // of outlines, by token
	// releasing is held while a host lets go of a slice: all hosts of one do so at the same time, and each writes
	// the same record.
	releasing sync.Mutex

	mu       sync.Mutex         // guards outlines
	outlines map[string]outline // by slice
}

// outline is that of one version of a slice.
type outline struct {
	token  string
	packed []byte
}

// NewDesk makes a Desk. Run has to be called for agents to hear of changes.
func NewDesk(cfg DeskConfig) *Desk {
	return &Desk{cfg: cfg, index: newIndex(cfg.Store, cfg.Servers, cfg.Log), outlines: map[string]outline{}}
}

// Run follows the store, until ctx ends.
func (d *Desk) Run(ctx context.Context) { d.index.follow(ctx) }

// maxReport bounds a report, in bytes.
const maxReport = 8 << 20

// How much one agent may ask at a time.
const (
	maxRequests = 256
	maxStreams  = 4 // of changes
)

// Handler answers what the agent of a host asks.
func (d *Desk) Handler(host string) http.Handler {
	h := &counter{Desk: d, host: host}
	mux := http.NewServeMux()
	for route, answer := range map[string]func(r *http.Request) (any, error){
		"POST /v1/agent/lease":                         h.claim,
		"PUT /v1/agent/lease/{id}":                     h.renew,
		"DELETE /v1/agent/lease/{id}":                  h.end,
		"PUT /v1/agent/host":                           h.putHost,
		"GET /v1/agent/hosts":                          h.hosts,
		"GET /v1/agent/slices":                         h.slices,
		"PUT /v1/agent/slices/{slice}/status":          h.putStatus,
		"PUT /v1/agent/slices/{slice}/linkstate":       h.putLinkState,
		"GET /v1/agent/slices/{slice}/settled":         h.settled,
		"GET /v1/agent/slices/{slice}/exists":          h.exists,
		"DELETE /v1/agent/slices/{slice}":              h.release,
		"PATCH /v1/agent/slices/{slice}/links/{link}":  h.setLink,
		"POST /v1/agent/slices/{slice}/reserve/{node}": h.reserve,
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxReport)
			v, err := answer(agreed(r))
			writeAnswer(w, v, err)
		})
	}
	mux.HandleFunc("GET /v1/agent/slices/{slice}", h.part)
	mux.HandleFunc("GET /v1/agent/changes", h.changes)
	mux.HandleFunc("GET /v1/agent/blobs/{sum}", h.blob)
	return bounded(maxRequests, mux)
}

// agreed makes a request be answered by what the cluster agrees on, unless the agent wants what this server has.
func agreed(r *http.Request) *http.Request {
	if r.Header.Get(staleHeader) != "" {
		return r
	}
	return r.WithContext(store.Linearizable(r.Context()))
}

func writeAnswer(w http.ResponseWriter, v any, err error) {
	switch {
	case err != nil:
		writeError(w, err)
	case v == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the agent may have gone
	}
}

// counter is where one host asks.
type counter struct {
	*Desk
	host    string
	streams atomic.Int32 // of changes
}

// bounded answers so many requests at a time, and refuses more.
func bounded(most int32, inner http.Handler) http.Handler {
	var now atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer now.Add(-1)
		if now.Add(1) > most {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func (c *counter) keeper() store.LeaseKeeper { return c.cfg.Store.Leases(c.cfg.Self) }

func (c *counter) claim(r *http.Request) (any, error) {
	var in claim
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	if err := c.own(in.Host.Name); err != nil {
		return nil, err
	}
	if in.TTL < minTTL || in.TTL > maxTTL {
		return nil, fmt.Errorf("a lease of %v: between %v and %v it may be", in.TTL, minTTL, maxTTL)
	}
	id, err := c.keeper().Claim(r.Context(), in.Host, in.TTL, in.Again)
	return leaseID{id}, err
}

// Bounds of a lease: for how long others wait before they start a lost host's nodes elsewhere.
const (
	minTTL = time.Second
	maxTTL = time.Minute
)

// own refuses what is another host's.
func (c *counter) own(host string) error {
	if host != c.host {
		return fmt.Errorf("host %s speaks for host %.80q: %w", c.host, host, errDenied)
	}
	return nil
}

func (c *counter) renew(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, err
	}
	return nil, c.keeper().Renew(r.Context(), c.host, id)
}

func (c *counter) end(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, err
	}
	return nil, c.keeper().End(r.Context(), c.host, id)
}

func (c *counter) putHost(r *http.Request) (any, error) {
	var h hosts.Host
	if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
		return nil, err
	}
	if err := c.own(h.Name); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutHost(r.Context(), h)
}

// hosts lists the hosts, as far as their tunnels' ends go. Of the caller's own it is everything.
func (c *counter) hosts(r *http.Request) (any, error) {
	all, err := c.cfg.Store.Hosts(r.Context())
	if err != nil {
		return nil, err
	}
	peers := make([]peer, len(all))
	for i, h := range all {
		peers[i] = peer{Host: reach(h.Host), Alive: h.Alive}
		if h.Name == c.host {
			peers[i].Host = h.Host
		}
	}
	return peers, nil
}

// reach is what others have to know of a host to send to it.
func reach(h hosts.Host) hosts.Host {
	return hosts.Host{Name: h.Name, Machine: h.Machine, Address: h.Address, Underlays: h.Underlays, Bound: h.Bound,
		Paths: h.Paths}
}

// slices lists what may have a part on the host.
func (c *counter) slices(r *http.Request) (any, error) {
	all, err := c.cfg.Store.Slices(r.Context())
	if err != nil {
		return nil, err
	}
	mine := make([]store.Record, 0, len(all))
	for _, rec := range all {
		has, err := c.has(r.Context(), rec)
		if err != nil {
			return nil, err
		}
		if has {
			mine = append(mine, rec)
		}
	}
	return mine, nil
}

// has reports whether the host may hold something of a slice. If the slice's record cannot be read, its hosts are those
// that were known before, and those that have reported of it: they are to go on with what they have.
func (c *counter) has(ctx context.Context, r store.Record) (bool, error) {
	switch {
	case slices.Contains(r.Hosts, c.host), r.Corrupt && c.index.had(r.Name, c.host):
		return true, nil
	case !r.Corrupt && !r.Deleting: // what is deleted may have been unreadable before
		return false, nil
	}
	reporters, err := c.cfg.Store.Reporters(ctx, r.Name)
	return slices.Contains(reporters, c.host), err
}

// exists tells of any slice whether there is one of the name, and nothing else.
func (c *counter) exists(r *http.Request) (any, error) {
	_, err := c.cfg.Store.Record(r.Context(), r.PathValue("slice"))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return yes{false}, nil
	case errors.Is(err, store.ErrCorrupt):
		return yes{true}, nil
	}
	return yes{true}, err
}

// mine gives a slice that has a part on the host; others do not exist for it.
func (c *counter) mine(ctx context.Context, name string) (*slice.Slice, store.Record, error) {
	s, r, err := c.cfg.Store.Slice(ctx, name)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, r, err
	}
	has, hasErr := c.has(ctx, r)
	switch {
	case hasErr != nil:
		return nil, r, hasErr
	case !has:
		return nil, store.Record{}, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return s, r, err
}

func (c *counter) part(w http.ResponseWriter, r *http.Request) {
	r = agreed(r)
	p, err := c.partOf(r.Context(), r.PathValue("slice"))
	if err != nil {
		writeError(w, err)
		return
	}
	text, err := json.Marshal(p)
	if err != nil {
		writeError(w, err)
		return
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// partOf gives all that the host is told of a slice.
func (c *counter) partOf(ctx context.Context, name string) (*part, error) {
	s, r, err := c.mine(ctx, name)
	p := &part{Record: r}
	switch {
	case errors.Is(err, store.ErrCorrupt):
		p.Corrupt = err.Error()
		return p, nil
	case err != nil:
		return nil, err
	case r.Deleting:
		return p, nil
	}
	excerpt := s.Excerpt(c.host)
	if p.Excerpt, err = record.Pack(excerpt); err != nil {
		return nil, err
	}
	if p.Outline, err = c.outline(s, r); err != nil {
		return nil, err
	}
	if p.Overrides, err = c.cfg.Store.Overrides(ctx, name); errors.Is(err, store.ErrCorrupt) {
		return &part{Record: p.Record, Corrupt: err.Error()}, nil
	} else if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(excerpt.Nodes, func(n slice.Node) bool { return len(n.Left) > 0 }) {
		if p.Generations, err = c.cfg.Store.Generations(ctx, name); err != nil {
			return nil, err
		}
	}
	if s.IsSignalled() {
		if p.LinkStates, err = c.cfg.Store.LinkStates(ctx, name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// outline gives a slice's outline, packed: once for all hosts, which ask at the same time.
func (d *Desk) outline(s *slice.Slice, r store.Record) ([]byte, error) {
	packed, err, _ := d.packing.Do(r.Token, func() (any, error) { return d.packOutline(s, r) })
	if err != nil {
		return nil, err
	}
	return packed.([]byte), nil
}

func (d *Desk) packOutline(s *slice.Slice, r store.Record) ([]byte, error) {
	d.mu.Lock()
	have := d.outlines[s.Name]
	d.mu.Unlock()
	if have.token == r.Token {
		return have.packed, nil
	}
	packed, err := record.Pack(s.Outline())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outlines[s.Name] = outline{r.Token, packed}
	for name := range d.outlines {
		if !d.index.has(name) && name != s.Name {
			delete(d.outlines, name)
		}
	}
	return packed, nil
}

func (c *counter) putStatus(r *http.Request) (any, error) {
	var st slice.Status
	if err := json.NewDecoder(r.Body).Decode(&st); err != nil {
		return nil, err
	}
	if st.Slice != r.PathValue("slice") {
		return nil, fmt.Errorf("a report of network %.80q for network %.80q: %w", st.Slice,
			r.PathValue("slice"), errDenied)
	}
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutStatus(r.Context(), c.host, st)
}

// isMine refuses a request for a slice that has no part on the host.
func (c *counter) isMine(r *http.Request) error {
	rec, err := c.cfg.Store.Record(r.Context(), r.PathValue("slice"))
	if err != nil && !rec.Corrupt {
		return err
	}
	has, err := c.has(r.Context(), rec)
	if err == nil && !has {
		err = fmt.Errorf("%s: %w", rec.Name, store.ErrNotFound)
	}
	return err
}

func (c *counter) putLinkState(r *http.Request) (any, error) {
	var is slice.LinkState
	if err := json.NewDecoder(r.Body).Decode(&is); err != nil {
		return nil, err
	}
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutLinkState(r.Context(), c.host, r.PathValue("slice"), is)
}

func (c *counter) settled(r *http.Request) (any, error) {
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	is, err := c.cfg.Store.SettledBy(r.Context(), c.host, r.PathValue("slice"))
	return yes{is}, err
}

func (c *counter) release(r *http.Request) (any, error) {
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	c.releasing.Lock()
	defer c.releasing.Unlock()
	return nil, c.cfg.Store.Release(r.Context(), c.host, r.PathValue("slice"))
}

// setLink is asked by a node of the host, for a link of its own.
func (c *counter) setLink(r *http.Request) (any, error) {
	var patch api.LinkPatch
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	s, _, err := c.mine(r.Context(), r.PathValue("slice"))
	if err != nil {
		return nil, err
	}
	link := s.Link(r.PathValue("link"))
	if link == nil || !slices.ContainsFunc(link.Ends, func(e slice.End) bool { return c.runs(s, e.Node) }) {
		return nil, fmt.Errorf("link %.80q has no end at a node of host %s: %w", r.PathValue("link"), c.host,
			errDenied)
	}
	return nil, c.cfg.Decider.SetLink(r.Context(), s.Name, link.Name, patch)
}

// runs reports whether a node is on the host.
func (c *counter) runs(s *slice.Slice, node string) bool {
	n := s.Node(node)
	return n != nil && n.Host == c.host
}

// reserve is asked by a node of the host, for itself.
func (c *counter) reserve(r *http.Request) (any, error) {
	var change api.ReservationChange
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		return nil, err
	}
	s, _, err := c.mine(r.Context(), r.PathValue("slice"))
	if err != nil {
		return nil, err
	}
	if node := r.PathValue("node"); !c.runs(s, node) {
		return nil, fmt.Errorf("node %.80q is not on host %s: %w", node, c.host, errDenied)
	}
	return nil, c.cfg.Decider.Reserve(r.Context(), s.Name, r.PathValue("node"), change)
}

// blob gives an archive that a node of the host is made of.
func (c *counter) blob(w http.ResponseWriter, r *http.Request) {
	sum := r.PathValue("sum")
	all, err := c.cfg.Store.Slices(r.Context())
	if err != nil {
		writeError(w, err)
		return
	}
	for _, rec := range all {
		if !slices.Contains(rec.Hosts, c.host) || !slices.Contains(rec.Blobs, sum) {
			continue
		}
		s, _, err := c.cfg.Store.Slice(r.Context(), rec.Name)
		if err == nil && slices.ContainsFunc(s.Nodes, func(n slice.Node) bool {
			return n.Host == c.host && n.Rootfs == slice.Rootfs{Kind: slice.RootfsTar, Ref: sum}
		}) {
			c.cfg.Blobs.Serve(w, r, sum)
			return
		}
	}
	writeError(w, fmt.Errorf("no node of host %s is made of archive %.12q: %w", c.host, sum, errDenied))
}

// beat is how often an idle stream of changes says that it is there.
const beat = 15 * time.Second

// changes streams what changes of the host's slices, and of other hosts. It begins with a Resync.
func (c *counter) changes(w http.ResponseWriter, r *http.Request) {
	defer c.streams.Add(-1)
	if c.streams.Add(1) > maxStreams {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	sub := c.index.subscribe(c.host)
	defer sub.close()
	w.Header().Set("Content-Type", "application/jsonl")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	next := []change{{What: store.Resync, Servers: c.index.serversNow()}}
	for {
		for _, line := range next {
			if err := out.Encode(line); err != nil {
				return
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-sub.ready:
			next = sub.take()
		case <-tick.C:
			next = []change{{}}
		}
	}
}
