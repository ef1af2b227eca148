package rest

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/api/eventstream"
)

func init() {
	// a client may read as slowly as it likes: it may be a pager
	sse.WriteTimeout = math.MaxInt64 / 4 * time.Nanosecond
}

type (
	serverKey struct{}
	flushKey  struct{}
)

// serverOf gives the server to a Resolve method of a stream's input. Resolve is where a stream can still be refused:
// once it has begun, its status is 200.
func serverOf(ctx huma.Context) *server {
	s, _ := ctx.Context().Value(serverKey{}).(*server)
	return s
}

// refusal is what Resolve returns for err.
func refusal(err error) []error {
	if err == nil {
		return nil
	}
	return []error{problem(err)}
}

// registerEvents adds an operation that answers with server-sent events. types maps their names to values of their
// types. The status and the headers are sent before stream is called, so that a client does not wait for the first
// event to learn that it is connected. An error of stream becomes the last event, a problem.
func registerEvents[I any](s *server, a huma.API, op huma.Operation, types map[string]any,
	stream func(ctx context.Context, in *I, send sse.Sender) error) {
	types[eventstream.ProblemEvent] = api.Problem{}
	op.Responses = map[string]*huma.Response{"200": {Description: op.Description}}
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		ctx.SetHeader("Cache-Control", "no-store")
		body := ctx.BodyWriter()
		flush := func() error {
			w, ok := body.(http.ResponseWriter)
			if !ok {
				return http.ErrNotSupported
			}
			return http.NewResponseController(w).Flush()
		}
		next(huma.WithValue(huma.WithValue(ctx, serverKey{}, s), flushKey{}, flush))
	})
	sse.Register(a, op, types, func(ctx context.Context, in *I, send sse.Sender) {
		if flush, ok := ctx.Value(flushKey{}).(func() error); ok {
			_ = flush() // the client may have gone: then stream learns it
		}
		if err := stream(ctx, in, send); err != nil && ctx.Err() == nil {
			_ = send.Data(problem(err)) // the client may have gone
		}
	})
}
