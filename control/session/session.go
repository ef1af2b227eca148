// Package session connects an agent with a server of its cluster. The agent opens one connection, which passes NAT and
// proxies, and over it both ask each other: each end serves HTTP on the streams that the other one opens (yamux, in a
// TLS connection that was upgraded by RFC 9110, section 7.8).
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/yamux"
)

// Path is where a server is asked for a session, and protocol what for.
const (
	Path     = "/v1/session"
	protocol = "pergola-session/1"
)

// A wire that was cut is noticed after a ping and its time-out.
const (
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
	openTimeout = 10 * time.Second // of a stream
	streamIdle  = time.Minute      // after which a stream without a request is closed
	headerTime  = 10 * time.Second // for the head of a request to arrive
)

// window is how many bytes of one stream may be under way, before those of another one.
const window = 256 << 10

// Session is one end of a connection. It is an http.RoundTripper: requests are answered by the other end, whatever host
// their URL names.
type Session struct {
	mux    *yamux.Session
	by     *http.Transport
	server string // with which an agent has it
}

func start(conn io.ReadWriteCloser, make func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) (*Session,
	error) {
	cfg := yamux.DefaultConfig()
	cfg.KeepAliveInterval, cfg.ConnectionWriteTimeout = pingEvery, pingTimeout
	cfg.StreamOpenTimeout, cfg.MaxStreamWindowSize = openTimeout, window
	cfg.LogOutput = io.Discard // whoever uses a session learns of its end
	mux, err := make(conn, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &Session{mux: mux}
	s.by = &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return mux.Open() },
		IdleConnTimeout:    streamIdle,
		DisableCompression: true,
	}
	return s, nil
}

// ask asks a server for a session, by a transport that shows the agent's certificate.
func ask(ctx context.Context, by *http.Transport, server string) (*Session, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	resp, err := by.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return nil, errors.New("the connection cannot be written to") // since Go 1.12
	}
	return start(conn, yamux.Client)
}

// Accept makes a session of a request for one. The caller has checked who asks.
func Accept(w http.ResponseWriter, r *http.Request) (*Session, error) {
	if r.Header.Get("Upgrade") != protocol {
		w.Header().Set("Upgrade", protocol)
		http.Error(w, "this is where agents begin their session: "+protocol, http.StatusUpgradeRequired)
		return nil, fmt.Errorf("asked for %q, and not for %q", r.Header.Get("Upgrade"), protocol)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, err
	}
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		conn.Close()
		return nil, err
	}
	return start(&readFirst{conn, buffered.Reader}, yamux.Server)
}

// readFirst is a connection of which some bytes have been read already.
type readFirst struct {
	net.Conn
	from io.Reader
}

func (c *readFirst) Read(p []byte) (int, error) { return c.from.Read(p) }

// RoundTrip implements http.RoundTripper.
func (s *Session) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http" // within TLS
	return s.by.RoundTrip(r)
}

// Serve answers what the other end asks, until the session ends. The context of requests is made by base.
func (s *Session) Serve(base context.Context, handler http.Handler) {
	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: 2 * streamIdle,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	_ = web.Serve(s.mux) // what the mux says of the session's end, those who use it hear, too
	s.Close()
}

// Close ends the session, with all that is under way.
func (s *Session) Close() {
	s.mux.Close()
	s.by.CloseIdleConnections()
}

// Remote is the address of the other end, as far as it is seen from here.
func (s *Session) Remote() string { return s.mux.RemoteAddr().String() }
