package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/pki"
)

// roleGuard stands between a member's etcd and who calls it. Servers may do anything. Agents take part in what the cluster keeps of
// slices and hosts; the authority's key and the tokens are not theirs, nor is the membership. That keeps a host out for good that was broken
// into and removed. As long as it is a member it can write slices; what these may have of a host itself, the host decides (substrate.Terms).
type roleGuard struct {
	prefix  string
	kv      mvcc.KV // what this member knows
	refused func(host, from string, why error)
}

func (g roleGuard) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := g.refuses(ctx, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (g roleGuard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	switch info.FullMethod {
	case pb.Watch_Watch_FullMethodName, pb.Lease_LeaseKeepAlive_FullMethodName:
		return handler(srv, guardedStream{s, g})
	}
	if !isServer(s.Context()) {
		return errServersOnly
	}
	return handler(srv, guardedStream{s, g})
}

// guardedStream looks at each message of a stream.
type guardedStream struct {
	grpc.ServerStream
	guard roleGuard
}

func (s guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.guard.refuses(s.Context(), m)
}

const servedToServers = "only servers of the cluster may do this"

var errServersOnly = status.Error(codes.PermissionDenied, servedToServers)

// refuses says why who calls may not do something; nil where it may.
func (g roleGuard) refuses(ctx context.Context, req any) error {
	if err := g.outcast(stateOf(ctx)); err != nil {
		if from, ok := peer.FromContext(ctx); ok {
			g.tell(stateOf(ctx), from.Addr, err)
		}
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if !isServer(ctx) && !g.allows(req) {
		return errServersOnly
	}
	return nil
}

// tell lets this server say who came with a certificate that counts no more.
func (g roleGuard) tell(state *tls.ConnectionState, from net.Addr, why error) {
	if cert := pki.CertificateOf(state); cert != nil && g.refused != nil {
		g.refused(cert.Subject.CommonName, from.String(), why)
	}
}

// outcast says why a caller is no member, though it has a certificate (see admission); nil where it is one.
func (g roleGuard) outcast(state *tls.ConnectionState) error {
	cert := pki.CertificateOf(state)
	if cert == nil {
		return errNoIdentity
	}
	a, ok := g.admission(cert)
	if !ok {
		return nil
	}
	return a.refuses(cert)
}

// outcastPeer is outcast at the door by which servers hear of each other.
func (g roleGuard) outcastPeer(state *tls.ConnectionState, from net.Addr) error {
	err := g.outcast(state)
	if err == nil {
		return nil
	}
	if cert := pki.CertificateOf(state); cert != nil {
		if a, ok := g.admission(cert); ok && a.mayBeNews(cert) {
			return nil
		}
	}
	g.tell(state, from, err)
	return err
}

func (g roleGuard) admission(cert *x509.Certificate) (a admission, ok bool) {
	got, err := g.kv.Range(context.Background(), []byte(admissionKey(g.prefix, cert.Subject.CommonName)), nil, mvcc.RangeOptions{})
	if err != nil || len(got.KVs) == 0 {
		return admission{}, false
	}
	return decodeAdmission(got.KVs[0].Value), true
}

func isServer(ctx context.Context) bool {
	m, ok := pki.PeerOf(stateOf(ctx))
	return ok && m.Role == pki.Server
}

// stateOf is the connection by which a caller came; nil where it is none by TLS.
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

// allows says whether an agent may ask for it. What is not named here it may not.
func (g roleGuard) allows(req any) bool {
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

func (g roleGuard) allowsTxn(r *pb.TxnRequest) bool {
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

func (g roleGuard) allowsOp(op *pb.RequestOp) bool {
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

// isAdmission says that a range is one host's admission: agents have doors, too.
func (g roleGuard) isAdmission(r *pb.RangeRequest) bool {
	return len(r.RangeEnd) == 0 && strings.HasPrefix(string(r.Key), admissionKey(g.prefix, ""))
}

// within says whether a range lies below the prefix. An empty end means one key; "\x00" means all that follow.
func (g roleGuard) within(key, end []byte) bool {
	last := clientv3.GetPrefixRangeEnd(g.prefix)
	if string(key) < g.prefix || string(key) >= last {
		return false
	}
	return len(end) == 0 || string(end) != "\x00" && string(end) <= last
}
