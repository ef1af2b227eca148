// Package rest serves the API: HTTP and JSON over a unix socket, described by OpenAPI 3.1. Its types are in package
// api.
package rest

//go:generate go test -count=1 -run ^TestOpenAPIIsCurrent$ . -update

import (
	"context"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// Config has what the API is served from.
type Config struct {
	// Records are what is known of slices and hosts: the store or, on an agent's machine, what servers tell it.
	Records Records
	// Store and Controller are nil on an agent's machine: a server answers what takes them.
	Store      *store.Store
	Controller *controller.Controller
	Agent      Agent
	// Holds has what root of this machine gives to slices; used where a server decides.
	Holds   controller.HoldStore
	Blobs   blob.Dir
	Events  *events.Bus
	Version string
	Commit  string
	// Cluster is nil on a machine that shares its store with no other one.
	Cluster Cluster
	// ExitsWhenIdle says that the server was started on demand and ends by itself.
	ExitsWhenIdle bool
}

// Records are read to answer. A *store.Store is one.
type Records interface {
	Slices(ctx context.Context) ([]store.Record, error)
	Record(ctx context.Context, name string) (store.Record, error)
	Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error)
	Status(ctx context.Context, name string) (slice.Status, error)
	Overrides(ctx context.Context, name string) (slice.Overrides, error)
	Hosts(ctx context.Context) ([]store.HostState, error)
	HostState(ctx context.Context, name string) (store.HostState, error)
}

var _ Records = (*store.Store)(nil)

type server struct {
	Config
	Find    *controller.Finder
	started time.Time
}

// New gives the handler of all routes. Use WithPeer as ConnContext of the http.Server.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	s := &server{Config: cfg, Find: controller.NewFinder(cfg.Records), started: time.Now()}
	s.register(mux, newAPI(mux))
	switch {
	case s.Cluster == nil:
		return mux
	case s.Controller == nil:
		return s.front(mux)
	}
	return s.atHost(mux)
}

// OpenAPI gives the description of the API, as JSON.
func OpenAPI() ([]byte, error) {
	mux := http.NewServeMux()
	a := newAPI(mux)
	(&server{}).register(mux, a)
	return a.OpenAPI().MarshalJSON()
}

func newAPI(mux *http.ServeMux) huma.API {
	cfg := huma.DefaultConfig("Pergola", "1")
	cfg.Info.Description = "Virtual networks on Linux machines. Spoken over a unix socket, and among the " +
		"machines of a cluster over TLS; errors are RFC 9457 problems."
	cfg.OpenAPIPath = "/openapi"
	cfg.DocsPath, cfg.SchemasPath = "", ""
	cfg.CreateHooks = nil // no $schema in answers
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	return humago.New(mux, cfg)
}

// schemaName keeps apart the types of equal names: what a user writes, what it resolves to, and the API's own.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch pkg := t.PkgPath(); {
	case strings.HasSuffix(pkg, "/pergola/model/slice"):
		return "Resolved" + name
	case strings.HasSuffix(pkg, "/pergola/model/topology/file") && name != "Topology":
		return "Topology" + name
	}
	return name
}

func (s *server) register(mux *http.ServeMux, a huma.API) {
	huma.Get(a, "/v1/version", s.version, describe("version", "What answers"))
	s.registerSlices(a)
	s.registerOverrides(a)
	s.registerProgress(a)
	s.registerStreams(a)
	s.registerEventStream(a)
	s.registerChecks(a)
	s.registerFastPath(a)
	s.registerPrograms(a)
	s.registerFilters(a)
	s.registerChanges(a)
	s.registerVolumes(a)
	s.registerCluster(a)
	s.registerHosts(a)
	s.registerReservations(a)
	s.registerLSPs(a)
	s.registerMembers(a)
	s.registerExec(mux, a)
	s.registerBlobs(mux, a)
	s.registerMetrics(mux)
}

// describe names an operation in the description of the API.
func describe(id, summary string) func(*huma.Operation) {
	return func(op *huma.Operation) { op.OperationID, op.Summary = id, summary }
}

// body is an answer that is nothing but a body.
type body[T any] struct{ Body T }

func (s *server) version(context.Context, *struct{}) (*body[api.Version], error) {
	return &body[api.Version]{s.describe()}, nil
}

// describe tells of this server.
func (s *server) describe() api.Version {
	var uts unix.Utsname
	kernel := ""
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return api.Version{Version: s.Version, Commit: s.Commit, Kernel: kernel, PID: os.Getpid(), Started: s.started,
		ExitsWhenIdle: s.ExitsWhenIdle}
}
