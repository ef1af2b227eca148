package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/pergola-net/pergola/control/pki"
)

// ClusterConfig makes the embedded etcd a member of a cluster: other members and the agents of other hosts reach it, by
// mutual TLS with the cluster's certificates.
//
// A store that was opened without it keeps its contents when it is opened with it: so a single machine becomes the
// first member.
type ClusterConfig struct {
	Name string // of this member: its host's
	// Where it listens: address:port. Port 0 is any that is free.
	ListenPeer, ListenClient string
	// How the others reach it: https://address:port. Empty: where it listens. The certificate must name the peer
	// URL's address, because etcd's members compare it.
	AdvertisePeer, AdvertiseClient string
	// Identity is its certificate and key. It is called again and again: a renewed certificate is shown within a
	// minute.
	Identity func() *pki.Identity
	// Initial are all members and their peer URLs, this one's included, as AddMember returned them. It counts only
	// where the directory is new. A member that was there before, and the first one, need none.
	Initial map[string]string
	// Refused, if set, is called when a revoked certificate was refused, with the host's name and the remote
	// address.
	Refused func(host, from string, why error)
	// ElectionTimeout is after how long without a leader a member starts an election; 0: 1.5 s, for machines with
	// other things to do.
	ElectionTimeout time.Duration
}

const (
	clusterElection = 1500 * time.Millisecond
	electionTicks   = 15
	clusterEntries  = 512
)

func (c *ClusterConfig) electionTime() time.Duration {
	if c.ElectionTimeout > 0 {
		return c.ElectionTimeout
	}
	return clusterElection
}

// configure fills the part of etcd's configuration that a member of a cluster needs. etcd dials its peers with
// certificates from files; everything that listens is ours (see listeners).
func (c *ClusterConfig) configure(ctx context.Context, cfg *embed.Config, l *listeners) error {
	peer, err := advertised(c.AdvertisePeer, l.peer)
	if err != nil {
		return fmt.Errorf("peer address: %w", err)
	}
	client, err := advertised(c.AdvertiseClient, l.client)
	if err != nil {
		return fmt.Errorf("client address: %w", err)
	}
	if err := c.Identity().Certificate.VerifyHostname(peer.Hostname()); err != nil {
		return fmt.Errorf("the certificate of %s does not fit the address %s by which "+
			"other servers reach it: %w", c.Name, peer.Host, err)
	}
	cfg.Name = c.Name
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*client}
	cfg.InitialCluster = c.Name + "=" + peer.String()
	if len(c.Initial) > 0 && !joined(cfg.Dir) {
		cfg.ClusterState = embed.ClusterStateFlagExisting
		cfg.InitialCluster = initialCluster(c.currentInitial(ctx, peer.String()))
	}
	election := c.electionTime()
	cfg.TickMs, cfg.ElectionMs = uint((election / electionTicks).Milliseconds()), uint(election.Milliseconds())
	cfg.MaxLearners = maxLearners
	// A member that is behind by more than this is sent the whole database.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = clusterEntries, clusterEntries
	cfg.PeerTLSInfo = l.peerFiles()
	return nil
}

// joined reports whether a member was there before: then its files name the others.
func joined(dir string) bool {
	return wal.Exist(filepath.Join(dir, "member", "wal"))
}

// currentInitial is Initial as the other servers have it now: another server may have been added after this one, and
// etcd starts with the exact list only.
func (c *ClusterConfig) currentInitial(ctx context.Context, own string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, membershipTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: pki.ClientConfig(c.Identity), TLSHandshakeTimeout: probeTimeout,
	}}
	defer client.CloseIdleConnections()
	for _, peer := range c.Initial {
		if peer == own {
			continue
		}
		if members, err := peerMembers(ctx, client, peer); err == nil {
			return initialMembers(members, c.Name, own)
		}
	}
	return c.Initial
}

// peerMembers asks a server for the members, at its peer URL.
func peerMembers(ctx context.Context, client *http.Client, peer string) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, peer+"/members", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var listed []struct {
		ID       uint64   `json:"id"`
		PeerURLs []string `json:"peerURLs"`
		Name     string   `json:"name"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&listed); err != nil {
		return nil, err
	}
	members := make([]*pb.Member, len(listed))
	for i, m := range listed {
		members[i] = &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs}
	}
	return members, nil
}

// advertised gives the URL by which others reach a listener.
func advertised(wanted string, listener net.Listener) (*url.URL, error) {
	if wanted == "" {
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok || address.IP.IsUnspecified() {
			return nil, fmt.Errorf("it listens at %s, which is no address that others could use: say which",
				listener.Addr())
		}
		wanted = "https://" + address.String()
	}
	u, err := url.Parse(wanted)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return nil, fmt.Errorf("%s is none of the form https://address:port", wanted)
	}
	return u, nil
}
