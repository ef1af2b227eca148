package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/record"
)

// guard checks the requests of a member's clients. Servers may do anything. Agents may read and write what lies below
// the prefix: slices and hosts. The authority's key, the tokens and the membership are closed to them, which keeps a
// host out for good that was broken into and removed. As long as it is a member, it can write slices; what these may
// have of a host, the host itself decides (hosts.Terms).
type guard struct {
	prefix  record.Prefix
	kv      *readable
	catchUp func(context.Context) error // returns once it has what the servers agree on at this moment
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

func (g guard) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := g.check(ctx, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (g guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	switch info.FullMethod {
	case pb.Watch_Watch_FullMethodName, pb.Lease_LeaseKeepAlive_FullMethodName:
	default:
		if !isServer(s.Context()) {
			return errServersOnly
		}
	}
	ctx, end := context.WithCancelCause(s.Context())
	defer end(nil)
	err := handler(srv, guardedStream{s, g, ctx, end})
	if why := new(notMember); errors.As(context.Cause(ctx), &why) {
		return why.error
	}
	return err
}

// guardedStream checks each message of a stream, the answers included: a watch may have begun before its host was
// removed.
type guardedStream struct {
	grpc.ServerStream
	guard guard
	ctx   context.Context
	end   context.CancelCauseFunc
}

// notMember is the cause by which a stream ends whose caller is no member any more. etcd's handlers do not end by an
// error of SendMsg.
type notMember struct{ error }

func (s guardedStream) Context() context.Context { return s.ctx }

func (s guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.guard.check(s.ctx, m)
}

func (s guardedStream) SendMsg(m any) error {
	if err := s.guard.checkMember(s.ctx); err != nil {
		s.end(&notMember{err})
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// serversOnly is the message of a request that agents may not make.
const serversOnly = "only servers of the cluster may do this"

var (
	errServersOnly = status.Error(codes.PermissionDenied, serversOnly)
	errOutdated    = status.Error(codes.Unavailable,
		"this server reaches too few of the others to know whether the caller is a member")
	errStopping = status.Error(codes.Unavailable, errClosed.Error())
)

// check returns why the caller may not make a request; nil where it may.
func (g guard) check(ctx context.Context, req any) error {
	if err := g.checkMember(ctx); err != nil {
		return err
	}
	if !isServer(ctx) && !g.allows(req) {
		return errServersOnly
	}
	return nil
}

// checkMember returns why the caller is no member; nil where it is one. A refusal is final to the caller. So this
// server first catches up with the others: one of them may have admitted the caller a moment ago.
func (g guard) checkMember(ctx context.Context) error {
	state := stateOf(ctx)
	if g.revoked(state) == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := g.catchUp(asked); err != nil {
		return errOutdated
	}
	err := g.revoked(state)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errClosed): // which says nothing of the caller
		return errStopping
	}
	if from, ok := peer.FromContext(ctx); ok {
		g.report(state, from.Addr, err)
	}
	return status.Error(codes.PermissionDenied, err.Error())
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

// revokedPeer is revoked for the connections of servers to each other, which bring later admissions to this server.
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

func isServer(ctx context.Context) bool {
	m, ok := pki.PeerOf(stateOf(ctx))
	return ok && m.Role == pki.Server
}

// stateOf is the connection of a caller; nil where it is none by TLS.
func stateOf(ctx context.Context) *tls.ConnectionState {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return &info.State
}

// allows reports whether an agent may make a request. What is not named here is refused.
func (g guard) allows(req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return g.within(r.Key, r.RangeEnd) || g.isAdmission(r)
	case *pb.PutRequest:
		return g.within(r.Key, nil)
	case *pb.DeleteRangeRequest:
		return g.within(r.Key, r.RangeEnd)
	case *pb.TxnRequest:
		return g.allowsTxn(r)
	case *pb.WatchRequest:
		create := r.GetCreateRequest()
		return create == nil || g.within(create.Key, create.RangeEnd)
	case *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest, *pb.LeaseKeepAliveRequest, *pb.LeaseTimeToLiveRequest,
		*pb.MemberListRequest, *pb.StatusRequest, *healthpb.HealthCheckRequest:
		return true
	}
	return false
}

func (g guard) allowsTxn(r *pb.TxnRequest) bool {
	for _, c := range r.Compare {
		if !g.within(c.Key, c.RangeEnd) {
			return false
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if !g.allowsOp(op) {
				return false
			}
		}
	}
	return true
}

func (g guard) allowsOp(op *pb.RequestOp) bool {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return g.allows(r.RequestRange)
	case *pb.RequestOp_RequestPut:
		return g.allows(r.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return g.allows(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return g.allows(r.RequestTxn)
	}
	return false
}

// isAdmission reports whether a range is one host's admission: agents serve an API to members, too.
func (g guard) isAdmission(r *pb.RangeRequest) bool {
	return len(r.RangeEnd) == 0 && strings.HasPrefix(string(r.Key), g.prefix.AdmissionKey(""))
}

// within reports whether a range lies below the prefix. An empty end means one key; "\x00" means all that follow.
func (g guard) within(key, end []byte) bool {
	last := clientv3.GetPrefixRangeEnd(string(g.prefix))
	if string(key) < string(g.prefix) || string(key) >= last {
		return false
	}
	return len(end) == 0 || string(end) != "\x00" && string(end) <= last
}
