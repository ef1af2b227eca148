package kv

import (
	"context"
	"net/url"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// probeTimeout bounds a question for the status of a server.
const probeTimeout = 2 * time.Second

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
