package store

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// quorum knows whether the cluster can decide. While it cannot, reads are answered from what the nearest member knows, which may be old,
// and changes are refused at once instead of after a timeout.
type quorum struct {
	mu     sync.Mutex
	ctx    context.Context // ends, with ErrNoQuorum as cause, when the quorum is lost; guarded by mu
	lose   context.CancelCauseFunc
	asking chan struct{} // closed when who finds out now has done so; nil: nobody does; guarded by mu
}

// Linearizable makes what is read with the context be what the cluster agrees on now: without a quorum, such reads fail with ErrNoQuorum
// instead of telling what one server remembers. It is for who acts on what is absent.
func Linearizable(ctx context.Context) context.Context {
	return context.WithValue(ctx, linearizable{}, true)
}

type linearizable struct{}

func isLinearizable(ctx context.Context) bool { return ctx.Value(linearizable{}) != nil }

const (
	// leaderless is for how many elections a cluster may be without a leader.
	leaderless = 2
	// Between two looks.
	glance       = 100 * time.Millisecond
	recount      = 2 * time.Second
	probeTimeout = 2 * time.Second
)

func newQuorum() *quorum {
	q := &quorum{}
	q.regain()
	return q
}

// present gives the context of the present quorum.
func (q *quorum) present() context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ctx
}

// missing says why changes do not work; nil while they do.
func (q *quorum) missing() error { return context.Cause(q.present()) }

func (q *quorum) lost(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil { // other numbers
		q.ctx, q.lose = context.WithCancelCause(context.Background())
	}
	q.lose(err)
}

func (q *quorum) regain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx == nil || q.ctx.Err() != nil {
		q.ctx, q.lose = context.WithCancelCause(context.Background())
	}
}

// census is what the servers of a cluster say.
type census struct {
	members, answers int
	leader           bool // one of those that answer knows a leader
}

func (c census) err() error {
	return fmt.Errorf("%w (%d of %d servers answer): reading works, changes do not", ErrNoQuorum, c.answers, c.members)
}

// watchLeader keeps the quorum of a member of a cluster up to date, until ctx ends.
func (s *Store) watchLeader(ctx context.Context) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	grace := leaderless * s.embedded.cluster.electionTime()
	seen, counted := time.Now(), time.Time{}
	if s.embedded.etcd.Server.Leader() == 0 { // it waited for one while it started
		seen = time.Time{}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch now := time.Now(); {
		case s.embedded.etcd.Server.Leader() != 0:
			seen = now
			s.quorum.regain()
		case now.Sub(seen) > grace && now.Sub(counted) > recount:
			c := s.count(ctx)
			counted = time.Now()
			if s.embedded.etcd.Server.Leader() == 0 {
				s.quorum.lost(c.err())
			}
		}
	}
}

// suspect finds out, for a client of a cluster some of whose servers answer, whether a request failed because there is no quorum.
func (s *Store) suspect(ctx context.Context) {
	if ctx.Value(counting{}) != nil { // it is the count's own request
		return
	}
	q := s.quorum
	q.mu.Lock()
	known, asking := q.ctx.Err() != nil, q.asking
	if !known && asking == nil {
		q.asking = make(chan struct{})
	}
	q.mu.Unlock()
	switch {
	case known:
		return
	case asking != nil: // another request failed, too: both have the same reason
		<-asking
		return
	}
	defer func() {
		q.mu.Lock()
		close(q.asking)
		q.asking = nil
		q.mu.Unlock()
	}()
	if c := s.count(s.life); c.answers > 0 && !c.leader {
		q.lost(c.err())
		go s.awaitQuorum()
	}
}

// isFollower says that the store is that of the cluster's servers, and this process is none of them.
func (s *Store) isFollower() bool { return s.embedded == nil && s.peers != nil }

// A request of a follower that has no answer after hush makes it ask for any sign of life, and it waits no longer than silence for one.
const (
	hush    = time.Second
	silence = 2500 * time.Millisecond
)

// giveUp ends a request that no server will answer, long before its time is over. It returns when the request has ended, or a server is there.
func (s *Store) giveUp(ctx context.Context, end context.CancelCauseFunc) {
	for began := time.Now().Add(-hush); ; {
		why := s.reach(ctx)
		switch {
		case why == nil || ctx.Err() != nil:
			return
		case time.Since(began) >= silence:
			end(s.silent(why))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(glance):
		}
	}
}

// silent says that no server answers.
func (s *Store) silent(why error) error {
	var servers []string
	for _, endpoint := range s.kv.Endpoints() {
		servers = append(servers, strings.TrimPrefix(endpoint, "https://"))
	}
	return fmt.Errorf("%w (%s: %s); what runs here goes on", ErrSilent, strings.Join(servers, ", "), reason(why))
}

// reason is what gRPC's words of a connection that failed say to a person.
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

// reach asks the endpoints until one answers. If none does, it says what came in the way of the last one that said anything: a refused
// connection, or a certificate that does not hold.
func (s *Store) reach(ctx context.Context) error {
	endpoints := s.kv.Endpoints()
	answers := make(chan error, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			_, err := s.ask(ctx, endpoint)
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

func (s *Store) awaitQuorum() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-time.After(recount / 2):
		}
		c := s.count(s.life)
		if c.leader || c.answers == 0 {
			s.quorum.regain()
			return
		}
		s.quorum.lost(c.err())
	}
}

type counting struct{}

// count asks all servers.
func (s *Store) count(ctx context.Context) census {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, counting{}, true), 2*probeTimeout)
	defer cancel()
	members, err := s.Members(ctx)
	if err != nil {
		return census{}
	}
	c := census{members: len(members)}
	for _, m := range members {
		if m.Learner {
			c.members--
			continue
		}
		if m.Answers {
			c.answers++
			c.leader = c.leader || m.follows
		}
	}
	return c
}

// ask asks one server what it knows, and takes its silence for an answer, unlike etcd's client, which waits for it.
func (s *Store) ask(ctx context.Context, endpoint string) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(credentials.NewTLS(s.peers)), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
}
