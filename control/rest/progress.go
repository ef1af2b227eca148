package rest

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

type progressInput struct{ SliceInput }

// Resolve refuses a slice that does not exist.
func (in *progressInput) Resolve(ctx huma.Context) []error {
	_, _, err := serverOf(ctx).Find.Slice(ctx.Context(), in.Slice)
	return refusal(err)
}

func (s *server) registerProgress(a huma.API) {
	registerEvents(s, a, huma.Operation{
		OperationID: "watch-slice", Method: http.MethodGet, Path: "/v1/slices/{slice}/progress",
		Summary:     "What the host reports, as it changes",
		Description: "Events `progress`; the last has `gone` set.",
	}, map[string]any{"progress": api.Progress{}}, s.progress)
}

// progress streams what the hosts report of a slice, whenever that changes.
func (s *server) progress(ctx context.Context, in *progressInput, send sse.Sender) error {
	changes, err := s.Store.Watch(ctx) // before the first look, so that nothing is missed
	if err != nil {
		return err
	}
	var last *api.Progress
	for {
		p, err := s.progressNow(ctx, in.Slice)
		if err != nil {
			return err
		}
		if last == nil || !reflect.DeepEqual(p, *last) { // hosts report of other slices, too
			if err := send.Data(p); err != nil || p.Gone {
				return err
			}
		}
		if last = &p; !changed(changes, in.Slice) {
			return nil
		}
	}
}

func (s *server) progressNow(ctx context.Context, name string) (api.Progress, error) {
	records, err := s.Records.Slices(ctx)
	if err != nil {
		return api.Progress{}, err
	}
	at := slices.IndexFunc(records, func(r store.Record) bool { return r.Name == name })
	if at < 0 {
		return api.Progress{Status: slice.Status{Slice: name}, Gone: true}, nil
	}
	st, err := s.Records.Status(ctx, name)
	return api.Progress{Status: st, Deleting: records[at].Deleting}, err
}

// changed waits for a change that concerns the slice; false when there will be none.
func changed(changes <-chan store.Change, name string) bool {
	for c := range changes {
		ofSlice := c.Slice == name && c.What != store.LinkStateChanged // which is in no status
		if c.What == store.Resync || c.What == store.HostsChanged || ofSlice {
			return true
		}
	}
	return false
}
