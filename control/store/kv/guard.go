package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/record"
)

// guard checks who connects to a member's listeners: servers of the cluster alone, and none that was removed. (Agents
// have no part in the store: see package agents.)
type guard struct {
	prefix  record.Prefix
	kv      *readable
	refused func(host, from string, why error)
}

// readable is what a member has, until it is closed. etcd ends with a panic where something reads what it has closed:
// handshakes of peers, and requests whose handlers have ended, do so.
type readable struct {
	mvcc.KV

	mu     sync.RWMutex // held by those who read; guards closed
	closed bool
}

var errClosed = errors.New("this server is stopping")

// get reads one key; nil: there is none.
func (r *readable) get(key string) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, errClosed
	}
	got, err := r.Range(context.Background(), []byte(key), nil, mvcc.RangeOptions{})
	if err != nil || len(got.KVs) == 0 {
		return nil, nil
	}
	return got.KVs[0].Value, nil
}

// close returns when nobody reads any more.
func (r *readable) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
}

// report passes on whose certificate was refused.
func (g guard) report(state *tls.ConnectionState, from net.Addr, why error) {
	if cert := pki.CertificateOf(state); cert != nil && g.refused != nil {
		g.refused(cert.Subject.CommonName, from.String(), why)
	}
}

// revoked returns why a caller's certificate does not count (see record.Admission); nil where it does.
func (g guard) revoked(state *tls.ConnectionState) error {
	cert := pki.CertificateOf(state)
	if cert == nil {
		return errNoIdentity
	}
	a, ok, err := g.admission(cert)
	if err != nil || !ok {
		return err
	}
	return a.Check(cert)
}

// revokedPeer is revoked for the connections of servers to each other, which bring later admissions to this server: one
// may have been admitted a moment ago.
func (g guard) revokedPeer(state *tls.ConnectionState, from net.Addr) error {
	err := g.revoked(state)
	if err == nil || errors.Is(err, errClosed) { // the latter says nothing of the peer
		return err
	}
	if cert := pki.CertificateOf(state); cert != nil {
		if a, ok, _ := g.admission(cert); ok && a.MayBeOutdated(cert) {
			return nil
		}
	}
	g.report(state, from, err)
	return err
}

func (g guard) admission(cert *x509.Certificate) (a record.Admission, ok bool, err error) {
	name := cert.Subject.CommonName
	data, err := g.kv.get(g.prefix.AdmissionKey(name))
	if err != nil || data != nil {
		return record.DecodeAdmission(data), data != nil, err
	}
	data, err = g.kv.get(g.prefix.TrustKey("barred", name))
	if err != nil || data == nil {
		return record.Admission{}, false, err
	}
	return record.Admission{Since: time.Now()}, record.Barred(data, cert), nil
}
