package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strconv"
	"strings"
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
)

// roleGuard stands between a member's etcd and who calls it. Servers may do anything. Agents take part in what the cluster keeps of
// slices and hosts; the authority's key and the tokens are not theirs, nor is the membership. That keeps a host out for good that was broken
// into and removed. As long as it is a member it can write slices; what these may have of a host itself, the host decides (substrate.Terms).
type roleGuard struct {
	prefix  string
	kv      mvcc.KV                     // what this member knows
	settle  func(context.Context) error // returns once it knows what the servers agree on at this moment
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
	default:
		if !isServer(s.Context()) {
			return errServersOnly
		}
	}
	ctx, end := context.WithCancelCause(s.Context())
	defer end(nil)
	err := handler(srv, guardedStream{s, g, ctx, end})
	if why := new(turnedAway); errors.As(context.Cause(ctx), &why) {
		return why.error
	}
	return err
}

// guardedStream looks at each message of a stream: what is asked, and who hears the answer. A watch may have begun before its host was removed.
type guardedStream struct {
	grpc.ServerStream
	guard roleGuard
	ctx   context.Context
	end   context.CancelCauseFunc
}

// turnedAway is the cause by which a stream ends whose caller is no member any more. etcd's handlers do not end by an error of SendMsg.
type turnedAway struct{ error }

func (s guardedStream) Context() context.Context { return s.ctx }

func (s guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.guard.refuses(s.ctx, m)
}

func (s guardedStream) SendMsg(m any) error {
	if err := s.guard.turnsAway(s.ctx); err != nil {
		s.end(&turnedAway{err})
		return err
	}
	return s.ServerStream.SendMsg(m)
}

const servedToServers = "only servers of the cluster may do this"

var (
	errServersOnly = status.Error(codes.PermissionDenied, servedToServers)
	errUnsettled   = status.Error(codes.Unavailable, "this server reaches too few of the others to know whether the caller is a member")
)

// refuses says why who calls may not do something; nil where it may.
func (g roleGuard) refuses(ctx context.Context, req any) error {
	if err := g.turnsAway(ctx); err != nil {
		return err
	}
	if !isServer(ctx) && !g.allows(req) {
		return errServersOnly
	}
	return nil
}

// turnsAway says why who calls is no member; nil where it is one. To a member that is final: so this server first makes sure that it has heard of all
// who joined. Another one may have let the caller in a moment ago.
func (g roleGuard) turnsAway(ctx context.Context) error {
	state := stateOf(ctx)
	if g.outcast(state) == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := g.settle(asked); err != nil {
		return errUnsettled
	}
	err := g.outcast(state)
	if err == nil {
		return nil
	}
	if from, ok := peer.FromContext(ctx); ok {
		g.tell(state, from.Addr, err)
	}
	return status.Error(codes.PermissionDenied, err.Error())
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
	name := cert.Subject.CommonName
	if data := g.trust("admissions", name); data != nil {
		return decodeAdmission(data), true
	}
	if data := g.trust("barred", name); data != nil {
		return admission{Since: time.Now()}, isBarred(data, cert)
	}
	return admission{}, false
}

// isBarred reads what versions before admissions wrote when a host was removed: from when on certificates of its name count again, in Unix time.
func isBarred(data []byte, cert *x509.Certificate) bool {
	until, err := strconv.ParseInt(string(data), 10, 64)
	return err != nil || cert.NotBefore.Unix() < until
}

// trust gives what this member has of one of a host's keys among those of the cluster's trust; nil: nothing.
func (g roleGuard) trust(kind, host string) []byte {
	got, err := g.kv.Range(context.Background(), []byte(trustKey(g.prefix, kind, host)), nil, mvcc.RangeOptions{})
	if err != nil || len(got.KVs) == 0 {
		return nil
	}
	return got.KVs[0].Value
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
