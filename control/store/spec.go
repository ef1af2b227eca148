package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// partSize is well below etcd's default limit of a request, 1.5 MiB.
const partSize = 512 << 10

// maxSpec bounds a specification, unpacked: a guard against archives that explode.
const maxSpec = 1 << 30

// newToken names a set of parts: its time in milliseconds, so that orphans can be told by age, and chance.
func newToken(now time.Time) string {
	var chance [8]byte
	rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%012x-%s", now.UnixMilli(), hex.EncodeToString(chance[:]))
}

func tokenTime(token string) time.Time {
	stamp, _, _ := strings.Cut(token, "-")
	ms, _ := strconv.ParseInt(stamp, 16, 64)
	return time.UnixMilli(ms)
}

// pack turns a value into compressed JSON.
func pack(v any) ([]byte, error) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(data []byte, v any) error {
	z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxSpec))
	if err != nil {
		return err
	}
	defer z.Close()
	return json.NewDecoder(z).Decode(v)
}

// writeSpec writes the parts of a specification under a new token.
func (s *Store) writeSpec(ctx context.Context, spec *slice.Slice) (token string, err error) {
	plain := *spec
	plain.ID, plain.Generation = 0, 0 // the record has them
	data, err := pack(&plain)
	if err != nil {
		return "", fmt.Errorf("encode slice %s: %w", spec.Name, err)
	}
	if err := s.room(len(data)); err != nil {
		return "", err
	}
	token = newToken(time.Now())
	for part := 0; len(data) > 0; part++ {
		n := min(len(data), partSize)
		if err := s.put(ctx, s.key("specs", spec.Name, token, fmt.Sprintf("%06d", part)), string(data[:n])); err != nil {
			s.dropSpec(spec.Name, token)
			return "", err
		}
		data = data[n:]
	}
	return token, nil
}

// dropSpec removes parts that never came to be used. What it leaves is swept later.
func (s *Store) dropSpec(name, token string) {
	_ = s.request(context.Background(), "write", func(ctx context.Context) error {
		_, err := s.kv.Delete(ctx, s.key("specs", name, token, ""), clientv3.WithPrefix())
		return err
	})
}

// readSpec reads the specification of a record as it was at a revision of the store. compacted tells that the
// revision is too old by now.
func (s *Store) readSpec(ctx context.Context, r Record, revision int64) (spec *slice.Slice, compacted bool, err error) {
	if spec := s.cache.get(r); spec != nil {
		return spec, false, nil
	}
	got, err := s.get(ctx, s.key("specs", r.Name, r.Token, ""), clientv3.WithPrefix(), clientv3.WithRev(revision))
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
	if err := unpack(data, spec); err != nil {
		return nil, false, fmt.Errorf("decode slice %s of %s: %w (%w)", r.Name, s.where(), ErrCorrupt, err)
	}
	spec.Name, spec.ID, spec.Generation = r.Name, r.ID, r.Generation
	s.cache.put(r, spec)
	return spec, false, nil
}

// sweep removes parts that no record points to and that are older than age: what a crash left behind.
func (s *Store) sweep(ctx context.Context, age time.Duration) error {
	records, err := s.Slices(ctx)
	if err != nil {
		return err
	}
	used, corrupt := map[string]string{}, map[string]bool{}
	for _, r := range records {
		used[r.Name], corrupt[r.Name] = r.Token, r.Corrupt
	}
	got, err := s.get(ctx, s.key("specs", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range got.Kvs {
		parts := strings.Split(strings.TrimPrefix(string(kv.Key), s.key("specs", "")), "/")
		if len(parts) != 3 || used[parts[0]] == parts[1] || corrupt[parts[0]] || time.Since(tokenTime(parts[1])) < age {
			continue
		}
		s.dropSpec(parts[0], parts[1])
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
