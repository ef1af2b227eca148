package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// Slices implements store.ForAgent: those that may have a part on the host.
func (c *Client) Slices(ctx context.Context) ([]store.Record, error) {
	if err := c.fetching.lock(ctx); err != nil {
		return nil, err
	}
	var records []store.Record
	err := c.ask(ctx, http.MethodGet, "slices", nil, &records)
	if err == nil {
		for i := range records {
			records[i].Corrupt = isCorrupt(&records[i])
		}
		c.cache.putNames(records)
	}
	c.fetching.unlock()
	if err != nil {
		return orStale(ctx, err, c.cache.Slices)
	}
	return records, nil
}

// isCorrupt tells a record that a server could not read: of it, there is a name.
func isCorrupt(r *store.Record) bool { return r.Generation == 0 && !r.Deleting }

// lock is a mutex that is waited for as long as a context lasts.
type lock chan struct{}

func (l lock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) unlock() { <-l }

// fetch asks for the host's part of a slice, if it may have changed.
func (c *Client) fetch(ctx context.Context, name string, always bool) (*known, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(ctx))
	defer cancel()
	if err := c.fetching.lock(ctx); err != nil {
		return nil, unreachable(err)
	}
	defer c.fetching.unlock()
	have := c.cache.get(name)
	c.mu.Lock()
	if have != nil && have.ETag != "" && !always && !c.changed[name] {
		c.mu.Unlock()
		return have, nil
	}
	c.changed[name] = false
	c.mu.Unlock()
	next, err := c.fetchPart(ctx, name, have)
	switch {
	case errors.Is(err, store.ErrNotFound):
		c.cache.drop(name)
		c.mu.Lock()
		delete(c.changed, name)
		c.mu.Unlock()
	case err != nil:
		c.markChanged(name)
	}
	return next, err
}

func (c *Client) fetchPart(ctx context.Context, name string, have *known) (*known, error) {
	header := http.Header{}
	if have != nil && have.ETag != "" {
		header.Set("If-None-Match", have.ETag)
	}
	resp, err := c.send(ctx, http.MethodGet, slicePath(name, ""), nil, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		c.cache.keep(have)
		return have, nil
	}
	next := &known{ETag: resp.Header.Get("ETag")}
	if err := json.NewDecoder(resp.Body).Decode(&next.Part); err != nil {
		return nil, unreachable(err)
	}
	if next.Part.Record.Name != name { // files are named by it
		return nil, fmt.Errorf("asked for network %s, the server answers with %.80q", name,
			next.Part.Record.Name)
	}
	if err := next.join(); err != nil {
		return nil, err
	}
	c.cache.put(next)
	return next, nil
}

// slicePath is the path of a request about a slice.
func slicePath(name, rest string) string { return "slices/" + url.PathEscape(name) + rest }

func (c *Client) markChanged(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[name] = true
}

// part gives the host's part of a slice: as it was told last, if nothing was said of a change since.
func (c *Client) part(ctx context.Context, name string, always bool) (*known, error) {
	k, err := c.fetch(ctx, name, always)
	if err != nil {
		return orStale(ctx, err, func() (*known, error) { return c.cache.Part(name) })
	}
	return k, nil
}

// Slice implements store.ForAgent.
func (c *Client) Slice(ctx context.Context, name string) (*slice.Slice, store.Record, error) {
	k, err := c.part(ctx, name, true)
	if err != nil {
		return nil, store.Record{}, err
	}
	return k.slice()
}

// Record gives a slice's record, or ErrNotFound where there is no such slice. It has the name alone if the slice has no
// part on the host.
func (c *Client) Record(ctx context.Context, name string) (store.Record, error) {
	_, r, err := c.Slice(ctx, name)
	if !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnreachable) {
		return r, err
	}
	var exists yes
	if askErr := c.ask(ctx, http.MethodGet, slicePath(name, "/exists"), nil, &exists); askErr != nil {
		return store.Record{}, askErr
	}
	if exists.Yes {
		return store.Record{Name: name}, nil
	}
	return store.Record{}, err
}

// Overrides implements store.ForAgent.
func (c *Client) Overrides(ctx context.Context, name string) (slice.Overrides, error) {
	k, err := c.part(ctx, name, false)
	if err != nil {
		return slice.Overrides{}, err
	}
	return k.Part.Overrides, nil
}

// Generations implements store.ForAgent.
func (c *Client) Generations(ctx context.Context, name string) (map[string]int64, error) {
	k, err := c.part(ctx, name, false)
	if err != nil {
		return nil, err
	}
	return k.Part.Generations, nil
}

// LinkStates implements store.ForAgent. Without servers nothing new is reserved by what other hosts said.
func (c *Client) LinkStates(ctx context.Context, name string) (map[string]slice.LinkState, error) {
	k, err := c.fetch(ctx, name, false)
	if err != nil {
		return orStale(ctx, err, func() (map[string]slice.LinkState, error) { return nil, nil })
	}
	return k.Part.LinkStates, nil
}

// PutStatus implements store.ForAgent.
func (c *Client) PutStatus(ctx context.Context, _ string, st slice.Status) error {
	c.cache.putReport(st)
	return c.ask(ctx, http.MethodPut, slicePath(st.Slice, "/status"), st, nil)
}

// Status is what this host itself reports of a slice. Nodes of other hosts count as lost.
func (c *Client) Status(_ context.Context, name string) (slice.Status, error) {
	return c.cache.Status(name), nil
}

// PutLinkState implements store.ForAgent.
func (c *Client) PutLinkState(ctx context.Context, _, name string, is slice.LinkState) error {
	return c.ask(ctx, http.MethodPut, slicePath(name, "/linkstate"), is, nil)
}

// SettledBy implements store.ForAgent.
func (c *Client) SettledBy(ctx context.Context, _, name string) (bool, error) {
	var is yes
	err := c.ask(ctx, http.MethodGet, slicePath(name, "/settled"), nil, &is)
	return is.Yes, err
}

// Release implements store.ForAgent.
func (c *Client) Release(ctx context.Context, _, name string) error {
	return c.ask(ctx, http.MethodDelete, slicePath(name, ""), nil, nil)
}

// SetLink asks for a change of a link, for a node of this host.
func (c *Client) SetLink(ctx context.Context, name, link string, patch api.LinkPatch) error {
	return c.ask(ctx, http.MethodPatch, slicePath(name, "/links/"+url.PathEscape(link)), patch, nil)
}

// Reserve asks for a reservation, for a node of this host.
func (c *Client) Reserve(ctx context.Context, name, node string, change api.ReservationChange) error {
	return c.ask(ctx, http.MethodPost, slicePath(name, "/reserve/"+url.PathEscape(node)), change, nil)
}

// Blob fetches an archive that a node of this host is made of. The caller closes the answer's body.
func (c *Client) Blob(ctx context.Context, sum string) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, "blobs/"+url.PathEscape(sum), nil, nil)
}
