package api

import (
	"context"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

type checkInput struct {
	SliceInput
	Body CheckRequest
}

// CheckOutcome is the last event of a check's stream.
type CheckOutcome struct {
	Results []CheckResult `json:"results"`
}

func (s *server) registerChecks(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/convergence", s.convergence, describe("convergence", "Whether routing has settled"))
	huma.Post(a, "/v1/slices/{slice}/check", s.check, describe("check", "Try the slice's checks"),
		streams(a, "text/event-stream", "Events `progress` (CheckProgress), then one `outcome`.", CheckOutcome{}))
}

func typeOf(v any) reflect.Type { return reflect.TypeOf(v) }

func (s *server) convergence(ctx context.Context, in *SliceInput) (*body[Convergence], error) {
	if _, _, err := s.Controller.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	c, err := s.Agent.Convergence(ctx, in.Slice)
	if err != nil {
		return nil, problem(err)
	}
	return &body[Convergence]{c}, nil
}

func (s *server) check(ctx context.Context, in *checkInput) (*huma.StreamResponse, error) {
	if err := s.Controller.HasChecks(ctx, in.Slice, in.Body.Names); err != nil {
		return nil, problem(err)
	}
	return sse(func(ctx context.Context, send sender) error {
		results, err := s.Agent.Check(ctx, in.Slice, in.Body, func(p CheckProgress) {
			_ = send("progress", p) // when the client has gone, ctx ends
		})
		if err != nil {
			return err
		}
		return send("outcome", CheckOutcome{results})
	}), nil
}
