package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/wire"
)

// Filters lists the filters of a program node, as they are now.
func (s *Server) Filters(ctx context.Context, name, node string) (api.NodeFilters, error) {
	all := api.NodeFilters{Node: node, Key: []api.KeyField{}, Filters: []api.Filter{}}
	program, of, err := s.filtersOf(ctx, name, node)
	if err != nil {
		return all, err
	}
	have, err := of.ProgramFilters(ctx, program)
	for _, x := range have.Key {
		all.Key = append(all.Key, api.KeyField{Name: x.Name, Bytes: x.Size})
	}
	for _, e := range have.Filters {
		all.Filters = append(all.Filters, api.Filter{Table: e.Table, Priority: e.Priority,
			Match: e.MatchText(have.Key), Result: e.Result.String(), Hits: e.Hits})
	}
	return all, err
}

// ChangeFilters deletes and inserts filters of a program node: all, or none.
func (s *Server) ChangeFilters(ctx context.Context, name, node string, change api.FilterChange) error {
	program, of, err := s.filtersOf(ctx, name, node)
	if err != nil {
		return err
	}
	return explainFilters(node, of.ChangeFilters(ctx, program, change.Delete, change.Insert))
}

// ReplaceFilters makes filters all that a program node has, or changes nothing.
func (s *Server) ReplaceFilters(ctx context.Context, name, node string, filters []string) error {
	program, of, err := s.filtersOf(ctx, name, node)
	if err != nil {
		return err
	}
	return explainFilters(node, of.ReplaceFilters(ctx, program, filters))
}

// filtersOf finds a node's program, which has to run here, and who has its filters.
func (s *Server) filtersOf(ctx context.Context, name, node string) (program string, of machine.Filters, err error) {
	program, _, err = s.programOf(ctx, name, node)
	if err != nil {
		return "", nil, err
	}
	filters := s.machine.Filters()
	if filters == nil {
		return "", nil, fmt.Errorf("filters of %s: %w", node, machine.ErrNoPrograms)
	}
	return program, filters, nil
}

// statusOfFilters are the HTTP statuses of what is wrong with filters.
var statusOfFilters = []struct {
	err    error
	status int
}{
	{wire.ErrFilterText, http.StatusUnprocessableEntity},
	{filter.ErrLength, http.StatusUnprocessableEntity},
	{filter.ErrMissing, http.StatusNotFound},
	{filter.ErrExists, http.StatusConflict},
	{filter.ErrQuota, http.StatusInsufficientStorage},
	{filter.ErrFull, http.StatusInsufficientStorage},
}

func explainFilters(node string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range statusOfFilters {
		if errors.Is(err, known.err) {
			return &api.Problem{Status: known.status, Title: http.StatusText(known.status),
				Detail: fmt.Sprintf("filters of %s: %v", node, err)}
		}
	}
	return fmt.Errorf("filters of %s: %w", node, err)
}
