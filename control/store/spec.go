package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// partSize, in bytes, is well below etcd's default limit of a request, 1.5 MiB.
const partSize = 512 << 10

// writeSpec writes the parts of a specification under a new token.
func (s *Store) writeSpec(ctx context.Context, spec *slice.Slice) (token string, err error) {
	plain := *spec
	plain.ID, plain.Generation = 0, 0 // the record has them
	data, err := record.Pack(&plain)
	if err != nil {
		return "", fmt.Errorf("encode network %s: %w", spec.Name, err)
	}
	if err := s.db.CheckSpace(len(data)); err != nil {
		return "", err
	}
	token = record.NewToken(time.Now())
	for part := 0; len(data) > 0; part++ {
		n := min(len(data), partSize)
		key := s.db.Key("specs", spec.Name, token, fmt.Sprintf("%06d", part))
		if err := s.db.Put(ctx, key, string(data[:n])); err != nil {
			s.dropSpec(spec.Name, token)
			return "", err
		}
		data = data[n:]
	}
	return token, nil
}

// dropSpec removes parts that no record points to. What it leaves, collectGarbage removes later.
func (s *Store) dropSpec(name, token string) {
	_ = s.db.Request(context.Background(), "write", func(ctx context.Context) error {
		_, err := s.db.Etcd().Delete(ctx, s.db.Key("specs", name, token, ""), clientv3.WithPrefix())
		return err
	})
}

// readSpec reads the specification of a record as it was at a revision of the store. compacted means that the revision
// is too old by now.
func (s *Store) readSpec(ctx context.Context, r Record, revision int64) (spec *slice.Slice, compacted bool, err error) {
	if spec := s.specs.get(r); spec != nil {
		return spec, false, nil
	}
	return s.fetchSpec(ctx, r, revision)
}

// fetchSpec is readSpec for one that is not decoded yet.
func (s *Store) fetchSpec(ctx context.Context, r Record, revision int64) (spec *slice.Slice, compacted bool,
	err error) {
	s.decoding.Lock() // many ask at the same time for a version that is new
	defer s.decoding.Unlock()
	if spec := s.specs.get(r); spec != nil {
		return spec, false, nil
	}
	got, err := s.db.Get(ctx, s.db.Key("specs", r.Name, r.Token, ""), clientv3.WithPrefix(),
		clientv3.WithRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	var data []byte
	for _, kv := range got.Kvs {
		data = append(data, kv.Value...)
	}
	spec = new(slice.Slice)
	if err := record.Unpack(data, spec); err != nil {
		return nil, false, fmt.Errorf("decode network %s of %s: %w (%w)", r.Name, s.db, ErrCorrupt, err)
	}
	spec.Name, spec.ID, spec.Generation = r.Name, r.ID, r.Generation
	s.specs.put(r, spec)
	return spec, false, nil
}

// collectGarbage removes parts that no record points to and that are older than age: a crash left them.
func (s *Store) collectGarbage(ctx context.Context, age time.Duration) error {
	records, err := s.Slices(ctx)
	if err != nil {
		return err
	}
	used, corrupt := map[string]string{}, map[string]bool{}
	for _, r := range records {
		used[r.Name], corrupt[r.Name] = r.Token, r.Corrupt
	}
	got, err := s.db.Get(ctx, s.db.Key("specs", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range got.Kvs {
		parts := strings.Split(strings.TrimPrefix(string(kv.Key), s.db.Key("specs", "")), "/")
		if len(parts) != 3 {
			continue
		}
		name, token := parts[0], parts[1]
		if used[name] != token && !corrupt[name] && time.Since(record.TokenTime(token)) >= age {
			s.dropSpec(name, token)
		}
	}
	return nil
}

// specCache holds the newest decoded specification of each slice.
type specCache struct {
	mu    sync.Mutex
	specs map[string]cachedSpec // by name; guarded by mu
}

type cachedSpec struct {
	token string
	spec  *slice.Slice
}

func (c *specCache) get(r Record) *slice.Slice {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.specs[r.Name]; have.token == r.Token {
		return have.spec
	}
	return nil
}

func (c *specCache) put(r Record, spec *slice.Slice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.specs == nil {
		c.specs = map[string]cachedSpec{}
	}
	c.specs[r.Name] = cachedSpec{r.Token, spec}
}

func (c *specCache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.specs, name)
}
