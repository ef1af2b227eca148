package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// setLink is asked by a node of the host, for a link of its own.
func (c *counter) setLink(r *http.Request) (any, error) {
	var patch api.LinkPatch
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	s, _, err := c.mine(r.Context(), r.PathValue("slice"))
	if err != nil {
		return nil, err
	}
	link := s.Link(r.PathValue("link"))
	if link == nil || !slices.ContainsFunc(link.Ends, func(e slice.End) bool { return c.runs(s, e.Node) }) {
		return nil, fmt.Errorf("link %.80q has no end at a node of host %s: %w", r.PathValue("link"), c.host,
			errDenied)
	}
	return nil, c.cfg.Decider.SetLink(r.Context(), s.Name, link.Name, patch)
}

// runs reports whether a node is on the host.
func (c *counter) runs(s *slice.Slice, node string) bool {
	n := s.Node(node)
	return n != nil && n.Host == c.host
}

// reserve is asked by a node of the host, for itself.
func (c *counter) reserve(r *http.Request) (any, error) {
	var change api.ReservationChange
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		return nil, err
	}
	s, _, err := c.mine(r.Context(), r.PathValue("slice"))
	if err != nil {
		return nil, err
	}
	if node := r.PathValue("node"); !c.runs(s, node) {
		return nil, fmt.Errorf("node %.80q is not on host %s: %w", node, c.host, errDenied)
	}
	return nil, c.cfg.Decider.Reserve(r.Context(), s.Name, r.PathValue("node"), change)
}

// blob gives an archive that a node of the host is made of.
func (c *counter) blob(w http.ResponseWriter, r *http.Request) {
	sum := r.PathValue("sum")
	all, err := c.cfg.Store.Slices(r.Context())
	if err != nil {
		writeError(w, err)
		return
	}
	for _, rec := range all {
		if !slices.Contains(rec.Hosts, c.host) || !slices.Contains(rec.Blobs, sum) {
			continue
		}
		s, _, err := c.cfg.Store.Slice(r.Context(), rec.Name)
		if err == nil && slices.ContainsFunc(s.Nodes, func(n slice.Node) bool {
			return n.Host == c.host && n.Rootfs == slice.Rootfs{Kind: slice.RootfsTar, Ref: sum}
		}) {
			c.cfg.Blobs.Serve(w, r, sum)
			return
		}
	}
	writeError(w, fmt.Errorf("no node of host %s is made of archive %.12q: %w", c.host, sum, errDenied))
}
