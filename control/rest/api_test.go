package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/store"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

func TestOpenAPIIsCurrent(t *testing.T) {
	raw, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, raw, "", " "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	path := filepath.Join("..", "..", "docs", "openapi.json")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/openapi.json is not what the API is: run `go generate ./control/rest`\n%s",
			firstDifference(string(want), got.String()))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d: the file has %q, the API %q", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("the file has %d lines, the API %d", len(w), len(g))
}

func TestOpenAPINamesEveryRoute(t *testing.T) {
	raw, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s, want 3.1", doc.OpenAPI)
	}
	for path, methods := range map[string][]string{
		"/v1/version":                           {"get"},
		"/v1/slices":                            {"get"},
		"/v1/slices/{slice}":                    {"get", "put", "delete"},
		"/v1/slices/{slice}/progress":           {"get"},
		"/v1/slices/{slice}/convergence":        {"get"},
		"/v1/slices/{slice}/check":              {"post"},
		"/v1/slices/{slice}/nodes/{node}/start": {"post"},
		"/v1/slices/{slice}/nodes/{node}/exec":  {"get"},
		"/v1/slices/{slice}/nodes/{node}/logs":  {"get"},
		"/v1/slices/{slice}/nodes/{node}/interfaces/{interface}/capture": {"get"},
		"/v1/slices/{slice}/links/{link}":                                {"patch", "delete"},
		"/v1/slices/{slice}/links/{link}/up":                             {"post"},
		"/v1/events":                                                     {"get"},
		"/v1/blobs/{sha256}":                                             {"put", "head"},
	} {
		for _, method := range methods {
			if doc.Paths[path][method] == nil {
				t.Errorf("the description lacks %s %s", method, path)
			}
		}
	}
}

func TestErrorsHaveStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{&controller.Refusal{Reason: controller.Forbidden, Message: "no"}, 403},
		{fmt.Errorf("x: %w", &controller.Refusal{Reason: controller.NotFound, Message: "no"}), 404},
		{&controller.Refusal{Reason: controller.Unsupported, Message: "no"}, 501},
		{fmt.Errorf("x: %w", store.ErrFull), 507},
		{fmt.Errorf("x: %w", store.ErrConflict), 409},
		{fmt.Errorf("x: %w", api.ErrNotRunning), 409},
		{fmt.Errorf("x: %w", blob.ErrSize), 413},
		{errors.New("anything"), 500},
	} {
		w := httptest.NewRecorder()
		writeProblem(w, c.err)
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.status || p.Status != c.status || p.Title != http.StatusText(c.status) ||
			p.Detail != c.err.Error() {
			t.Errorf("%v: %d %+v", c.err, w.Code, p)
		}
		if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("content type %s", got)
		}
	}
	deleting := new(api.Problem)
	if !errors.As(problem(fmt.Errorf("net: %w", store.ErrDeleting)), &deleting) ||
		deleting.Type != api.TypeDeleting {
		t.Errorf("a slice that is being removed: %+v", deleting)
	}
}

func TestCallerIsWhoConnected(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	who := caller(WithPeer(t.Context(), s))
	if int(who.UID) != os.Geteuid() || who.Root != (os.Geteuid() == 0) {
		t.Errorf("caller %+v", who)
	}
	if who := caller(t.Context()); who.Root || who.UID == 0 {
		t.Errorf("somebody unknown is %+v", who)
	}
}

func TestReadsOfSlicesMayBeStale(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /v1/slices":                        true,
		"GET /v1/slices/lab":                    true,
		"GET /v1/slices/lab/nodes/r1/exec":      true,
		"POST /v1/slices/lab/nodes/r1/verify":   true,
		"POST /v1/slices/lab/check":             true,
		"GET /v1/slices/lab/progress":           false, // its reader waits for a change
		"PUT /v1/slices/check":                  false,
		"POST /v1/slices/lab/retry":             false,
		"POST /v1/slices/lab/nodes/verify/stop": false,
		"DELETE /v1/slices/lab":                 false,
		"GET /v1/hosts":                         false, // whether hosts are alive is not cached
		"GET /v1/slicesandmore":                 false,
	} {
		method, path, _ := strings.Cut(request, " ")
		if mayBeStale(method, path) != want {
			t.Errorf("%s: may be stale is %v", request, !want)
		}
	}
}
