package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Slices is where a Finder looks. A *store.Store is one.
type Slices interface {
	Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error)
	Slices(ctx context.Context) ([]store.Record, error)
}

// Finder finds slices and what is in them by the names that users write. What it does not find is a Refusal that names
// what they may have meant.
type Finder struct{ in Slices }

// NewFinder makes a Finder.
func NewFinder(in Slices) *Finder { return &Finder{in} }

// Slice gives a slice and its record, which may be Deleting; a Refusal where there is none.
func (f *Finder) Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error) {
	s, r, err := f.in.Slice(ctx, name)
	return s, r, f.explainMissing(ctx, name, err)
}

func (f *Finder) explainMissing(ctx context.Context, name string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	var names []string
	if records, err := f.in.Slices(ctx); err == nil {
		for _, r := range records {
			names = append(names, r.Name)
		}
	}
	if meant := wording.DidYouMean(name, names); meant != "" {
		return refuse(NotFound, "there is no network %q: %s", name, meant)
	}
	return refuse(NotFound, "there is no network %q", name)
}

// Node gives a node of a slice that is not being deleted.
func (f *Finder) Node(ctx context.Context, name, node string) (*slice.Slice, *slice.Node, error) {
	s, r, err := f.Slice(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if r.Deleting {
		return nil, nil, fmt.Errorf("%s: %w", name, store.ErrDeleting)
	}
	n := s.Node(node)
	if n == nil {
		names := make([]string, len(s.Nodes))
		for i := range s.Nodes {
			names[i] = s.Nodes[i].Name
		}
		return nil, nil, unknown("node", node, name, names)
	}
	return s, n, nil
}

// HasInterface refuses an interface that the node does not have.
func (f *Finder) HasInterface(ctx context.Context, name, node, iface string) error {
	_, n, err := f.Node(ctx, name, node)
	if err != nil {
		return err
	}
	if n.Interface(iface) == nil && iface != "lo" {
		names := make([]string, len(n.Interfaces))
		for i := range n.Interfaces {
			names[i] = n.Interfaces[i].Name
		}
		return unknown("interface of node "+node, iface, name, names)
	}
	return nil
}

// Links gives links of a slice by their names; without names, all. It refuses names that the slice does not have.
func (f *Finder) Links(ctx context.Context, name string, links []string) (*slice.Slice, []*slice.Link, error) {
	s, _, err := f.Slice(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	some := make([]*slice.Link, 0, len(s.Links))
	for i := range s.Links {
		if len(links) == 0 {
			some = append(some, &s.Links[i])
		}
	}
	for _, link := range links {
		l := s.Link(link)
		if l == nil {
			return nil, nil, unknown("link", link, name, linkNames(s))
		}
		some = append(some, l)
	}
	return s, some, nil
}

func linkNames(s *slice.Slice) []string {
	names := make([]string, len(s.Links))
	for i := range s.Links {
		names[i] = s.Links[i].Name
	}
	return names
}

// HasChecks refuses names of checks that the slice does not have.
func (f *Finder) HasChecks(ctx context.Context, name string, checks []string) error {
	s, _, err := f.Slice(ctx, name)
	if err != nil {
		return err
	}
	var names []string
	for _, check := range s.Checks {
		names = append(names, check.Name)
	}
	for _, check := range checks {
		if !slices.Contains(names, check) {
			return unknown("check", check, name, names)
		}
	}
	return nil
}

// LSPs gives a slice, and those of its label-switched paths that are named.
func (f *Finder) LSPs(ctx context.Context, name string, lsps []string) (*slice.Slice, []slice.LSP, error) {
	s, _, err := f.Slice(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var some []slice.LSP
	for _, lsp := range lsps {
		l := s.LSP(lsp)
		if l == nil {
			return nil, nil, unknown("LSP", lsp, name, lspNames(s))
		}
		some = append(some, *l)
	}
	return s, some, nil
}
