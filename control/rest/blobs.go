package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/pki"
)

// registerBlobs adds routes that huma would read into memory.
func (s *server) registerBlobs(mux *http.ServeMux, a huma.API) {
	const path = "/v1/blobs/{sha256}"
	sum := []*huma.Param{{Name: "sha256", In: "path", Required: true,
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9a-f]{64}$"}}}
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "put-blob", Method: http.MethodPut, Path: path, Summary: "Send a root file system archive",
		Parameters:  sum,
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/octet-stream": {}}},
		Responses:   map[string]*huma.Response{"204": {Description: "It is there."}},
	})
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "has-blob", Method: http.MethodHead, Path: path, Summary: "Ask for an archive",
		Parameters: sum,
		Responses: map[string]*huma.Response{"204": {Description: "It is there."},
			"404": {Description: "It is not."}},
	})
	a.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "get-blob", Method: http.MethodGet, Path: path, Summary: "Fetch an archive",
		Parameters:  sum,
		Description: "Only for other members of the cluster: an archive may hold what not all users may read.",
		Responses: map[string]*huma.Response{"200": {Description: "The archive."},
			"404": {Description: "It is not here."}},
	})
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		m, _ := r.Context().Value(memberKey{}).(pki.Member)
		if local := m.Role == "" && caller(r.Context()).Root; m.Role != pki.Server && !local {
			writeProblem(w, huma.Error403Forbidden("only servers of the cluster may fetch archives"))
			return
		}
		if !s.Blobs.Has(r.PathValue("sha256")) {
			writeProblem(w, huma.Error404NotFound("no such archive is here"))
			return
		}
		http.ServeFile(w, r, s.Blobs.Path(r.PathValue("sha256")))
	})
	mux.HandleFunc("PUT "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := s.Blobs.Put(r.PathValue("sha256"), r.ContentLength, r.Body); err != nil {
			writeProblem(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("HEAD "+path, func(w http.ResponseWriter, r *http.Request) {
		if !s.Blobs.Has(r.PathValue("sha256")) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
