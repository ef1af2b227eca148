package rest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
)

func (s *server) registerMembers(a huma.API) {
	huma.Get(a, "/v1/cluster", s.status,
		describe("cluster", "The cluster, its servers and whether they have a quorum"))
}

func (s *server) status(ctx context.Context, _ *struct{}) (*body[api.ClusterStatus], error) {
	st := api.ClusterStatus{AnsweredBy: s.describe(), Servers: []api.Member{}, Lacks: s.Agent.Lacks()}
	if s.Cluster == nil {
		return &body[api.ClusterStatus]{st}, nil
	}
	st.Self, st.Server = s.Cluster.Self(), s.Cluster.IsServer()
	st.Authority = s.Cluster.Authority().Certificate.NotAfter
	if ends := AuthorityEnds(st.Authority, time.Now()); ends != "" {
		st.Warnings = append(st.Warnings, ends)
	}
	hosts, err := s.Records.Hosts(ctx)
	if err != nil {
		return nil, problem(err)
	}
	st.Hosts = len(hosts)
	for _, h := range hosts {
		if h.Alive {
			st.Alive++
		}
	}
	if !s.Cluster.KeepsStore() {
		return &body[api.ClusterStatus]{st}, nil // the tools of an external etcd show its members
	}
	members, err := s.Store.Members(ctx)
	if err != nil {
		return nil, problem(err)
	}
	for _, m := range members {
		st.Servers = append(st.Servers, api.Member{Name: m.Name, Peer: m.PeerURL, Answers: m.Answers,
			Leader: m.Leader, Learner: m.Learner})
	}
	st.Trouble = troubleOf(st.Servers)
	if even := EvenServers(Started(members)); even != "" {
		st.Warnings = append(st.Warnings, even)
	}
	return &body[api.ClusterStatus]{st}, nil
}

// troubleOf says, in the store's words, that servers are too few to decide.
func troubleOf(servers []api.Member) string {
	voters, answer, leads := 0, 0, false
	for _, m := range servers {
		leads = leads || m.Leader
		if !m.Learner {
			voters++
		}
		if !m.Learner && m.Answers {
			answer++
		}
	}
	switch {
	case answer <= voters/2 && voters > 0:
		return fmt.Sprintf("%v (%d of %d servers answer): reading works, changes do not", store.ErrNoQuorum,
			answer, voters)
	case !leads && voters > 0:
		return "the servers have no leader: an election is under way"
	}
	return ""
}

// AuthoritySoon is how long before its end an authority is warned of.
const AuthoritySoon = 180 * 24 * time.Hour

// AuthorityEnds warns that an authority ends soon, or has ended; empty: it is valid for long.
func AuthorityEnds(at, now time.Time) string {
	left := at.Sub(now)
	if left > AuthoritySoon {
		return ""
	}
	const advice = "after that no member trusts another: make a new one before (pergola " +
		"server --new-authority)"
	stamp := at.UTC().Format(time.RFC3339)
	if left <= 0 {
		return "the cluster's certificate authority ended at " + stamp +
			", so no member trusts another: a cluster with one server makes a new one (pergola server " +
			"--new-authority); one with several had to do so before"
	}
	return fmt.Sprintf("the cluster's certificate authority ends at %s, in %d days; %s", stamp,
		int(left/(24*time.Hour)), advice)
}

// Started counts the servers that have come to stay. One that was let in and never started has no name, and decides
// nothing.
func Started(members []store.Member) (n int) {
	for _, m := range members {
		if m.Name != "" {
			n++
		}
	}
	return n
}

// EvenServers says why a cluster should not stay at that number of servers; empty: it can. Those that join and have no
// vote yet count: they will have one.
func EvenServers(n int) string {
	const advice = "let one more join (pergola token create --role server)"
	switch {
	case n%2 == 1 || n == 0:
		return ""
	case n == 2:
		return "both servers must answer for anything to be changed, so two are worse than one: " + advice
	}
	return fmt.Sprintf("%d of %d servers must answer for anything to be changed, so only %d may "+
		"fail, as of %d: %s", n/2+1, n, n/2-1, n-1, advice)
}

// voters names the servers that keep the store, if they do.
func (s *server) voters(ctx context.Context) ([]string, error) {
	if s.Cluster == nil || !s.Cluster.KeepsStore() {
		return nil, nil
	}
	members, err := s.Store.Members(ctx)
	var names []string
	for _, m := range members {
		if !m.Learner {
			names = append(names, m.Name)
		}
	}
	return names, err
}

// removeMember takes a host's vote, if it has one.
func (s *server) removeMember(ctx context.Context, host string) error {
	if s.Cluster == nil || !s.Cluster.KeepsStore() {
		return nil
	}
	members, err := s.Store.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Name != host {
			continue
		}
		if err := s.Store.RemoveMember(ctx, host); !errors.Is(err, store.ErrNoMember) {
			return err
		}
	}
	return nil
}
