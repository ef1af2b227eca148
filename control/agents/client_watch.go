package agents

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/store"
)

func (c *Client) tellServers(all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.servers, all) {
		c.servers = all
		close(c.heard)
		c.heard = make(chan struct{})
	}
}

// FollowServers calls each with where the cluster's servers are, whenever a server says something else, until ctx ends.
func (c *Client) FollowServers(ctx context.Context, each func(servers []string)) error {
	for {
		c.mu.Lock()
		servers, heard := c.servers, c.heard
		c.mu.Unlock()
		each(servers)
		select {
		case <-ctx.Done():
			return nil
		case <-heard:
		}
	}
}

// Watch implements store.ForAgent. The channel begins with a Resync, once there is a session, and has another one after
// each time without one.
func (c *Client) Watch(ctx context.Context) (<-chan store.Change, error) {
	sub := &subscriber{ready: make(chan struct{}, 1), waiting: map[change]bool{}}
	out := make(chan store.Change)
	go func() {
		for ctx.Err() == nil {
			if resp, err := c.send(ctx, http.MethodGet, "changes", nil, nil); err == nil {
				c.read(resp, sub)
			}
			pause(ctx)
		}
	}()
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case <-sub.ready:
			}
			for _, next := range sub.take() {
				select {
				case <-ctx.Done():
					return
				case out <- store.Change{Slice: next.Slice, What: next.What}:
				}
			}
		}
	}()
	return out, nil
}

// read reads a stream of changes until it ends.
func (c *Client) read(resp *http.Response, to *subscriber) {
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		var next change
		if err := lines.Decode(&next); err != nil {
			return
		}
		if next.Servers != "" {
			c.tellServers(strings.Fields(next.Servers))
			next.Servers = ""
		}
		switch next.What {
		case "":
			continue
		case store.Resync:
			for _, name := range c.cache.names() {
				c.markChanged(name)
			}
		case store.HostsChanged:
		default:
			c.markChanged(next.Slice)
		}
		to.put(next)
	}
}
