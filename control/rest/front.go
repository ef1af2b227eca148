package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// The API of an agent's machine. The machine has no store: a server answers, except what this machine itself knows
// best, and what it can say while no server answers.

// ownRoutes are answered on the machine that is asked.
var ownRoutes = []string{"GET /v1/version", "GET /metrics", "GET /openapi.json", "GET /openapi.yaml"}

// front hands to a server what is not for this machine.
func (s *server) front(own http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, route := range ownRoutes {
		mux.Handle(route, own)
	}
	for _, route := range nodeRoutes {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(store.AllowStale(r.Context())) // nothing is changed but the node itself
			if s.runsHere(r) {
				own.ServeHTTP(w, r)
				return
			}
			s.forwardToServer(own).ServeHTTP(w, r)
		})
	}
	mux.HandleFunc("GET /v1/cluster", s.ownStatus)
	mux.HandleFunc("PUT /v1/slices/{slice}", s.applyHere)
	mux.Handle("/", s.forwardToServer(own))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, member := r.Context().Value(memberKey{}).(pki.Member); member { // a server, for this part
			own.ServeHTTP(w, r)
			return
		}
		r.Header.Del(PartHeader)
		mux.ServeHTTP(w, r)
	})
}

// runsHere reports whether a request is for a node of this machine.
func (s *server) runsHere(r *http.Request) bool {
	_, n, err := s.Find.Node(r.Context(), r.PathValue("slice"), r.PathValue("node"))
	return err == nil && n.Host == s.Cluster.Self()
}

// forwardToServer has a server answer. While none does, this machine answers by what it was told last, where nothing is
// changed by that but its own nodes.
func (s *server) forwardToServer(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mayBeStale(r.Method, r.URL.Path) {
			s.awaitServer(r.Context())
			s.proxy(w, r, "server", s.Cluster.AnyServer(), false, noServer)
			return
		}
		here := func(w http.ResponseWriter, r *http.Request) {
			own.ServeHTTP(w, r.WithContext(store.AllowStale(r.Context())))
		}
		if !s.Cluster.Connected(r.Context()) {
			here(w, r)
			return
		}
		failed := func(w http.ResponseWriter, _ *http.Request, err error) {
			if r.Body != http.NoBody || !errors.Is(err, store.ErrUnreachable) {
				writeProblem(w, noServer(err))
				return
			}
			here(w, r)
		}
		s.proxyOr(w, r, "server", s.Cluster.AnyServer(), false, failed)
	})
}

// An agent whose server has ended is with another one after moments.
const (
	serverPatience = 3 * time.Second
	serverLook     = 100 * time.Millisecond
)

// awaitServer waits for moments until a server answers.
func (s *server) awaitServer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	for !s.Cluster.Connected(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(serverLook):
		}
	}
}

func noServer(err error) error {
	if errors.Is(err, store.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnreachable, err)
}

// mayBeStale reports whether a request changes nothing but a host's own nodes. Progress must be current: its reader
// waits for a change.
func mayBeStale(method, target string) bool {
	if target != "/v1/slices" && !strings.HasPrefix(target, "/v1/slices/") {
		return false
	}
	verb := path.Base(target)
	return method == http.MethodGet && verb != "progress" || method == http.MethodPost &&
		(verb == "check" || verb == "verify")
}

// ownStatus is what a server says of the cluster, and this machine of itself.
func (s *server) ownStatus(w http.ResponseWriter, r *http.Request) {
	var st api.ClusterStatus
	if err := s.askServer(r.Context(), r, nil, &st); err != nil {
		writeProblem(w, err)
		return
	}
	st.AnsweredBy, st.Self, st.Server, st.Lacks = s.describe(), s.Cluster.Self(), false, s.Agent.Lacks()
	st.Authority = s.Cluster.Authority().Certificate.NotAfter
	writeJSON(w, http.StatusOK, st)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may have gone
}

// askServer has a server carry out a request of a user of this machine. An answer that is an error is an *api.Problem.
func (s *server) askServer(ctx context.Context, r *http.Request, content []byte, out any) error {
	asked := r.Clone(ctx)
	asked.RequestURI = ""
	asked.URL.Scheme, asked.URL.Host, asked.Host = "https", "server", ""
	asked.Header.Del(PartHeader)
	asked.Header.Set(CallerHeader, writeCaller(caller(r.Context())))
	asked.Body, asked.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	asked.TransferEncoding = nil
	resp, err := s.Cluster.AnyServer().RoundTrip(asked)
	if err != nil {
		return noServer(err)
	}
	defer resp.Body.Close()
	return ReadAnswer(resp, out)
}

// applyHere has a server decide on a topology. Before, this machine is asked what it lacks, if all nodes will be on it;
// and if its root asks, what the nodes that will be here hold of the machine is given to them. Only the machine itself
// can do that: servers may be in the wrong hands.
func (s *server) applyHere(w http.ResponseWriter, r *http.Request) {
	s.awaitServer(r.Context())
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTopology))
	if err != nil {
		writeProblem(w, err)
		return
	}
	applied, err := s.applyBy(r, content)
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeJSON(w, http.StatusOK, applied)
}

func (s *server) applyBy(r *http.Request, content []byte) (applied api.Applied, err error) {
	ctx := r.Context()
	dryRun := r.URL.Query().Get("dry_run") == "true"
	send := func() error { return s.askServer(ctx, r, content, &applied) }
	next := resolved(content, r.PathValue("slice"))
	if next == nil {
		err = send() // which says what is wrong
		return applied, err
	}
	planned, doubts, err := s.planned(r, content, next)
	switch {
	case err != nil:
		return applied, err
	case dryRun:
		planned.Warnings = append(planned.Warnings, doubts...)
		return planned, nil
	}
	if who := caller(ctx); s.Holds != nil && who.Root && who.Local {
		err = s.Holds.Give(next.Name, holdsAt(next, s.Cluster.Self()), func() error {
			return whyNotStored(send())
		})
	} else {
		err = send()
	}
	applied.Warnings = append(applied.Warnings, doubts...)
	return applied, err
}

// resolved gives the slice that a topology says; nil where that is wrong, or cannot be said here.
func resolved(content []byte, name string) *slice.Slice {
	t := new(topology.Topology)
	if err := json.Unmarshal(content, t); err != nil {
		return nil
	}
	if t.Name == "" {
		t.Name = name
	}
	next, found := topology.Resolve(t, nil)
	if found.Err() != nil || next.Name != name {
		return nil
	}
	return next
}

// planned asks a server what it would do, puts the nodes of the slice where it would, and asks this machine what it
// lacks if that is here.
func (s *server) planned(r *http.Request, content []byte, next *slice.Slice) (would api.Applied, doubts []string,
	err error) {
	asked := r.Clone(r.Context())
	q := asked.URL.Query()
	q.Set("dry_run", "true")
	asked.URL.RawQuery = q.Encode()
	if err := s.askServer(r.Context(), asked, content, &would); err != nil {
		return would, nil, err
	}
	here := true
	for i := range next.Nodes {
		n := &next.Nodes[i]
		n.Host = would.Placement[n.Name]
		here = here && (n.Kind == slice.Switch || n.Host == s.Cluster.Self())
	}
	if here {
		doubts, err = controller.Supports(r.Context(), s.Agent, next)
	}
	return would, doubts, err
}

// holdsAt lists what a slice's nodes hold of a host. A node that the topology puts elsewhere holds nothing of it,
// whatever a server says.
func holdsAt(of *slice.Slice, host string) (all []slice.Hold) {
	for i := range of.Nodes {
		n := &of.Nodes[i]
		if pin := n.Placement.Host; n.Host == host && (pin == "" || pin == host) {
			all = append(all, n.Holds()...)
		}
	}
	return all
}

// whyNotStored makes an answer by which nothing was stored one that a HoldStore knows. Errors of a server that failed
// or was late may come after it was.
func whyNotStored(err error) error {
	p := new(api.Problem)
	if !errors.As(err, &p) {
		return err
	}
	switch p.Status {
	case http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err
	}
	return &notStored{p}
}

// notStored is a refusal: for a HoldStore, a conflict.
type notStored struct{ *api.Problem }

func (n *notStored) Unwrap() []error { return []error{n.Problem, store.ErrConflict} }
