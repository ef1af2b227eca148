package kv

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/pergola-net/pergola/control/store/record"
)

// isFollower reports whether the store is that of the cluster's servers, and this process is none of them.
func (d *DB) isFollower() bool { return d.embedded == nil && d.servers != nil }

// A follower's request without an answer after probeAfter makes it probe all servers; it is given up when none has
// answered after unreachableAfter.
const (
	probeAfter       = time.Second
	unreachableAfter = 2500 * time.Millisecond
	probeTimeout     = 2 * time.Second
)

// cancelIfUnreachable ends a request that no server will answer, long before its time is over. It returns when the
// request has ended, or a server answers.
func (d *DB) cancelIfUnreachable(ctx context.Context, end context.CancelCauseFunc) {
	for began := time.Now().Add(-probeAfter); ; {
		why := d.probeAny(ctx)
		switch {
		case why == nil || ctx.Err() != nil:
			return
		case time.Since(began) >= unreachableAfter:
			end(d.unreachable(why))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// unreachable makes an ErrUnreachable that names the servers.
func (d *DB) unreachable(why error) error {
	var servers []string
	for _, endpoint := range d.etcd.Endpoints() {
		servers = append(servers, strings.TrimPrefix(endpoint, "https://"))
	}
	return fmt.Errorf("%w (%s: %s); what runs here goes on",
		record.ErrUnreachable, strings.Join(servers, ", "), reason(why))
}

// reason puts gRPC's error of a connection that failed into words for a user.
func reason(err error) string {
	text := status.Convert(err).Message()
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return fmt.Sprintf("no answer within %v", probeTimeout)
	case strings.Contains(text, unix.ECONNREFUSED.Error()):
		return unix.ECONNREFUSED.Error()
	}
	if _, desc, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimSuffix(desc, `"`)
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "transport: "), "authentication handshake failed: ")
}

// probeAny probes the endpoints until one answers. If none does, it returns the error of the last one: a refused
// connection, for instance, or a certificate that does not hold.
func (d *DB) probeAny(ctx context.Context) error {
	endpoints := d.etcd.Endpoints()
	answers := make(chan error, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			_, err := d.probe(ctx, endpoint)
			answers <- err
		}()
	}
	var why error
	for range endpoints {
		err := <-answers
		if err == nil {
			return nil
		}
		why = err
	}
	return why
}

// probe asks one server for its status. It fails if there is no answer within probeTimeout, unlike etcd's client, which
// waits.
func (d *DB) probe(ctx context.Context, endpoint string) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host,
		grpc.WithTransportCredentials(credentials.NewTLS(d.servers)), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
}
