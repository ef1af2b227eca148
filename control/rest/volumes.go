package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
)

// VolumesInput says whose volumes are meant, and whether those of this host alone.
type VolumesInput struct {
	Slice string `query:"slice" doc:"Those of this slice; none: of all."`
	Part  string `header:"Pergola-Part" doc:"1: only what this host itself has to say."`
	// Gone are slices that do not exist, as a server says: other hosts know only of those that are on them.
	Gone []string `query:"gone" doc:"With the header: slices that do not exist."`
}

func (s *server) registerVolumes(a huma.API) {
	huma.Get(a, "/v1/volumes", s.volumes, describe("list-volumes", "List the volumes of nodes"))
	huma.Delete(a, "/v1/volumes", s.removeVolumes,
		describe("remove-volumes", "Remove the volumes of slices that are gone, and say which"),
		func(op *huma.Operation) { op.DefaultStatus = http.StatusOK })
}

func (s *server) volumes(ctx context.Context, in *VolumesInput) (*body[api.Volumes], error) {
	return s.everywhere(ctx, in, http.MethodGet, func(context.Context, string) error { return nil })
}

// removeVolumes removes volumes of slices that do not exist, each on its host.
func (s *server) removeVolumes(ctx context.Context, in *VolumesInput) (*body[api.Volumes], error) {
	if !caller(ctx).Root {
		return nil, huma.Error403Forbidden(
			"only root may remove volumes, as only root may give them to nodes: use sudo")
	}
	ctx = store.Linearizable(ctx) // a server that was cut off may not know of a slice
	if in.Slice != "" && in.Part == "" {
		switch exists, err := s.exists(ctx, in.Slice); {
		case err != nil:
			return nil, problem(err)
		case exists:
			return nil, huma.Error409Conflict(fmt.Sprintf(
				"%s is there, and its nodes use the volumes: take it down first", in.Slice))
		}
	}
	return s.everywhere(ctx, in, http.MethodDelete, s.Agent.RemoveVolumes)
}

func (s *server) exists(ctx context.Context, name string) (bool, error) {
	_, err := s.Records.Record(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case errors.Is(err, store.ErrCorrupt):
		return true, nil
	}
	return err == nil, err
}

// everywhere answers for all hosts. each is called for the slices that have volumes here: for those that do not exist,
// where the method deletes.
func (s *server) everywhere(ctx context.Context, in *VolumesInput, method string,
	each func(ctx context.Context, slice string) error) (*body[api.Volumes], error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := s.volumesHere(ctx, in, method == http.MethodDelete, each)
	if err != nil {
		return nil, problem(err)
	}
	if in.Part == "" && s.Cluster != nil {
		if err := s.volumesElsewhere(ctx, in.Slice, method, &all); err != nil {
			return nil, problem(err)
		}
	}
	slices.SortFunc(all.Volumes, func(a, b api.Volume) int {
		return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Host, b.Host))
	})
	return &body[api.Volumes]{all}, nil
}

func (s *server) volumesHere(ctx context.Context, in *VolumesInput, unused bool,
	each func(context.Context, string) error) (api.Volumes, error) {
	all := api.Volumes{Volumes: []api.Volume{}}
	have, err := s.Agent.Volumes(ctx)
	if err != nil {
		return all, err
	}
	done := map[string]bool{}
	for _, v := range have {
		if in.Slice != "" && v.Slice != in.Slice {
			continue
		}
		there := !slices.Contains(in.Gone, v.Slice)
		if in.Part == "" {
			if there, err = s.exists(ctx, v.Slice); err != nil {
				return all, err
			}
		}
		if v.Unused = !there; unused && there {
			continue
		}
		if !done[v.Slice] {
			if err := each(ctx, v.Slice); err != nil {
				return all, err
			}
			done[v.Slice] = true
		}
		if s.Cluster != nil {
			v.Host = s.Cluster.Self()
		}
		all.Volumes = append(all.Volumes, v)
	}
	return all, nil
}

// volumesElsewhere adds what the other hosts answer.
func (s *server) volumesElsewhere(ctx context.Context, of, method string, all *api.Volumes) error {
	hosts, err := s.Records.Hosts(ctx)
	if err != nil {
		return err
	}
	var (
		mu    sync.Mutex // guards all
		asked sync.WaitGroup
	)
	for _, h := range hosts {
		if !s.elsewhere(h.Name) {
			continue
		}
		asked.Go(func() {
			part, err := s.askVolumes(ctx, &h, of, method)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.Unreachable = append(all.Unreachable,
					api.UnreachableHost{Host: h.Name, Why: err.Error()})
			}
			all.Volumes = append(all.Volumes, part.Volumes...)
		})
	}
	asked.Wait()
	return nil
}

// askVolumes asks a host for its volumes, or to remove those of slices that do not exist.
func (s *server) askVolumes(ctx context.Context, h *store.HostState, of, method string) (api.Volumes, error) {
	all, err := s.sendVolumes(ctx, h, http.MethodGet, url.Values{"slice": {of}})
	if err != nil {
		return all, err
	}
	var gone []string
	for i := range all.Volumes {
		v := &all.Volumes[i]
		there, err := s.exists(ctx, v.Slice)
		if err != nil {
			return api.Volumes{}, err
		}
		if v.Unused = !there; v.Unused {
			gone = append(gone, v.Slice)
		}
	}
	if method == http.MethodGet || len(gone) == 0 {
		if method != http.MethodGet {
			all.Volumes = nil
		}
		return all, nil
	}
	slices.Sort(gone)
	named := strings.Join(slices.Compact(gone), ",")
	return s.sendVolumes(ctx, h, method, url.Values{"slice": {of}, "gone": {named}})
}

func (s *server) sendVolumes(ctx context.Context, h *store.HostState, method string, q url.Values) (part api.Volumes,
	err error) {
	if !h.Alive {
		return part, lost(*h)
	}
	resp, err := s.send(ctx, h, method, "/v1/volumes?"+q.Encode(), nil)
	if err != nil {
		return part, err
	}
	defer resp.Body.Close()
	return part, json.NewDecoder(resp.Body).Decode(&part)
}
