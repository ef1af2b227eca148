package store

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/pki"
)

// Errors that callers decide on.
var (
	ErrNoGrant     = errors.New("no such token")
	ErrNoAuthority = errors.New("the cluster has no certificate authority yet")
	ErrAuthority   = errors.New("the cluster has a certificate authority already")
)

// trustKey names what only servers may touch: it lies beside the prefix, not below it, and the door for agents lets nothing of it through.
func (s *Store) trustKey(parts ...string) string { return trustKey(s.prefix, parts...) }

func trustKey(prefix string, parts ...string) string {
	return strings.TrimSuffix(prefix, "/") + "-trust/" + strings.Join(parts, "/")
}

type authority struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// PutAuthority stores the cluster's certificate authority with its private key: once. ErrAuthority says that there is one.
func (s *Store) PutAuthority(ctx context.Context, certPEM, keyPEM []byte) error {
	data, err := json.Marshal(authority{string(certPEM), string(keyPEM)})
	if err != nil {
		return err
	}
	key := s.trustKey("authority")
	ok, err := s.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, clientv3.OpPut(key, string(data)))
	if err == nil && !ok {
		return ErrAuthority
	}
	return err
}

// ReplaceAuthority puts another authority in the place of the cluster's, and admits the server that made it (see Admit). Tokens that name the old one are
// gone with it.
func (s *Store) ReplaceAuthority(ctx context.Context, certPEM, keyPEM []byte, by *x509.Certificate) error {
	data, err := json.Marshal(authority{string(certPEM), string(keyPEM)})
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, nil, clientv3.OpPut(s.trustKey("authority"), string(data)), clientv3.OpDelete(s.trustKey("grants", ""), clientv3.WithPrefix()), s.admit(by))
	return err
}

// Authority gives what PutAuthority stored, or ErrNoAuthority. Agents may not ask.
func (s *Store) Authority(ctx context.Context) (certPEM, keyPEM []byte, err error) {
	got, err := s.get(ctx, s.trustKey("authority"))
	if err != nil {
		return nil, nil, err
	}
	if len(got.Kvs) == 0 {
		return nil, nil, ErrNoAuthority
	}
	var a authority
	if err := json.Unmarshal(got.Kvs[0].Value, &a); err != nil {
		return nil, nil, fmt.Errorf("decode the certificate authority: %w", err)
	}
	return []byte(a.Certificate), []byte(a.Key), nil
}

// grantKept is how long a grant is kept after its token expired, so that who uses it is told that it did.
const grantKept = 24 * time.Hour

// PutGrant stores the grant of a token. It goes by itself some time after it expired.
func (s *Store) PutGrant(ctx context.Context, g pki.Grant) error {
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	ttl := max(g.Expires.Sub(g.Created), 0) + grantKept
	return s.request(ctx, "write", func(ctx context.Context) error {
		lease, err := s.kv.Grant(ctx, int64(ttl/time.Second))
		if err == nil {
			_, err = s.kv.Put(ctx, s.trustKey("grants", g.ID), string(data), clientv3.WithLease(lease.ID))
		}
		return err
	})
}

// Grants lists the grants, the newest first, those that expired lately included.
func (s *Store) Grants(ctx context.Context) ([]pki.Grant, error) {
	got, err := s.get(ctx, s.trustKey("grants", ""), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	grants := make([]pki.Grant, 0, len(got.Kvs))
	for _, kv := range got.Kvs {
		var g pki.Grant
		if err := json.Unmarshal(kv.Value, &g); err != nil {
			return nil, fmt.Errorf("decode the grant of a token: %w", err)
		}
		grants = append(grants, g)
	}
	sort.Slice(grants, func(i, j int) bool { return grants[i].Created.After(grants[j].Created) })
	return grants, nil
}

// Grant gives one grant by its token's ID, or ErrNoGrant. Whether the token holds, Grant.Check says.
func (s *Store) Grant(ctx context.Context, id string) (pki.Grant, error) {
	got, err := s.get(ctx, s.trustKey("grants", id))
	if err != nil {
		return pki.Grant{}, err
	}
	if len(got.Kvs) == 0 {
		return pki.Grant{}, fmt.Errorf("%s: %w", id, ErrNoGrant)
	}
	var g pki.Grant
	if err := json.Unmarshal(got.Kvs[0].Value, &g); err != nil {
		return pki.Grant{}, fmt.Errorf("decode the grant of token %s: %w", id, err)
	}
	return g, nil
}

// DeleteGrant revokes a token: nobody joins by it any more. ErrNoGrant says that there is none.
func (s *Store) DeleteGrant(ctx context.Context, id string) error {
	var deleted int64
	err := s.request(ctx, "write", func(ctx context.Context) error {
		r, err := s.kv.Delete(ctx, s.trustKey("grants", id))
		if err == nil {
			deleted = r.Deleted
		}
		return err
	})
	if err == nil && deleted == 0 {
		return fmt.Errorf("%s: %w", id, ErrNoGrant)
	}
	return err
}
