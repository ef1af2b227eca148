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

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/store"
)

// openDoor takes the port at which other machines come in.
func (c *cluster) openDoor(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.current().Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other machines of the cluster: %w: an address of this machine is named by --listen ADDRESS", err)
	}
	return l, nil
}

// serveMembers answers other machines: members whatever they ask, and everybody else a wish to join alone.
func (s *server) serveMembers(ctx context.Context, listener net.Listener, inner http.Handler) error {
	web := &http.Server{
		Handler: s.cluster.guard(inner), TLSConfig: pki.ServerConfig(s.cluster.now), ReadHeaderTimeout: headerTimeout,
		IdleTimeout: 2 * peerIdle, // members hang up before; who is none shall not stay
		ErrorLog:    log.New(quietTLS{s.cluster}, "", 0),
	}
	return serveUntil(ctx, web, func() error { return web.ServeTLS(listener, "", "") })
}

// quietTLS gets what net/http has to say of connections that did not come about.
type quietTLS struct{ c *cluster }

func (q quietTLS) Write(p []byte) (int, error) {
	q.c.log.Debug("a connection failed", "error", string(p))
	return len(p), nil
}

// guard lets requests in by who is at the other end.
func (c *cluster) guard(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, known := pki.PeerOf(r.TLS)
		who := rest.ReadCaller("")
		switch {
		case r.URL.Path == "/v1/join" && !known:
		case !known:
			refuse(w, http.StatusUnauthorized, "only members of the cluster may ask this, by their certificates: let this machine join (pergola token create)")
			return
		case m.Role == pki.Admin:
			who = controller.Caller{Root: true}
		default:
			if err := c.stillMember(r.Context(), pki.CertificateOf(r.TLS)); err != nil {
				c.outcasts.refused(m.Name, r.RemoteAddr, err)
				refuse(w, http.StatusForbidden, err.Error())
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

// stillMember refuses a host that was removed, or whose name another machine has now: its certificate holds for weeks.
func (c *cluster) stillMember(ctx context.Context, cert *x509.Certificate) error {
	err := c.store.CheckMember(ctx, cert)
	if errors.Is(err, store.ErrReplaced) {
		return err
	}
	if errors.Is(err, store.ErrNoHost) {
		return fmt.Errorf("host %s is not in the cluster any more: let it join again", cert.Subject.CommonName)
	}
	return nil // without an answer of the store, the certificate counts
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Status: status, Title: http.StatusText(status), Detail: why}) // the caller may have gone
}
