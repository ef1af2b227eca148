package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store"
)

// openListener opens the port for other machines.
func (c *cluster) openListener(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.current().Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other machines of the cluster: %w: "+
			"an address of this machine is named by --listen ADDRESS", err)
	}
	return l, nil
}

// serveMembers serves the API to other machines: all of it to members, and only the request to join to others.
func (s *server) serveMembers(ctx context.Context, listener net.Listener, inner http.Handler) error {
	web := &http.Server{
		Handler: s.guard(inner), TLSConfig: pki.ServerConfig(s.cluster.identity),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       2 * peerIdle, // members close idle connections before; others are disconnected
		ErrorLog:          log.New(quietTLS{s.cluster}, "", 0),
	}
	return serveUntil(ctx, web, func() error { return web.ServeTLS(listener, "", "") })
}

// quietTLS logs net/http's errors of connections that failed, at level debug.
type quietTLS struct{ c *cluster }

func (q quietTLS) Write(p []byte) (int, error) {
	q.c.log.Debug("accept a connection of another machine", "error", string(p))
	return len(p), nil
}

// guard passes requests on by the certificate of the caller. An agent asks within its session alone, but for what it
// needs to begin one.
func (s *server) guard(inner http.Handler) http.Handler {
	c := s.cluster
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, known := pki.PeerOf(r.TLS)
		who := rest.ReadCaller("")
		switch {
		case r.URL.Path == "/v1/join" && !known:
		case !known:
			refuse(w, http.StatusUnauthorized,
				"only members of the cluster may ask this, by their certificates: let this machine "+
					"join (pergola token create)")
			return
		case m.Role == pki.Admin:
			who = controller.Caller{Root: true}
		default:
			check := c.checkMember
			if m.Role == pki.Agent { // which may have joined a moment ago, and is no host yet
				check = c.checkAdmission
			}
			if err := check(r.Context(), pki.CertificateOf(r.TLS)); err != nil {
				c.refusals.add(m.Name, r.RemoteAddr, err)
				refuseMember(w, err)
				return
			}
			switch via := r.Header.Get(viaHeader); {
			case r.URL.Path == session.Path:
				s.acceptSession(inner, w, r, m)
				return
			case m.Role == pki.Agent && r.URL.Path != "/v1/renew":
				refuse(w, http.StatusForbidden, "agents ask by their sessions: this one is older than "+
					"the server; update Pergola there")
				return
			case m.Role == pki.Server && via != "":
				s.passToSession(w, r, via)
				return
			}
			who = rest.ReadCaller(r.Header.Get(rest.CallerHeader))
		}
		ctx := r.Context()
		if known {
			ctx = rest.WithMember(ctx, m, who)
		}
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
}

// checkMember returns an error where a certificate is revoked: its host was removed, or another machine has its name
// now. The certificate itself holds for weeks.
func (c *cluster) checkMember(ctx context.Context, cert *x509.Certificate) error {
	err := c.store.CheckMember(ctx, cert)
	if errors.Is(err, store.ErrReplaced) {
		return err
	}
	if errors.Is(err, store.ErrNoHost) {
		return fmt.Errorf("host %s is not in the cluster any more: let it join again", cert.Subject.CommonName)
	}
	return nil // without an answer of the store, the certificate counts
}

// admissionTimeout bounds the question whether an agent is a member: it waits for its session, and has little time.
const admissionTimeout = time.Second

// checkAdmission is checkMember for one that may not have registered as a host yet.
func (c *cluster) checkAdmission(ctx context.Context, cert *x509.Certificate) error {
	ctx, cancel := context.WithTimeout(store.Linearizable(ctx), admissionTimeout)
	defer cancel()
	err := c.store.Trust().Check(ctx, cert) // one that was admitted a moment ago is known
	if errors.Is(err, store.ErrNoHost) {
		return err
	}
	return nil // without an answer of the servers, the certificate counts
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	problem := api.Problem{Status: status, Title: http.StatusText(status), Detail: why}
	_ = json.NewEncoder(w).Encode(problem) // the caller may have gone
}
