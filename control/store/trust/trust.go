// Package trust keeps the trust of the cluster in the store: the certificate authority with its key, the grants of
// tokens, and which certificate makes a host a member.
package trust

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/kv"
	"github.com/pergola-net/pergola/control/store/record"
)

// Errors that callers decide on.
var (
	ErrNoGrant     = errors.New("no such token")
	ErrNoAuthority = errors.New("the cluster has no certificate authority yet")
	ErrAuthority   = errors.New("the cluster has a certificate authority already")
)

// Trust is the part of a store that holds the cluster's trust. It is safe for concurrent use.
type Trust struct{ db *kv.DB }

// New opens the trust of a store.
func New(db *kv.DB) *Trust { return &Trust{db} }

// key names what only servers may touch.
func (t *Trust) key(parts ...string) string { return t.db.Prefix().TrustKey(parts...) }

type authority struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// PutAuthority stores the cluster's certificate authority with its private key: once. ErrAuthority means that there is
// one already.
func (t *Trust) PutAuthority(ctx context.Context, certPEM, keyPEM []byte) error {
	data, err := json.Marshal(authority{string(certPEM), string(keyPEM)})
	if err != nil {
		return err
	}
	key := t.key("authority")
	missing := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	ok, err := t.db.Commit(ctx, []clientv3.Cmp{missing}, clientv3.OpPut(key, string(data)))
	if err == nil && !ok {
		return ErrAuthority
	}
	return err
}

// ReplaceAuthority stores another authority in the place of the cluster's, and admits the server that made it (see
// Admit). Tokens that name the old one are removed.
func (t *Trust) ReplaceAuthority(ctx context.Context, certPEM, keyPEM []byte, by *x509.Certificate) error {
	data, err := json.Marshal(authority{string(certPEM), string(keyPEM)})
	if err != nil {
		return err
	}
	_, err = t.db.Commit(ctx, nil,
		clientv3.OpPut(t.key("authority"), string(data)),
		clientv3.OpDelete(t.key("grants", ""), clientv3.WithPrefix()),
		t.admit(by))
	return err
}

// Authority gives what PutAuthority stored, or ErrNoAuthority.
func (t *Trust) Authority(ctx context.Context) (certPEM, keyPEM []byte, err error) {
	got, err := t.db.Get(ctx, t.key("authority"))
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

// grantKept is how long a grant is kept after its token expired: a machine that uses the token is told that it expired.
const grantKept = 24 * time.Hour

// PutGrant stores the grant of a token. It goes by itself some time after the token expired.
func (t *Trust) PutGrant(ctx context.Context, g pki.Grant) error {
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	lease, err := t.db.GrantLease(ctx, max(g.Expires.Sub(g.Created), 0)+grantKept)
	if err != nil {
		return err
	}
	_, err = t.db.Commit(ctx, nil, clientv3.OpPut(t.key("grants", g.ID), string(data), clientv3.WithLease(lease)))
	if err != nil {
		t.db.RevokeLease(lease)
	}
	return err
}

// Grants lists the grants, the newest first, those that expired lately included.
func (t *Trust) Grants(ctx context.Context) ([]pki.Grant, error) {
	got, err := t.db.Get(ctx, t.key("grants", ""), clientv3.WithPrefix())
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
func (t *Trust) Grant(ctx context.Context, id string) (pki.Grant, error) {
	got, err := t.db.Get(ctx, t.key("grants", id))
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

// DeleteGrant revokes a token: no machine joins by it any more. ErrNoGrant means that there is none.
func (t *Trust) DeleteGrant(ctx context.Context, id string) error {
	var deleted int64
	err := t.db.Request(ctx, "write", func(ctx context.Context) error {
		r, err := t.db.Etcd().Delete(ctx, t.key("grants", id))
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

// Admit makes a certificate's owner the member of its name: certificates of that name for other keys are revoked.
func (t *Trust) Admit(ctx context.Context, cert *x509.Certificate) error {
	_, err := t.db.Commit(ctx, nil, t.admit(cert))
	return err
}

func (t *Trust) admit(cert *x509.Certificate) clientv3.Op {
	admission := record.Admit(cert, time.Now())
	return clientv3.OpPut(t.db.Prefix().AdmissionKey(cert.Subject.CommonName), admission.Encode())
}

// Revoke is the operation that revokes all certificates of a host's name. It is for a transaction that removes the
// host.
func (t *Trust) Revoke(host string) clientv3.Op {
	return clientv3.OpPut(t.db.Prefix().AdmissionKey(host), record.Admission{Since: time.Now()}.Encode())
}

// Check returns an ErrNoHost or an ErrReplaced where a certificate is revoked; nil where its owner is a member.
func (t *Trust) Check(ctx context.Context, cert *x509.Certificate) error {
	got, err := t.db.Get(ctx, t.db.Prefix().AdmissionKey(cert.Subject.CommonName))
	if err != nil {
		return err
	}
	if len(got.Kvs) > 0 {
		return record.DecodeAdmission(got.Kvs[0].Value).Check(cert)
	}
	got, err = t.db.Get(ctx, t.db.Prefix().TrustKey("barred", cert.Subject.CommonName))
	if err == nil && len(got.Kvs) > 0 && record.Barred(got.Kvs[0].Value, cert) {
		err = record.Admission{Since: time.Now()}.Check(cert)
	}
	return err
}
