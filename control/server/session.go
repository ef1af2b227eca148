package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/agents"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
)

// openSession makes an agent's end of its session. It begins when the tasks do: the servers may be unreachable, and the
// agent has duties meanwhile.
func (s *server) openSession(ctx context.Context) {
	// The agent is there when the first server asks.
	handler := sync.OnceValue(func() http.Handler { return s.answerServers(s.handler()) })
	s.session = session.NewClient(session.ClientConfig{
		TLS: pki.ClientConfig(s.cluster.identity), Servers: s.cluster.Servers,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler().ServeHTTP(w, r)
		}),
	})
	s.cluster.session = s.session
	s.near = agents.NewClient(ctx, agents.ClientConfig{
		Host: s.Host, Session: s.session, CacheDir: s.offlineCache(), Log: s.Log,
	})
}

// keepSession keeps the session with a server until end is called.
func (s *server) keepSession(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		s.session.Run(ctx)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

// answerServers answers what the server of a session asks, on behalf of whom it says.
func (s *server) answerServers(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := rest.ReadCaller(r.Header.Get(rest.CallerHeader))
		ctx := rest.WithMember(r.Context(), pki.Member{Role: pki.Server}, who)
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
}

// acceptSession begins the session of an agent, whose certificate was checked.
func (s *server) acceptSession(inner http.Handler, w http.ResponseWriter, r *http.Request, m pki.Member) {
	cert := pki.CertificateOf(r.TLS)
	if m.Role != pki.Agent {
		refuse(w, http.StatusForbidden, "sessions are for agents")
		return
	}
	one, err := session.Accept(w, r)
	if err != nil {
		s.Log.Debug("accept a session", "host", m.Name, "error", err)
		return
	}
	done := s.sessions.Add(m.Name, one)
	defer done()
	ended := context.AfterFunc(r.Context(), one.Close)
	defer ended()
	watching, end := context.WithCancel(r.Context())
	defer end()
	go s.watchSession(watching, one, m, cert)
	one.Serve(context.WithoutCancel(r.Context()), s.answerAgent(inner, m, cert, one))
}

// How often it is looked whether those who have sessions are still members, and how long noting a session may take.
const (
	sessionCheck  = 30 * time.Second
	attachTimeout = 2 * time.Second
)

// watchSession notes where a session is, and ends it when the agent is no member any more, or its certificate ends.
func (s *server) watchSession(ctx context.Context, one *session.Session, m pki.Member, cert *x509.Certificate) {
	attach, done := context.WithTimeout(ctx, attachTimeout)
	if err := s.store.Attach(attach, m.Name, s.Host); err != nil {
		s.Log.Debug("note where a session is; the next renewal of the lease does so", "host", m.Name,
			"error", err)
	}
	done()
	tick := time.NewTicker(sessionCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.cluster.checkAdmission(ctx, cert) != nil || time.Now().After(cert.NotAfter) {
			one.Close() // it hears why when it asks for the next one
			return
		}
	}
}

// answerAgent answers what an agent asks: for its host, or on behalf of users of its machine.
func (s *server) answerAgent(inner http.Handler, m pki.Member, cert *x509.Certificate,
	of *session.Session) http.Handler {
	own := s.desk.Handler(m.Name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The session may have begun before the host was removed.
		if err := s.cluster.checkAdmission(r.Context(), cert); err != nil {
			s.cluster.refusals.add(m.Name, of.Remote(), err)
			refuseMember(w, err)
			time.AfterFunc(lastWords, of.Close)
			return
		}
		if agents.IsFor(r) {
			own.ServeHTTP(w, r)
			return
		}
		who := rest.ReadCaller(r.Header.Get(rest.CallerHeader))
		who.Host = m.Name
		r.Header.Del(rest.PartHeader)
		inner.ServeHTTP(w, r.WithContext(rest.WithMember(r.Context(), m, who)))
	})
}

// lastWords is for how long a session goes on whose agent is no member any more, so that it hears why.
const lastWords = time.Second

// refuseMember says why the owner of a certificate is no member, so that its agent knows that this is final.
func refuseMember(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(agents.Refusal(why)) // the caller may have gone
}

// viaHeader names the host for which a server sends a request to the server of the host's session; noSessionHeader
// marks the answer that there is none.
const (
	viaHeader       = "Pergola-Via-Session"
	noSessionHeader = "Pergola-No-Session"
)

// passToSession answers a request of another server by what an agent answers that has its session here.
func (s *server) passToSession(w http.ResponseWriter, r *http.Request, host string) {
	r.Header.Del(viaHeader)
	rest.Pass(w, r, s.sessions.To(host), func(err error) error {
		if errors.Is(err, agents.ErrNoSession) {
			w.Header().Set(noSessionHeader, "1")
		}
		return fmt.Errorf("host %s: %w", host, err)
	})
}

// viaServer speaks to an agent by the server with which it has its session.
type viaServer struct {
	c    *cluster
	host store.HostState
}

// An agent whose server has ended is with another one after moments: a request waits for it, and looks again.
const (
	sessionPatience = 4 * time.Second
	sessionLook     = 200 * time.Millisecond
)

// RoundTrip implements http.RoundTripper.
func (v viaServer) RoundTrip(r *http.Request) (*http.Response, error) {
	repeatable := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	for began, host := time.Now(), v.host; ; {
		if r.GetBody != nil {
			r.Body, _ = r.GetBody() // of a reader in memory
		}
		resp, err := v.c.roundTripVia(r, host)
		again := repeatable && time.Since(began) < sessionPatience
		if !again || !cameNowhere(resp, err) {
			return resp, err
		}
		if err == nil {
			resp.Body.Close()
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(sessionLook):
		}
		next, lookErr := v.c.store.HostState(r.Context(), host.Name)
		if lookErr != nil || !next.Alive || next.Via == "" {
			return nil, cmp.Or(err, lookErr, errors.New("its agent has no session with a server"))
		}
		host = next
	}
}

// cameNowhere reports whether a request came to no agent: no command is begun twice.
func cameNowhere(resp *http.Response, err error) bool {
	if err == nil {
		return resp.Header.Get(noSessionHeader) != ""
	}
	dial := new(net.OpError)
	return errors.Is(err, agents.ErrNoSession) || errors.As(err, &dial) && dial.Op == "dial"
}

// roundTripVia sends a request by the session that a host's agent is said to have.
func (c *cluster) roundTripVia(r *http.Request, host store.HostState) (*http.Response, error) {
	if host.Via == c.Self() {
		return c.sessions.To(host.Name).RoundTrip(r)
	}
	server, err := c.store.HostState(r.Context(), host.Via)
	if err != nil {
		return nil, fmt.Errorf("its agent has its session with server %s: %w", host.Via, err)
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = server.API, ""
	r.Header.Set(viaHeader, host.Name)
	return c.direct(server.Name).RoundTrip(r)
}

// keepServers writes down where the servers are, whenever a server tells.
func (s *server) keepServers(ctx context.Context) error {
	return s.near.FollowServers(ctx, func(servers []string) {
		next := s.cluster.current()
		if len(servers) == 0 || slices.Equal(servers, next.Servers) {
			return
		}
		next.Servers, next.Shared = servers, true
		if err := s.cluster.save(next); err != nil {
			s.Log.Warn("keep the list of the cluster's servers", "error", err)
		}
	})
}
