package rest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/store"
)

// Headers that members send each other. They are accepted from members alone.
const (
	// PartHeader asks for what the host itself has to say, and for nothing of others.
	PartHeader = "Pergola-Part"
	// CallerHeader says on behalf of whom a member asks: its user id, group id, and whether that is root.
	CallerHeader = "Pergola-Caller"
)

// ReadCaller reads a CallerHeader; it gives a user without rights where the header is not valid.
func ReadCaller(text string) controller.Caller {
	nobody := controller.Caller{UID: ^uint32(0), GID: ^uint32(0)}
	words := strings.Fields(text)
	if len(words) != 3 {
		return nobody
	}
	uid, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return nobody
	}
	gid, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil {
		return nobody
	}
	return controller.Caller{UID: uint32(uid), GID: uint32(gid), Root: words[2] == "true"}
}

func writeCaller(c controller.Caller) string { return fmt.Sprintf("%d %d %t", c.UID, c.GID, c.Root) }

// nodeRoutes are about a node's processes or its kernel: the host that runs it answers.
var nodeRoutes = []string{
	"GET /v1/slices/{slice}/nodes/{node}/exec",
	"GET /v1/slices/{slice}/nodes/{node}/logs",
	"GET /v1/slices/{slice}/nodes/{node}/interfaces/{interface}/capture",
	"GET /v1/slices/{slice}/nodes/{node}/fastpath",
	"GET /v1/slices/{slice}/nodes/{node}/program",
	"POST /v1/slices/{slice}/nodes/{node}/verify",
	"GET /v1/slices/{slice}/nodes/{node}/filters",
	"PATCH /v1/slices/{slice}/nodes/{node}/filters",
	"PUT /v1/slices/{slice}/nodes/{node}/filters",
}

// atHost hands requests about nodes to the hosts that run them.
func (s *server) atHost(own http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, route := range nodeRoutes {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			host, err := s.hostOfNode(r)
			switch {
			case err != nil:
				writeProblem(w, err)
			case host == nil:
				own.ServeHTTP(w, r)
			default:
				s.forward(w, r, host)
			}
		})
	}
	mux.Handle("/", own)
	return mux
}

// hostOfNode finds the other host that a request is for; nil where it is this one, or where no other host knows
// more.
func (s *server) hostOfNode(r *http.Request) (*store.HostState, error) {
	if r.Header.Get(PartHeader) != "" {
		return nil, nil
	}
	_, n, err := s.Find.Node(r.Context(), r.PathValue("slice"), r.PathValue("node"))
	if err != nil || !s.elsewhere(n.Host) || !n.HasSliver() {
		return nil, nil //nolint:nilerr // the handler itself says what is wrong
	}
	h, err := s.Records.HostState(r.Context(), n.Host)
	if err != nil {
		return nil, fmt.Errorf("node %s is on host %s: %w", n.Name, n.Host, err)
	}
	if !h.Alive {
		return nil, fmt.Errorf("node %s is on %w", n.Name, lost(h))
	}
	return &h, nil
}

func (s *server) elsewhere(host string) bool { return host != "" && host != s.Cluster.Self() }

// errLost means that a host does not answer.
var errLost = errors.New("does not answer")

func lost(h store.HostState) error {
	if h.Since.IsZero() {
		return fmt.Errorf("host %s, which %w: it is lost", h.Name, errLost)
	}
	return fmt.Errorf("host %s, which %w: it is lost since %s", h.Name, errLost,
		h.Since.Local().Format(time.DateTime))
}

// forward answers a request by what another host answers.
func (s *server) forward(w http.ResponseWriter, r *http.Request, h *store.HostState) {
	s.proxy(w, r, h.API, s.Cluster.Peer(*h), true, func(err error) error { return unanswered(h, err) })
}

// Pass answers a request by what another machine answers, as it came.
func Pass(w http.ResponseWriter, r *http.Request, by http.RoundTripper, failed func(error) error) {
	rewrite := func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "https", Host: "session"}) }
	reverse(by, problemOf(failed), rewrite).ServeHTTP(w, r)
}

type errorHandler = func(w http.ResponseWriter, r *http.Request, err error)

func problemOf(failed func(error) error) errorHandler {
	return func(w http.ResponseWriter, _ *http.Request, err error) { writeProblem(w, failed(err)) }
}

func reverse(by http.RoundTripper, failed errorHandler, rewrite func(*httputil.ProxyRequest)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     by,
		FlushInterval: -1, // output as it comes
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				failed(w, r, err)
			}
		},
	}
}

// proxy answers a request by what another machine answers. part asks for that machine's part alone.
func (s *server) proxy(w http.ResponseWriter, r *http.Request, to string, by http.RoundTripper, part bool,
	failed func(error) error) {
	s.proxyOr(w, r, to, by, part, problemOf(failed))
}

// proxyOr is proxy; failed answers where the other machine does not.
func (s *server) proxyOr(w http.ResponseWriter, r *http.Request, to string, by http.RoundTripper, part bool,
	failed errorHandler) {
	who := writeCaller(caller(r.Context()))
	reverse(by, failed, func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: "https", Host: to})
		p.Out.Header.Del(PartHeader)
		if part {
			p.Out.Header.Set(PartHeader, "1")
		}
		p.Out.Header.Set(CallerHeader, who)
	}).ServeHTTP(w, r)
}

func unanswered(h *store.HostState, err error) error {
	return fmt.Errorf("host %s at %s %w: %w", h.Name, h.API, errLost, err)
}
