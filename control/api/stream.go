package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// ErrorTrailer is the HTTP trailer that says why a stream of bytes ended early.
const ErrorTrailer = "Pergola-Error"

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

// maxEvent bounds one server-sent event: the progress of the largest slice fits.
const maxEvent = 64 << 20

// ReadEvents reads server-sent events until each returns an error, which it returns, or the stream ends. An event "problem" is an error.
func ReadEvents(stream io.Reader, each func(event string, data []byte) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	event := ""
	for lines.Scan() {
		line := lines.Bytes()
		if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			event = string(name)
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		if event == "problem" {
			p := new(Problem)
			if err := json.Unmarshal(data, p); err != nil {
				return fmt.Errorf("decode the server's answer: %w", err)
			}
			return p
		}
		if err := each(event, data); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return nil
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
			rw.Header().Set(http.TrailerPrefix+ErrorTrailer, oneLine(err.Error()))
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
