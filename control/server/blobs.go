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
	"github.com/pergola-net/pergola/model/slice"
)

// blobFetches are the fetches of archives that are running.
type blobFetches struct {
	tasks   sync.WaitGroup
	mu      sync.Mutex
	running map[string]bool // by SHA-256; guarded by mu
}

// begin reports whether no other fetch of the archive is running, and marks it as running.
func (f *blobFetches) begin(sum string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = map[string]bool{}
	}
	if f.running[sum] {
		return false
	}
	f.running[sum] = true
	return true
}

func (f *blobFetches) end(sum string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, sum)
}

// fetchMissingBlobs starts to fetch the archives that nodes of this host need and that are not here: archives are on
// the machine where their slice was applied.
func (c *cluster) fetchMissingBlobs(ctx context.Context, s *server, records []store.Record) {
	for _, r := range records {
		if r.Deleting || len(r.Blobs) == 0 {
			continue
		}
		spec, _, err := s.records().Slice(ctx, r.Name)
		if err != nil {
			continue // it was deleted meanwhile
		}
		for _, sum := range missing(spec, c.Self(), s.blobs) {
			if c.fetches.begin(sum) {
				c.fetches.tasks.Go(func() {
					defer c.fetches.end(sum)
					s.keepFetching(ctx, r.Name, sum)
				})
			}
		}
	}
}

// fetchPause is between two attempts to fetch an archive.
const fetchPause = 10 * time.Second

// keepFetching tries until the archive is here or no longer needed.
func (s *server) keepFetching(ctx context.Context, of, sum string) {
	for {
		err := s.fetchBlob(ctx, sum)
		if err == nil {
			s.agent.Retry(ctx, of) // nodes that failed without it
			return
		}
		if ctx.Err() == nil {
			s.Log.Error("fetch an archive from another host; try again in "+fetchPause.String(),
				"slice", of, "sha256", sum, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(fetchPause):
		}
		spec, r, err := s.records().Slice(ctx, of)
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
		if n.Host == host && n.Rootfs.Kind == slice.RootfsTar && !seen[n.Rootfs.Ref] &&
			!have.Has(n.Rootfs.Ref) {
			seen[n.Rootfs.Ref] = true
			sums = append(sums, n.Rootfs.Ref)
		}
	}
	return sums
}

// fetchBlob fetches an archive: an agent from its server, a server from another one. The archive is checked by its
// name, its SHA-256.
func (s *server) fetchBlob(ctx context.Context, sum string) error {
	if s.near == nil {
		return s.cluster.fetchBlob(ctx, s.blobs, sum)
	}
	resp, err := s.near.Blob(ctx, sum)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return s.blobs.Put(sum, resp.ContentLength, resp.Body)
}

// blobsForAgents gives archives to agents. It implements agents.Blobs.
type blobsForAgents struct{ s *server }

// Serve implements agents.Blobs: an archive that is not here is at another server.
func (b blobsForAgents) Serve(w http.ResponseWriter, r *http.Request, sum string) {
	if !b.s.blobs.Has(sum) {
		if err := b.s.fetchBlob(r.Context(), sum); err != nil {
			refuse(w, http.StatusNotFound, err.Error())
			return
		}
	}
	http.ServeFile(w, r, b.s.blobs.Path(sum))
}

// fetchBlob asks the other servers for an archive, one after the other: what is applied on an agent's machine is sent
// to one of them, too.
func (c *cluster) fetchBlob(ctx context.Context, into blob.Dir, sum string) error {
	hosts, err := c.store.Hosts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hosts {
		if h.Name == c.Self() || !h.Alive || h.Via != "" {
			continue
		}
		err := c.fetchBlobFrom(ctx, h, into, sum)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	errs = append(errs, errors.New("no host that is alive has it: apply the topology again where its file is"))
	return errors.Join(errs...)
}

func (c *cluster) fetchBlobFrom(ctx context.Context, h store.HostState, into blob.Dir, sum string) error {
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
