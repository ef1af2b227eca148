package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/control/store/storetest"
)

// far is a server of a cluster, as far as sessions go.
type far struct {
	*httptest.Server
	name     string
	sessions chan *session.Session
	refuse   atomic.Bool
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != session.Path {
		fmt.Fprintf(w, "%s was asked for %s", f.name, r.URL.Path)
		return
	}
	if f.refuse.Load() {
		http.Error(w, `{"detail": "this one was removed"}`, http.StatusForbidden)
		return
	}
	s, err := session.Accept(w, r)
	if err != nil {
		return
	}
	go s.Serve(context.Background(), f)
	f.sessions <- s
}

func serve(t *testing.T, authority *pki.Authority, name string, role pki.Role) *far {
	t.Helper()
	f := &far{name: name, sessions: make(chan *session.Session, 8)}
	f.Server = httptest.NewUnstartedServer(f)
	f.TLS = pki.ServerConfig(storetest.Identity(t, authority, name, role))
	f.StartTLS()
	t.Cleanup(f.CloseClientConnections)
	t.Cleanup(f.Close)
	return f
}

func (f *far) address() string { return strings.TrimPrefix(f.URL, "https://") }

func connect(t *testing.T, authority *pki.Authority, change func(*session.ClientConfig),
	servers ...*far) *session.Client {
	t.Helper()
	cfg := session.ClientConfig{
		TLS: pki.ClientConfig(storetest.Identity(t, authority, "h4", pki.Agent)),
		Servers: func() (all []string) {
			for _, f := range servers {
				all = append(all, f.address())
			}
			return all
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "h4 was asked for %s", r.URL.Path)
		}),
	}
	if change != nil {
		change(&cfg)
	}
	c := session.NewClient(cfg)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		end()
		<-done
	})
	return c
}

func ask(t *testing.T, by http.RoundTripper, path string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := by.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestBothEndsAsk(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	server := serve(t, authority, "h1", pki.Server)
	client := connect(t, authority, nil, server)
	if got, err := ask(t, client, "/a"); err != nil || got != "h1 was asked for /a" {
		t.Error(got, err)
	}
	s := <-server.sessions
	for range 3 {
		if got, err := ask(t, s, "/b"); err != nil || got != "h4 was asked for /b" {
			t.Error(got, err)
		}
	}
}

// An agent takes another server where one has gone, and comes back when none was there for a while.
func TestAnotherServerTakesOver(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	h1, h2 := serve(t, authority, "h1", pki.Server), serve(t, authority, "h2", pki.Server)
	client := connect(t, authority, nil, h1, h2)
	first, err := ask(t, client, "/x")
	if err != nil {
		t.Fatal(err)
	}
	gone, left := h1, h2
	if strings.HasPrefix(first, "h2") {
		gone, left = h2, h1
	}
	s := <-gone.sessions
	gone.refuse.Store(true)
	s.Close()
	<-left.sessions
	if got, err := ask(t, client, "/x"); err != nil || !strings.HasPrefix(got, left.name) {
		t.Errorf("%q, %v: want an answer of %s", got, err, left.name)
	}
	client.Drop()
	<-left.sessions
	if got, err := ask(t, client, "/x"); err != nil || !strings.HasPrefix(got, left.name) {
		t.Errorf("%q, %v: want an answer of %s again", got, err, left.name)
	}
}

func TestNoServerIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	other := storetest.NewAuthority(t)
	for why, server := range map[string]*far{
		"which is no server of the cluster": serve(t, authority, "h2", pki.Agent),
		"another authority":                 serve(t, other, "h1", pki.Server),
	} {
		client := connect(t, authority, nil, server)
		if _, err := ask(t, client, "/x"); !errors.Is(err, session.ErrNone) ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%v: want one that says %q", err, why)
		}
	}
}

func TestWhoIsRefusedHearsWhy(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	server := serve(t, authority, "h1", pki.Server)
	server.refuse.Store(true)
	_, err := ask(t, connect(t, authority, nil, server), "/x")
	if refused := new(session.RefusedError); !errors.As(err, &refused) || refused.Why != "this one was removed" {
		t.Error(err)
	}
}

// What an agent sends goes by a proxy: all that one needs to know is CONNECT (RFC 9110, section 9.3.6).
func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	server := serve(t, authority, "h1", pki.Server)
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		there, err := net.DialTimeout("tcp", r.Host, time.Second)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(there, here)
			there.Close()
		}()
		_, _ = io.Copy(here, there)
		here.Close()
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, authority, func(cfg *session.ClientConfig) { cfg.Proxy = http.ProxyURL(at) }, server)
	if got, err := ask(t, client, "/a"); err != nil || got != "h1 was asked for /a" || tunnels.Load() != 1 {
		t.Error(got, err, tunnels.Load())
	}
}
