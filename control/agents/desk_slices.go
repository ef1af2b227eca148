package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// slices lists what may have a part on the host.
func (c *counter) slices(r *http.Request) (any, error) {
	all, err := c.cfg.Store.Slices(r.Context())
	if err != nil {
		return nil, err
	}
	mine := make([]store.Record, 0, len(all))
	for _, rec := range all {
		has, err := c.has(r.Context(), rec)
		if err != nil {
			return nil, err
		}
		if has {
			mine = append(mine, rec)
		}
	}
	return mine, nil
}

// has reports whether the host may hold something of a slice. If the slice's record cannot be read, its hosts are those
// that were known before, and those that have reported of it: they are to go on with what they have.
func (c *counter) has(ctx context.Context, r store.Record) (bool, error) {
	switch {
	case slices.Contains(r.Hosts, c.host), r.Corrupt && c.index.had(r.Name, c.host):
		return true, nil
	case !r.Corrupt && !r.Deleting: // what is deleted may have been unreadable before
		return false, nil
	}
	reporters, err := c.cfg.Store.Reporters(ctx, r.Name)
	return slices.Contains(reporters, c.host), err
}

// exists tells of any slice whether there is one of the name, and nothing else.
func (c *counter) exists(r *http.Request) (any, error) {
	_, err := c.cfg.Store.Record(r.Context(), r.PathValue("slice"))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return yes{false}, nil
	case errors.Is(err, store.ErrCorrupt):
		return yes{true}, nil
	}
	return yes{true}, err
}

// mine gives a slice that has a part on the host; others do not exist for it.
func (c *counter) mine(ctx context.Context, name string) (*slice.Slice, store.Record, error) {
	s, r, err := c.cfg.Store.Slice(ctx, name)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, r, err
	}
	has, hasErr := c.has(ctx, r)
	switch {
	case hasErr != nil:
		return nil, r, hasErr
	case !has:
		return nil, store.Record{}, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return s, r, err
}

func (c *counter) part(w http.ResponseWriter, r *http.Request) {
	r = agreed(r)
	p, err := c.partOf(r.Context(), r.PathValue("slice"))
	if err != nil {
		writeError(w, err)
		return
	}
	text, err := json.Marshal(p)
	if err != nil {
		writeError(w, err)
		return
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// partOf gives all that the host is told of a slice.
func (c *counter) partOf(ctx context.Context, name string) (*part, error) {
	s, r, err := c.mine(ctx, name)
	p := &part{Record: r}
	switch {
	case errors.Is(err, store.ErrCorrupt):
		p.Corrupt = err.Error()
		return p, nil
	case err != nil:
		return nil, err
	case r.Deleting:
		return p, nil
	}
	excerpt := s.Excerpt(c.host)
	if p.Excerpt, err = record.Pack(excerpt); err != nil {
		return nil, err
	}
	if p.Outline, err = c.outline(s, r); err != nil {
		return nil, err
	}
	if p.Overrides, err = c.cfg.Store.Overrides(ctx, name); errors.Is(err, store.ErrCorrupt) {
		return &part{Record: p.Record, Corrupt: err.Error()}, nil
	} else if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(excerpt.Nodes, func(n slice.Node) bool { return len(n.Left) > 0 }) {
		if p.Generations, err = c.cfg.Store.Generations(ctx, name); err != nil {
			return nil, err
		}
	}
	if s.IsSignalled() {
		if p.LinkStates, err = c.cfg.Store.LinkStates(ctx, name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// outline gives a slice's outline, packed: once for all hosts, which ask at the same time.
func (d *Desk) outline(s *slice.Slice, r store.Record) ([]byte, error) {
	packed, err, _ := d.packing.Do(r.Token, func() (any, error) { return d.packOutline(s, r) })
	if err != nil {
		return nil, err
	}
	return packed.([]byte), nil
}

func (d *Desk) packOutline(s *slice.Slice, r store.Record) ([]byte, error) {
	d.mu.Lock()
	have := d.outlines[s.Name]
	d.mu.Unlock()
	if have.token == r.Token {
		return have.packed, nil
	}
	packed, err := record.Pack(s.Outline())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outlines[s.Name] = outline{r.Token, packed}
	for name := range d.outlines {
		if !d.index.has(name) && name != s.Name {
			delete(d.outlines, name)
		}
	}
	return packed, nil
}

func (c *counter) putStatus(r *http.Request) (any, error) {
	var st slice.Status
	if err := json.NewDecoder(r.Body).Decode(&st); err != nil {
		return nil, err
	}
	if st.Slice != r.PathValue("slice") {
		return nil, fmt.Errorf("a report of network %.80q for network %.80q: %w", st.Slice,
			r.PathValue("slice"), errDenied)
	}
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutStatus(r.Context(), c.host, st)
}

// isMine refuses a request for a slice that has no part on the host.
func (c *counter) isMine(r *http.Request) error {
	rec, err := c.cfg.Store.Record(r.Context(), r.PathValue("slice"))
	if err != nil && !rec.Corrupt {
		return err
	}
	has, err := c.has(r.Context(), rec)
	if err == nil && !has {
		err = fmt.Errorf("%s: %w", rec.Name, store.ErrNotFound)
	}
	return err
}

func (c *counter) putLinkState(r *http.Request) (any, error) {
	var is slice.LinkState
	if err := json.NewDecoder(r.Body).Decode(&is); err != nil {
		return nil, err
	}
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutLinkState(r.Context(), c.host, r.PathValue("slice"), is)
}

func (c *counter) settled(r *http.Request) (any, error) {
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	is, err := c.cfg.Store.SettledBy(r.Context(), c.host, r.PathValue("slice"))
	return yes{is}, err
}

func (c *counter) release(r *http.Request) (any, error) {
	if err := c.isMine(r); err != nil {
		return nil, err
	}
	c.releasing.Lock()
	defer c.releasing.Unlock()
	return nil, c.cfg.Store.Release(r.Context(), c.host, r.PathValue("slice"))
}
