package store

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/pki"
)

// ErrReplaced means that another machine has the host's name now.
var ErrReplaced = errors.New("another machine joined the cluster")

// outcast is what is said to who has a certificate and is no member any more. It is an ErrNoHost and, where another machine has the name now, an
// ErrReplaced.
type outcast struct{ why string }

const removedHost = "this host was removed from the cluster: let it join again"

func (o *outcast) Error() string { return o.why }

// Is makes one of what came over the wire, as text, too.
func (o *outcast) Is(target error) bool {
	return target == ErrNoHost || target == ErrReplaced && strings.HasPrefix(o.why, ErrReplaced.Error())
}

// admission says by which key a host is a member. Certificates hold for weeks, and names are used again: one of the name for any other key is that of
// a host that was removed, or of one whose name another machine has taken. A renewed certificate is for the same key. A host without an admission (the
// one that made the cluster, and those that joined by a version before admissions) is a member by any certificate, unless that version removed it.
//
// A server that was removed is kept out like that, too; but it had the authority's key, and can sign itself another name: only another authority ends that.
type admission struct {
	Key   string    `json:"key,omitempty"` // SHA-256 of the public key; empty: the host was removed
	Since time.Time `json:"since"`
}

func admissionKey(prefix, host string) string { return trustKey(prefix, "admissions", host) }

func (a admission) encode() string {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // a string and a time
	}
	return string(data)
}

func decodeAdmission(data []byte) (a admission) {
	if err := json.Unmarshal(data, &a); err != nil {
		return admission{Since: time.Now()} // nobody's
	}
	return a
}

// refuses says why a certificate is worthless; nil where it counts.
func (a admission) refuses(cert *x509.Certificate) error {
	switch a.Key {
	case keyOf(cert):
		return nil
	case "":
		return &outcast{removedHost}
	}
	return &outcast{fmt.Sprintf("%v as host %s, at %s: let this one join again, under another name", ErrReplaced, cert.Subject.CommonName, a.Since.UTC().Format(time.RFC3339))}
}

// mayBeNews says that a certificate may be that of an admission which this server has not heard of yet: one that was off for long hears of servers that
// have joined meanwhile from nobody but them. Certificates hold from an hour before they are signed, so clocks that differ by less do not matter.
func (a admission) mayBeNews(cert *x509.Certificate) bool { return cert.NotBefore.After(a.Since) }

func keyOf(cert *x509.Certificate) string {
	pin := pki.Pin(cert)
	return hex.EncodeToString(pin[:])
}

// Admit makes a certificate's owner the one that is a member by its name: certificates of that name for other keys are worthless from then on.
func (s *Store) Admit(ctx context.Context, cert *x509.Certificate) error {
	_, err := s.commit(ctx, nil, s.admit(cert))
	return err
}

func (s *Store) admit(cert *x509.Certificate) clientv3.Op {
	return clientv3.OpPut(admissionKey(s.prefix, cert.Subject.CommonName), admission{Key: keyOf(cert), Since: time.Now()}.encode())
}

// expel is the operation by which DeleteHost makes all certificates of a name worthless.
func (s *Store) expel(host string) clientv3.Op {
	return clientv3.OpPut(admissionKey(s.prefix, host), admission{Since: time.Now()}.encode())
}

// Admits says whether a certificate's owner is a member: ErrNoHost or ErrReplaced say that it is not (any more).
func (s *Store) Admits(ctx context.Context, cert *x509.Certificate) error {
	name := cert.Subject.CommonName
	if _, err := s.HostState(ctx, name); err != nil {
		return err
	}
	got, err := s.get(ctx, admissionKey(s.prefix, name))
	if err != nil || len(got.Kvs) == 0 {
		return err
	}
	return decodeAdmission(got.Kvs[0].Value).refuses(cert)
}
