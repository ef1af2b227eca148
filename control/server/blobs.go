package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// blobFetches are the archives that are under way to this machine.
type blobFetches struct {
	parts sync.WaitGroup
	mu    sync.Mutex
	going map[string]bool // by SHA-256; guarded by mu
}

// begin reports whether nobody else fetches it.
func (f *blobFetches) begin(sum string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.going == nil {
		f.going = map[string]bool{}
	}
	if f.going[sum] {
		return false
	}
	f.going[sum] = true
	return true
}

func (f *blobFetches) end(sum string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.going, sum)
}

// wantBlobs fetches what nodes of this host are made of and is not here: archives lie where their slice was applied.
func (c *cluster) wantBlobs(ctx context.Context, s *server, records []store.Record) {
	for _, r := range records {
		if r.Deleting || len(r.Blobs) == 0 {
			continue
		}
		spec, _, err := s.store.Slice(ctx, r.Name)
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, sum := range missing(spec, c.Self(), s.blobs) {
			if c.fetches.begin(sum) {
				c.fetches.parts.Go(func() {
					defer c.fetches.end(sum)
					s.keepFetching(ctx, r.Name, sum)
				})
			}
		}
	}
}

// fetchPause is between two attempts to find an archive.
const fetchPause = 10 * time.Second

// keepFetching ends when the archive is here, or nobody wants it any more.
func (s *server) keepFetching(ctx context.Context, of, sum string) {
	for {
		err := s.cluster.fetchBlob(ctx, s.blobs, sum)
		if err == nil {
			s.agent.Retry(ctx, of) // what failed for want of it
			return
		}
		if ctx.Err() == nil {
			s.Log.Error("fetch an archive from another host", "slice", of, "sha256", sum, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(fetchPause):
		}
		spec, r, err := s.store.Slice(ctx, of)
		if err != nil || r.Deleting || !slices.Contains(missing(spec, s.Host, s.blobs), sum) {
			return
		}
	}
}

// missing lists the archives that nodes of a host need and a directory lacks.
func missing(spec *slice.Slice, host string, have blob.Dir) (sums []string) {
	seen := map[string]bool{}
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		if n.Host == host && n.Rootfs.Kind == slice.RootfsTar && !seen[n.Rootfs.Ref] && !have.Has(n.Rootfs.Ref) {
			seen[n.Rootfs.Ref] = true
			sums = append(sums, n.Rootfs.Ref)
		}
	}
	return sums
}

// fetchBlob asks the other hosts for an archive, one after the other. Whoever has it, its name proves its content.
func (c *cluster) fetchBlob(ctx context.Context, into blob.Dir, sum string) error {
	hosts, err := c.store.Hosts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hosts {
		if h.Name == c.Self() || !h.Alive {
			continue
		}
		err := c.fetchBlobFrom(ctx, h.Host, into, sum)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, errors.New("no host that is alive has it: apply the topology again where its file is"))...)
}

func (c *cluster) fetchBlobFrom(ctx context.Context, h hosts.Host, into blob.Dir, sum string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+h.API+"/v1/blobs/"+sum, nil)
	if err != nil {
		return err
	}
	resp, err := c.Peer(h).RoundTrip(r)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("host %s: %s", h.Name, resp.Status)
	}
	if err := into.Put(sum, resp.ContentLength, resp.Body); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}
