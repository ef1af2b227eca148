package rest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// The largest topology with the files it carries, and how long it may take to arrive.
const (
	maxTopology     = 256 << 20
	topologyTimeout = time.Minute
)

// SliceInput names a slice. It is exported because huma looks only into embedded types that are.
type SliceInput struct {
	Slice string `path:"slice" doc:"Name of the slice."`
}

type applyInput struct {
	SliceInput
	DryRun bool `query:"dry_run" doc:"Say what would change, and change nothing."`
	Body   topology.Topology
}

func (s *server) registerSlices(a huma.API) {
	huma.Get(a, "/v1/slices", s.list, describe("list-slices", "List slices"))
	huma.Get(a, "/v1/slices/{slice}", s.get, describe("get-slice", "Everything about a slice"))
	huma.Put(a, "/v1/slices/{slice}", s.apply, describe("apply-slice", "Make a slice as a topology says"),
		func(op *huma.Operation) {
			op.MaxBodyBytes, op.BodyReadTimeout = maxTopology, topologyTimeout
		})
	huma.Post(a, "/v1/slices/{slice}/retry", s.retry,
		describe("retry-slice", "Try again at once what failed"), noContent)
	huma.Delete(a, "/v1/slices/{slice}", s.delete, describe("delete-slice", "Remove a slice"),
		func(op *huma.Operation) {
			op.DefaultStatus = http.StatusAccepted
		})
}

func (s *server) list(ctx context.Context, _ *struct{}) (*body[[]api.Summary], error) {
	records, err := s.Records.Slices(ctx)
	if err != nil {
		return nil, problem(err)
	}
	all := make([]api.Summary, 0, len(records))
	for _, r := range records {
		st, err := s.Records.Status(ctx, r.Name)
		if err != nil {
			return nil, problem(err)
		}
		sum := summarize(r, st)
		if s.Cluster != nil {
			sum.Hosts = s.placedOn(ctx, r)
		}
		all = append(all, sum)
	}
	return &body[[]api.Summary]{all}, nil
}

// placedOn lists the hosts of a slice; of one that has gone meanwhile, none.
func (s *server) placedOn(ctx context.Context, r store.Record) []string {
	if r.Corrupt {
		return nil
	}
	spec, _, err := s.Records.Slice(ctx, r.Name)
	if err != nil {
		return nil
	}
	return slices.Compact(slices.Sorted(maps.Values(placement(spec))))
}

func summarize(r store.Record, st slice.Status) api.Summary {
	sum := api.Summary{
		Name: r.Name, ID: r.ID, Generation: r.Generation, Nodes: r.Nodes, Links: r.Links, Deleting: r.Deleting,
		Settled: st.Settled && st.Generation == r.Generation && !r.Deleting, Updated: r.Updated,
		Errors: st.Errors,
	}
	for _, n := range st.Nodes {
		switch n.Phase {
		case slice.Running:
			sum.Running++
		case slice.Lost:
			sum.Lost++
		default:
		}
	}
	return sum
}

func (s *server) get(ctx context.Context, in *SliceInput) (*body[api.Slice], error) {
	spec, r, err := s.Find.Slice(ctx, in.Slice)
	if err != nil {
		return nil, problem(err)
	}
	out := api.Slice{Spec: spec, Deleting: r.Deleting, Updated: r.Updated}
	if out.Status, err = s.Records.Status(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	if out.Overrides, err = s.Records.Overrides(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	return &body[api.Slice]{out}, nil
}

func (s *server) apply(ctx context.Context, in *applyInput) (*body[api.Applied], error) {
	t := &in.Body
	switch t.Name {
	case in.Slice:
	case "":
		t.Name = in.Slice
	default:
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("the topology is called %s, the network %s",
			t.Name, in.Slice))
	}
	plan, spec, err := s.Controller.Apply(ctx, caller(ctx), t, in.DryRun)
	if err != nil {
		return nil, problem(err)
	}
	if plan.Empty() && !in.DryRun {
		s.retryAll(ctx, PartInput{SliceInput: in.SliceInput})
	}
	return &body[api.Applied]{api.Applied{Plan: plan, DryRun: in.DryRun, Generation: spec.Generation,
		Warnings: plan.Warnings, Placement: placement(spec)}}, nil
}

// placement maps nodes to hosts.
func placement(spec *slice.Slice) map[string]string {
	var on map[string]string
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		if n.Host == "" {
			continue
		}
		if on == nil {
			on = map[string]string{}
		}
		on[n.Name] = n.Host
	}
	return on
}

// retry forgets what failed of a slice.
func (s *server) retry(ctx context.Context, in *PartInput) (*struct{}, error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	s.retryAll(ctx, *in)
	return nil, nil
}

// retryAll has all hosts of a slice do so. One that does not answer has other troubles.
func (s *server) retryAll(ctx context.Context, in PartInput) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	own := func(ctx context.Context) error {
		s.Agent.Retry(ctx, in.Slice)
		return nil
	}
	if _, err := s.ask(ctx, in, http.MethodPost, "retry", nil, own,
		func(string, io.Reader) error { return nil }); err != nil {
		return // the slice has gone
	}
}

func (s *server) delete(ctx context.Context, in *SliceInput) (*struct{}, error) {
	return nil, problem(s.Controller.Delete(ctx, in.Slice))
}
