package agents

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/pergola-net/pergola/control/session"
)

// Sessions are those of agents with one server. It is safe for concurrent use.
type Sessions struct {
	mu  sync.Mutex                  // guards all
	all map[string]*session.Session // by host
}

// NewSessions makes Sessions of none.
func NewSessions() *Sessions { return &Sessions{all: map[string]*session.Session{}} }

// Add adds the session of a host, which replaces an earlier one. done is called when it has ended.
func (s *Sessions) Add(host string, one *session.Session) (done func()) {
	s.mu.Lock()
	before := s.all[host]
	s.all[host] = one
	s.mu.Unlock()
	if before != nil {
		before.Close()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[host] == one {
			delete(s.all, host)
		}
	}
}

// ErrNoSession means that a host's agent has no session with this server.
var ErrNoSession = errors.New("its agent has no session with a server at the moment")

// To speaks to the agent of a host.
func (s *Sessions) To(host string) http.RoundTripper { return to{s, host} }

type to struct {
	sessions *Sessions
	host     string
}

func (t to) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sessions.mu.Lock()
	one := t.sessions.all[t.host]
	t.sessions.mu.Unlock()
	if one == nil {
		return nil, ErrNoSession
	}
	return one.RoundTrip(r)
}

// IsFor reports whether a request is one of this protocol, and not of the API.
func IsFor(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, Prefix) }

// Refusal is the body of an answer that there is to be no session, for a reason that is final to the agent.
func Refusal(why error) any { return failureOf(why) }
