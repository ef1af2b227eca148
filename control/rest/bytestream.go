package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pergola-net/pergola/control/api"
)

// bytesOf streams bytes. An error before the first byte is answered as a problem; a later one is in a trailer.
func bytesOf(contentType string, stream func(ctx context.Context, w *flushWriter) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, rw := humago.Unwrap(hctx)
		w := &flushWriter{w: rw, flusher: http.NewResponseController(rw), contentType: contentType}
		err := stream(hctx.Context(), w)
		switch {
		case err != nil && !w.began && hctx.Context().Err() == nil:
			writeProblem(rw, err)
		case err != nil && hctx.Context().Err() == nil:
			rw.Header().Set(http.TrailerPrefix+api.ErrorTrailer, oneLine(err.Error()))
		case !w.began:
			w.begin()
		}
	}}
}

// flushWriter flushes every write, and begins the answer with the first.
type flushWriter struct {
	w           http.ResponseWriter
	flusher     *http.ResponseController
	contentType string
	began       bool
}

func (f *flushWriter) begin() {
	f.began = true
	f.w.Header().Set("Content-Type", f.contentType)
	f.w.WriteHeader(http.StatusOK)
}

func (f *flushWriter) Write(p []byte) (int, error) {
	if !f.began {
		f.begin()
	}
	n, err := f.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.flusher.Flush()
}

// oneLine makes text fit into a header.
func oneLine(s string) string {
	clean := []rune(s)
	for i, r := range clean {
		if r < ' ' || r > '~' {
			clean[i] = ' '
		}
	}
	return string(clean)
}
