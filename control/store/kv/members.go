package kv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/control/store/record"
)

// Member is a server of the cluster.
type Member struct {
	Name               string // empty: it was added and never started
	PeerURL, ClientURL string
	Learner            bool // it joined, and has not caught up yet
	Leader             bool
	Answers            bool
	Version            string // of its etcd

	id uint64
}

// ErrNoMember means that no server of the cluster has a name.
var ErrNoMember = errors.New("no such server in the cluster")

// maxLearners lets several servers join at the same time.
const maxLearners = 4

// membershipTimeout bounds a change of the membership.
const membershipTimeout = 30 * time.Second

// Members lists the servers, sorted by name, and asks each whether it answers. It works without a quorum.
func (d *DB) Members(ctx context.Context) ([]Member, error) {
	listed, err := d.memberList(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, len(listed))
	var asked sync.WaitGroup
	for i, m := range listed {
		members[i] = Member{
			Name: m.Name, PeerURL: first(m.PeerURLs), ClientURL: first(m.ClientURLs),
			Learner: m.IsLearner, id: m.ID,
		}
		asked.Go(func() { d.probeMember(ctx, &members[i]) })
	}
	asked.Wait()
	sort.Slice(members, func(i, j int) bool { return members[i].Name < members[j].Name })
	return members, nil
}

func (d *DB) probeMember(ctx context.Context, m *Member) {
	if d.embedded != nil && uint64(d.embedded.etcd.Server.MemberID()) == m.id {
		server := d.embedded.etcd.Server
		m.Answers, m.Version = true, version.Version
		m.Leader = server.Leader() == server.MemberID()
		return
	}
	if m.ClientURL == "" || d.servers == nil {
		return
	}
	if st, err := d.probe(ctx, m.ClientURL); err == nil {
		m.Answers, m.Leader, m.Version = true, st.Leader == m.id, st.Version
	}
}

// memberList gives the members as the nearest server has them.
func (d *DB) memberList(ctx context.Context) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.etcd.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, d.explain(ctx, "read members of", err)
	}
	return r.Members, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// AddMember adds a server and returns the members that it needs to start. It joins as a learner, which has no vote, and
// promotes itself once it has what the others have: a server that fails to start never costs the quorum. Adding a
// server again that did not start is no error.
func (d *DB) AddMember(ctx context.Context, name, peerURL string) (initial map[string]string, err error) {
	if u, err := url.Parse(peerURL); err != nil || u.Scheme != "https" || u.Port() == "" {
		return nil, fmt.Errorf("add server %s: its peer address %q is none of the form https://address:port",
			name, peerURL)
	}
	for {
		members, err := d.memberList(ctx)
		if err != nil {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
		present, err := isAdded(members, name, peerURL)
		if err != nil {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
		if present {
			return initialMembers(members, name, peerURL), nil
		}
		err = d.reconfigure(ctx, func(ctx context.Context) error {
			_, err := d.etcd.MemberAddAsLearner(ctx, []string{peerURL})
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
	}
}

// isAdded reports whether the server was added and has not started yet.
func isAdded(members []*pb.Member, name, peerURL string) (bool, error) {
	for _, m := range members {
		same := slices.Contains(m.PeerURLs, peerURL)
		switch {
		case same && m.Name == "":
			return true, nil
		case m.Name == name:
			return false, fmt.Errorf("%w: a server of this name is a member already, at %s; if it "+
				"was lost, remove it first", record.ErrNameTaken, first(m.PeerURLs))
		case same:
			return false, fmt.Errorf("%w: server %s is a member at %s", record.ErrNameTaken,
				m.Name, peerURL)
		}
	}
	return false, nil
}

// initialMembers is the cluster for a server that joins. Members that never started have no name, and get one here.
func initialMembers(members []*pb.Member, name, peerURL string) map[string]string {
	initial := make(map[string]string, len(members))
	for _, m := range members {
		known := m.Name
		switch {
		case slices.Contains(m.PeerURLs, peerURL):
			known = name
		case known == "":
			known = fmt.Sprintf("%x", m.ID)
		}
		initial[known] = first(m.PeerURLs)
	}
	return initial
}

// initialCluster is the same in the form of etcd's configuration.
func initialCluster(initial map[string]string) string {
	var list []string
	for name, peer := range initial {
		list = append(list, name+"="+peer)
	}
	sort.Strings(list)
	return strings.Join(list, ",")
}

// RemoveMember removes a server from the cluster, whether it runs or was lost. It fails if those that are left would
// have no quorum.
func (d *DB) RemoveMember(ctx context.Context, name string) error {
	members, err := d.memberList(ctx)
	if err != nil {
		return fmt.Errorf("remove server %s: %w", name, err)
	}
	for _, m := range members {
		if m.Name != name {
			continue
		}
		err := d.reconfigure(ctx, func(ctx context.Context) error {
			_, err := d.etcd.MemberRemove(ctx, m.ID)
			// an earlier attempt had no answer: the leader removed itself
			if errors.Is(err, rpctypes.ErrMemberNotFound) {
				return nil
			}
			return err
		})
		if err == nil {
			err = d.reconfigure(ctx, func(ctx context.Context) error { // it may have been the leader
				_, err := d.etcd.Get(ctx, d.Key())
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("remove server %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("remove server %s: %w", name, ErrNoMember)
}

// reconfigure changes the membership. etcd wants all connections to have been up for some seconds before, and else says
// that the cluster is not healthy: after a server started, that passes.
func (d *DB) reconfigure(ctx context.Context, change func(context.Context) error) error {
	return d.retryWhile(ctx, change,
		rpctypes.ErrUnhealthy, rpctypes.ErrTooManyLearners, rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrLeaderChanged)
}

// retryWhile tries again while the error is one of those that pass, for at most membershipTimeout.
func (d *DB) retryWhile(ctx context.Context, change func(context.Context) error, passing ...error) error {
	ctx, cancel := context.WithTimeout(ctx, membershipTimeout)
	defer cancel()
	for {
		err := d.Request(ctx, "change members of", change)
		if err == nil || !slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollInterval):
		}
	}
}

// registerMember makes the membership say of this server what its configuration says, and promotes it if it is a
// learner.
func (d *DB) registerMember(ctx context.Context) error {
	server := d.embedded.etcd.Server
	id := server.MemberID()
	me := server.Cluster().Member(id)
	if me == nil {
		return ErrRemoved
	}
	if want := d.embedded.etcd.Config().AdvertisePeerUrls[0].String(); !slices.Equal(me.PeerURLs, []string{want}) {
		err := d.retryWhile(ctx, func(ctx context.Context) error {
			_, err := d.etcd.MemberUpdate(ctx, uint64(id), []string{want})
			return err
		})
		if err != nil {
			return fmt.Errorf("tell the cluster the peer address %s: %w", want, err)
		}
	}
	if !server.IsLearner() {
		return nil
	}
	err := d.retryWhile(ctx, func(ctx context.Context) error {
		_, err := d.etcd.MemberPromote(ctx, uint64(id))
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	}, rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted)
	if err != nil {
		return fmt.Errorf("become a server with a vote: %w", err)
	}
	return nil
}
