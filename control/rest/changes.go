package rest

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
)

// ChangesInput says which changes are asked for.
type ChangesInput struct {
	PartInput
	Nodes   []string `query:"node,explode" doc:"Names of nodes; none: all."`
	Content bool     `query:"content" doc:"With what is in configurations and files."`
}

func (s *server) registerChanges(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/changes", s.changes,
		describe("changes", "What was changed in a slice's nodes while they ran"))
}

// changes asks all hosts of a slice.
func (s *server) changes(ctx context.Context, in *ChangesInput) (*body[api.SliceChanges], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	own := func(ctx context.Context) (part api.SliceChanges, err error) {
		part.Nodes, err = s.Agent.Changes(ctx, in.Slice, api.ChangesQuery{Nodes: in.Nodes, Content: in.Content})
		for i := range part.Nodes {
			if s.Cluster != nil {
				part.Nodes[i].Host = s.Cluster.Self()
			}
		}
		return part, err
	}
	verb := "changes"
	query := url.Values{"node": in.Nodes}
	if in.Content {
		query.Set("content", "true")
	}
	if text := query.Encode(); text != "" {
		verb += "?" + text
	}
	all := api.SliceChanges{Nodes: []api.NodeChanges{}}
	unreachable, err := gather(ctx, s, in.PartInput, http.MethodGet, verb, own, func(part api.SliceChanges) {
		all.Nodes = append(all.Nodes, part.Nodes...)
	})
	slices.SortFunc(all.Nodes, func(a, b api.NodeChanges) int { return strings.Compare(a.Node, b.Node) })
	all.Unreachable = unreachable
	return answer(all, err)
}
