package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/pergola-net/pergola/control/pki"
)

// ClusterConfig makes the embedded etcd a member of a cluster: other members and the agents of other hosts reach it, by mutual
// TLS with the cluster's certificates.
//
// A store that was opened without it keeps what it has when it is opened with it: so a single machine becomes the first member.
type ClusterConfig struct {
	Name string // of this member: its host's
	// Where it listens: address:port. Port 0 is any that is free.
	ListenPeer, ListenClient string
	// How the others reach it: https://address:port. Empty: where it listens. The certificate must name the peer URL's address,
	// because etcd's members compare it.
	AdvertisePeer, AdvertiseClient string
	// Identity is what it proves itself with. It is asked for again and again: a renewed certificate counts within a minute.
	Identity func() *pki.Identity
	// Initial are all members and their peer URLs, this one's included, as AddMember gave them to who joins. It counts only where the
	// directory is new. A member that was there before, and the first one, need none.
	Initial map[string]string
	// Refused, if set, is told of who came with a certificate that counts no more.
	Refused func(host, from string, why error)

	election time.Duration // tests have less time; 0: clusterElection
}

// Members of a cluster hear each other over a network, and on machines with other things to do.
const (
	clusterElection = 1500 * time.Millisecond
	electionTicks   = 15
	clusterEntries  = 512
)

func (c *ClusterConfig) electionTime() time.Duration {
	if c.election > 0 {
		return c.election
	}
	return clusterElection
}

// membership fills the part of etcd's configuration that a member of a cluster needs. etcd dials its peers by files;
// everything that listens is ours (see doors).
func (c *ClusterConfig) membership(ctx context.Context, cfg *embed.Config, doors *doors) error {
	peer, err := advertised(c.AdvertisePeer, doors.peer)
	if err != nil {
		return fmt.Errorf("peer address: %w", err)
	}
	client, err := advertised(c.AdvertiseClient, doors.client)
	if err != nil {
		return fmt.Errorf("client address: %w", err)
	}
	if err := c.Identity().Certificate.VerifyHostname(peer.Hostname()); err != nil {
		return fmt.Errorf("the certificate of %s does not fit the address %s by which other servers reach it: %w", c.Name, peer.Host, err)
	}
	cfg.Name = c.Name
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*client}
	cfg.InitialCluster = c.Name + "=" + peer.String()
	if len(c.Initial) > 0 && !joined(cfg.Dir) {
		cfg.ClusterState = embed.ClusterStateFlagExisting
		cfg.InitialCluster = initialCluster(c.freshInitial(ctx, peer.String()))
	}
	election := c.electionTime()
	cfg.TickMs, cfg.ElectionMs = uint((election / electionTicks).Milliseconds()), uint(election.Milliseconds())
	cfg.MaxLearners = maxLearners
	// A member that is behind by more than this is sent the whole database.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = clusterEntries, clusterEntries
	cfg.PeerTLSInfo = doors.peerFiles()
	return nil
}

// joined says whether a member was there before: then its files know the others.
func joined(dir string) bool {
	return wal.Exist(filepath.Join(dir, "member", "wal"))
}

// freshInitial is Initial as the other servers know it now: another server may have been let in after this one, and etcd starts
// with the exact list alone.
func (c *ClusterConfig) freshInitial(ctx context.Context, own string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, membershipTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.ClientConfig(c.Identity), TLSHandshakeTimeout: probeTimeout}}
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

// peerMembers asks a server by the address at which etcd's members talk.
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

// advertised gives the URL by which others reach what listens there.
func advertised(wanted string, listener net.Listener) (*url.URL, error) {
	if wanted == "" {
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok || address.IP.IsUnspecified() {
			return nil, fmt.Errorf("it listens at %s, which is no address that others could use: say which", listener.Addr())
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

// peerFiles says where etcd finds what it proves itself with to its peers. It reads the files at each connection. Certificate and key
// are one file, so that a renewal replaces both at once.
func (d *doors) peerFiles() transport.TLSInfo {
	member := filepath.Join(d.dir, "member.pem")
	return transport.TLSInfo{CertFile: member, KeyFile: member, TrustedCAFile: filepath.Join(d.dir, "authority.pem"), ClientCertAuth: true}
}

// writeIdentity writes those files, unless they hold the identity already.
func (d *doors) writeIdentity() error {
	id := d.identity()
	key, err := pki.EncodeKey(id.Key)
	if err != nil {
		return err
	}
	authority := pki.EncodeCertificate(id.Authority)
	files := d.peerFiles()
	if err := replace(files.TrustedCAFile, authority); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	if err := replace(files.CertFile, bytes.Join([][]byte{pki.EncodeCertificate(id.Certificate), authority, key}, nil)); err != nil {
		return fmt.Errorf("write the member's certificate: %w", err)
	}
	return nil
}

// replace gives a private file another content at once.
func replace(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

// renewEvery is how soon a renewed certificate counts among peers.
const renewEvery = time.Minute

func (d *doors) keepIdentity(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = d.writeIdentity() // the old one holds for weeks
		}
	}
}

var errNoIdentity = errors.New("a cluster needs a certificate")
