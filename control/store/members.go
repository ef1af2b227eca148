package store

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
)

// Member is a server of the cluster.
type Member struct {
	Name               string // empty: it was added and never started
	PeerURL, ClientURL string
	Learner            bool // it joined, and has not caught up yet
	Leader             bool
	Answers            bool
	Version            string // of its etcd

	id      uint64
	follows bool // it knows a leader
}

// Errors that callers decide on.
var (
	ErrNoMember  = errors.New("no such server in the cluster")
	ErrNameTaken = errors.New("the name is taken")
)

// maxLearners lets several servers join at the same time.
const maxLearners = 4

// Members lists the servers, sorted by name, and asks each whether it answers. It works without a quorum.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	listed, err := s.memberList(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, len(listed))
	var asked sync.WaitGroup
	for i, m := range listed {
		members[i] = Member{Name: m.Name, PeerURL: first(m.PeerURLs), ClientURL: first(m.ClientURLs), Learner: m.IsLearner, id: m.ID}
		asked.Go(func() { s.visit(ctx, &members[i]) })
	}
	asked.Wait()
	sort.Slice(members, func(i, j int) bool { return members[i].Name < members[j].Name })
	return members, nil
}

func (s *Store) visit(ctx context.Context, m *Member) {
	if s.embedded != nil && uint64(s.embedded.etcd.Server.MemberID()) == m.id {
		server := s.embedded.etcd.Server
		m.Answers, m.Leader, m.follows, m.Version = true, server.Leader() == server.MemberID(), server.Leader() != 0, version.Version
		return
	}
	if m.ClientURL == "" || s.peers == nil {
		return
	}
	if st, err := s.ask(ctx, m.ClientURL); err == nil {
		m.Answers, m.Leader, m.follows, m.Version = true, st.Leader == m.id, st.Leader != 0, st.Version
	}
}

// memberList gives the members as the nearest server knows them.
func (s *Store) memberList(ctx context.Context) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.kv.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, s.explain(ctx, "read members of", err)
	}
	return r.Members, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// AddMember makes room for a server and says what it must know to start. It joins as a learner, which has no vote, and is
// promoted by itself once it knows what the others know: a server that fails to start never costs the quorum.
// To be called again for a server that did not start is no error.
func (s *Store) AddMember(ctx context.Context, name, peerURL string) (initial map[string]string, err error) {
	if u, err := url.Parse(peerURL); err != nil || u.Scheme != "https" || u.Port() == "" {
		return nil, fmt.Errorf("add server %s: its peer address %q is none of the form https://address:port", name, peerURL)
	}
	for {
		members, err := s.memberList(ctx)
		if err != nil {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
		present, err := placed(members, name, peerURL)
		if err != nil {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
		if present {
			return initialMembers(members, name, peerURL), nil
		}
		err = s.reconfigure(ctx, func(ctx context.Context) error {
			_, err := s.kv.MemberAddAsLearner(ctx, []string{peerURL})
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil, fmt.Errorf("add server %s: %w", name, err)
		}
	}
}

// placed says whether the server was added and has not started yet.
func placed(members []*pb.Member, name, peerURL string) (bool, error) {
	for _, m := range members {
		same := slices.Contains(m.PeerURLs, peerURL)
		switch {
		case same && m.Name == "":
			return true, nil
		case m.Name == name:
			return false, fmt.Errorf("%w: a server of this name is a member already, at %s; if it was lost, remove it first", ErrNameTaken, first(m.PeerURLs))
		case same:
			return false, fmt.Errorf("%w: server %s is a member at %s", ErrNameTaken, m.Name, peerURL)
		}
	}
	return false, nil
}

// initialMembers is the cluster as a server that joins wants it: those that never started have no name, and need one here.
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

func initialCluster(initial map[string]string) string {
	var list []string
	for name, peer := range initial {
		list = append(list, name+"="+peer)
	}
	sort.Strings(list)
	return strings.Join(list, ",")
}

// RemoveMember takes a server out of the cluster, whether it runs or was lost. It fails if those that are left would have no quorum.
func (s *Store) RemoveMember(ctx context.Context, name string) error {
	members, err := s.memberList(ctx)
	if err != nil {
		return fmt.Errorf("remove server %s: %w", name, err)
	}
	for _, m := range members {
		if m.Name != name {
			continue
		}
		err := s.reconfigure(ctx, func(ctx context.Context) error {
			_, err := s.kv.MemberRemove(ctx, m.ID)
			if errors.Is(err, rpctypes.ErrMemberNotFound) { // an attempt without an answer did it: the leader removed itself
				return nil
			}
			return err
		})
		if err == nil {
			err = s.reconfigure(ctx, func(ctx context.Context) error { // it may have been the leader
				_, err := s.kv.Delete(ctx, s.key("servers", name))
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

// reconfigure carries out a change of membership. etcd wants all connections to have been up for some seconds before, and then says
// that the cluster is not healthy: after a server started, that passes.
func (s *Store) reconfigure(ctx context.Context, change func(context.Context) error) error {
	return s.patiently(ctx, change, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyLearners, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrLeaderChanged)
}

// patiently tries again while the error is one of those that pass.
func (s *Store) patiently(ctx context.Context, change func(context.Context) error, passing ...error) error {
	ctx, cancel := context.WithTimeout(ctx, membershipTimeout)
	defer cancel()
	for {
		err := s.request(ctx, "change members of", change)
		if err == nil || !slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(glance):
		}
	}
}

const membershipTimeout = 30 * time.Second

// takePlace makes the membership say of this member what its configuration says, and has it promoted if it is a learner.
func (s *Store) takePlace(ctx context.Context) error {
	server := s.embedded.etcd.Server
	id := server.MemberID()
	me := server.Cluster().Member(id)
	if me == nil {
		return ErrRemoved
	}
	if want := s.embedded.etcd.Config().AdvertisePeerUrls[0].String(); !slices.Equal(me.PeerURLs, []string{want}) {
		err := s.patiently(ctx, func(ctx context.Context) error {
			_, err := s.kv.MemberUpdate(ctx, uint64(id), []string{want})
			return err
		})
		if err != nil {
			return fmt.Errorf("tell the cluster the peer address %s: %w", want, err)
		}
	}
	if !server.IsLearner() {
		return s.announce(ctx)
	}
	err := s.patiently(ctx, func(ctx context.Context) error {
		_, err := s.kv.MemberPromote(ctx, uint64(id))
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	}, rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted)
	if err != nil {
		return fmt.Errorf("become a server with a vote: %w", err)
	}
	return s.announce(ctx)
}
