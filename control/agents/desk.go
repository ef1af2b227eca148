package agents

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
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
