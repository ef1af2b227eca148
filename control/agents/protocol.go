// Package agents is what an agent and a server of its cluster say to each other, over a session (package session): what
// the agent's host is to hold, its lease, its reports. Both ends are here: Desk at the server, Client at the agent.
//
// Servers alone have the store. An agent is told of the slices that are placed on its host: their outlines, which all
// their hosts know, and what is there of the host's own (slice.Outline, slice.Excerpt). It changes its host's
// description, lease and reports, and what its own nodes ask for. Certificates say which host asks.
//
// protocol.go has what is sent. A request goes from client.go (client_lease.go, client_slices.go) to desk.go, and there
// to desk_host.go, desk_slices.go or desk_nodes.go. News goes from index.go by desk_changes.go to client_watch.go.
package agents

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/lease"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Prefix is where the paths of this protocol begin.
const Prefix = "/v1/agent/"

// staleHeader allows a server without a quorum to answer by what it has. Others refuse that: an agent that acts on what
// was so some time ago runs what runs elsewhere by now.
const staleHeader = "Pergola-Stale"

// part is what a host is told of a slice.
type part struct {
	Record store.Record `json:"record"`
	// Corrupt says why the slice cannot be read; empty: it can.
	Corrupt string `json:"corrupt,omitempty"`
	// Outline and Excerpt are a slice.Slice each, packed (record.Pack). Both are empty if nothing is wanted.
	Outline   []byte          `json:"outline,omitempty"`
	Excerpt   []byte          `json:"excerpt,omitempty"`
	Overrides slice.Overrides `json:"overrides"`
	// Generations are those of the hosts' reports, if nodes of this host were moved to it.
	Generations map[string]int64 `json:"generations,omitempty"`
	// LinkStates are told if the slice's label-switched paths depend on them.
	LinkStates map[string]slice.LinkState `json:"linkstates,omitempty"`
}

// peer is what a host is told of another one, and of itself.
type peer struct {
	hosts.Host
	Alive bool `json:"alive"`
}

// claim asks for a lease.
type claim struct {
	Host  hosts.Host    `json:"host"`
	TTL   time.Duration `json:"ttl"`
	Again bool          `json:"again,omitempty"`
}

type leaseID struct {
	ID int64 `json:"id,string"` // more than a number of JSON holds exactly
}

type yes struct {
	Yes bool `json:"yes"`
}

// change is a line of the stream of changes. One without What only says that the server is there.
type change struct {
	What  store.What `json:"what,omitempty"`
	Slice string     `json:"slice,omitempty"`
	// Servers are where the cluster's servers are: host:port, with spaces between. Empty: not said.
	Servers string `json:"servers,omitempty"`
}

// failure is the body of an answer that is an error.
type failure struct {
	Code   string `json:"code,omitempty"` // of those below; empty: none of them
	Detail string `json:"detail"`
}

// codes are the errors that an agent decides on.
var codes = map[string]error{
	"not-found": store.ErrNotFound, "deleting": store.ErrDeleting, "conflict": store.ErrConflict,
	"corrupt": store.ErrCorrupt, "no-host": store.ErrNoHost, "name-taken": store.ErrNameTaken,
	"replaced": store.ErrReplaced, "wanted": store.ErrWanted, "full": store.ErrFull,
	"no-quorum": store.ErrNoQuorum, "lease-ended": lease.ErrEnded, "denied": errDenied,
}

// errDenied means that a host asked for what is not its own.
var errDenied = errors.New("this is none of the host's business")

// status gives the HTTP status of an error.
func status(err error) int {
	switch {
	case errors.Is(err, errDenied):
		return http.StatusForbidden
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrNoHost), errors.Is(err, lease.ErrEnded):
		return http.StatusNotFound
	case errors.Is(err, store.ErrNoQuorum):
		return http.StatusServiceUnavailable
	}
	for _, known := range codes {
		if errors.Is(err, known) {
			return http.StatusConflict
		}
	}
	return http.StatusInternalServerError
}

func failureOf(err error) failure {
	f := failure{Detail: err.Error()}
	for code, known := range codes {
		if errors.Is(err, known) && (f.Code == "" || code == "replaced") { // which is an ErrNoHost, too
			f.Code = code
		}
	}
	return f
}

func writeError(w http.ResponseWriter, err error) {
	if p := new(api.Problem); errors.As(err, &p) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p) // the agent may have gone
		return
	}
	f := failureOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status(err))
	_ = json.NewEncoder(w).Encode(f) // the agent may have gone
}

// answerError is an error that a server answered.
type answerError struct {
	detail string
	is     error // nil: none that is known
}

func (e *answerError) Error() string { return e.detail }
func (e *answerError) Unwrap() error { return e.is }

// Is makes a host that was replaced one that is no more, too.
func (e *answerError) Is(target error) bool {
	return target == store.ErrNoHost && e.is == store.ErrReplaced
}

// readError reads a failure, or a problem of the API.
func readError(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil {
		return unreachable(err)
	}
	var f failure
	if err := json.Unmarshal(text, &f); err != nil || f.Detail == "" {
		f.Detail = "the server answers " + resp.Status
	}
	var p api.Problem
	if f.Code == "" && json.Unmarshal(text, &p) == nil && p.Status != 0 {
		return &p
	}
	return &answerError{f.Detail, codes[f.Code]}
}

// maxFailure bounds the body of an answer that is an error, in bytes.
const maxFailure = 1 << 20
