package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pergola-net/pergola/control/api"
)

// sender sends one server-sent event with a JSON value.
type sender func(event string, data any) error

// sse streams server-sent events. An error after the stream began becomes an event "problem".
func sse(stream func(ctx context.Context, send sender) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, w := humago.Unwrap(hctx)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		flusher := http.NewResponseController(w)
		flusher.Flush() // the client learns at once that it was let in
		send := func(event string, data any) error {
			text, err := json.Marshal(data)
			if err != nil {
				return fmt.Errorf("encode event %s: %w", event, err)
			}
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil {
				return err
			}
			return flusher.Flush()
		}
		if err := stream(hctx.Context(), send); err != nil && hctx.Context().Err() == nil {
			_ = send("problem", problem(err)) // the client may have gone
		}
	}}
}

// bytesOf streams bytes. An error before the first byte is a problem as usual; a later one is told in a trailer.
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

// flushWriter hands every write on at once, and begins the answer with the first.
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
