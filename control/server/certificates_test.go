package server

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/session"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestCertificatesAreRenewed(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	stopAll(t, h2, h1)
	certificate := func(m *member) string {
		text, err := os.ReadFile(filepath.Join(m.cfg.DataDir, "cluster", certificateFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	was1, was2 := certificate(h1), certificate(h2)
	h2.cfg.Join, h2.cfg.Token = "", ""
	var renewed sync.Map
	for _, m := range []*member{h1, h2} {
		m.cfg.renewal = func(c *x509.Certificate) time.Time { // each once
			if _, done := renewed.LoadOrStore(c.Subject.CommonName, true); done {
				return pki.Renewal(c)
			}
			return c.NotBefore
		}
		run(t, m.cfg)
	}
	await(t, "new certificates", func() bool { return certificate(h1) != was1 && certificate(h2) != was2 })
}

func TestOnlyMembersAreServed(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	token, err := pki.ParseToken(mustToken(t, h1))
	if err != nil {
		t.Fatal(err)
	}
	by := newTransport()
	by.TLSClientConfig = pki.JoinConfig(token)
	defer by.CloseIdleConnections()
	for path, status := range map[string]int{"/v1/slices": 401, "/v1/tokens": 401, "/v1/renew": 401,
		"/metrics": 401, "/v1/blobs/x": 401, "/v1/join": 405} {
		got, err := getAs(t, by, h1, path)
		if err != nil {
			t.Fatal(err)
		}
		if got != status {
			t.Errorf("%s: status %d, want %d", path, got, status)
		}
	}
}

func TestRemovedHostsAreRefused(t *testing.T) {
	testkit.Root(t)
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	d, err := openIdentity(filepath.Join(h2.cfg.DataDir, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	identity := func() *pki.Identity { return d.identity.Load() }
	ask := func(by http.RoundTripper, verb, path, who string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), verb, "https://"+h1.cfg.Listen+":7470"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(rest.CallerHeader, who)
		resp, err := by.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	direct := newTransport()
	direct.TLSClientConfig = pki.PeerConfig(identity, "h1")
	defer direct.CloseIdleConnections()
	if status, text := ask(direct, http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusForbidden ||
		!strings.Contains(text, "agents ask by their sessions") {
		t.Errorf("an agent, without a session: %d %s", status, text)
	}
	var p *api.Problem
	if _, err := h2.CreateToken(t.Context(), api.TokenRequest{Role: pki.Server}); !errors.As(err, &p) ||
		p.Status != http.StatusForbidden || !strings.Contains(p.Detail, "make it on a server") {
		t.Errorf("an agent's token for a server: %v", err)
	}
	if names := d.identity.Load().Certificate.IPAddresses; len(names) > 0 {
		t.Errorf("an agent's certificate is one for %v", names)
	}
	if err := h2.stop(); err != nil {
		t.Fatal(err)
	}
	by := session.NewClient(session.ClientConfig{
		TLS: pki.ClientConfig(identity), Handler: http.NotFoundHandler(),
		Servers: func() []string { return []string{h1.cfg.Listen + ":7470"} },
	})
	go by.Run(t.Context())
	if status, text := ask(by, http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusOK {
		t.Errorf("a member: %d %s", status, text)
	}
	// On behalf of whom a member asks, it says itself.
	if status, text := ask(by, http.MethodDelete, "/v1/tokens/x",
		"1000 1000 false"); status != http.StatusForbidden {
		t.Errorf("a user of a member: %d %s", status, text)
	}
	if status, text := ask(by, http.MethodDelete, "/v1/tokens/x", "0 0 true"); status != http.StatusNotFound {
		t.Errorf("root of a member: %d %s", status, text)
	}
	testkit.Eventually(t, func() error { return h1.RemoveHost(t.Context(), "h2", false) }, 20*time.Second,
		"h2 to be lost")
	if status, text := ask(by, http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusForbidden ||
		!strings.Contains(text, "this host was removed from the cluster") {
		t.Errorf("a host that was removed, in a session of before: %d %s", status, text)
	}
	testkit.Eventually(t, func() error {
		status, text := ask(by, http.MethodGet, "/v1/slices", "0 0 true")
		if status != 0 || !strings.Contains(text, "this host was removed from the cluster") {
			return fmt.Errorf("a host that was removed: %d %s", status, text)
		}
		return nil
	}, 20*time.Second, "the session to end")
	again := h2.cfg
	again.Join, again.Token = "", ""
	startFails(t, again, "this host was removed from the cluster: let it join again")

	// Nor when another machine has its name.
	joined(t, h1, "h2", pki.Agent)
	testkit.Eventually(t, func() error {
		status, text := ask(by, http.MethodGet, "/v1/slices", "0 0 true")
		if status != 0 || !strings.Contains(text, "another machine joined the cluster as host h2, at 20") {
			return fmt.Errorf("a host whose name another machine has: %d %s", status, text)
		}
		return nil
	}, 20*time.Second, "the other machine to be known")
	startFails(t, again, "another machine joined the cluster as host h2, at 20",
		"under another name: remove "+filepath.Join(again.DataDir, "cluster"), "--host NAME")
	var reported []string
	err = h1.Events(t.Context(), "", false, func(e events.Event) error {
		if e.Kind == events.HostRefused {
			reported = append(reported, e.Message)
		}
		return nil
	})
	if text := strings.Join(reported, "\n"); err != nil ||
		strings.Count(text, "which was host h2, was refused: another machine joined") != 1 {
		t.Errorf("h1 reports %q %v", reported, err)
	}
	if err := os.RemoveAll(filepath.Join(again.DataDir, "cluster")); err != nil {
		t.Fatal(err)
	}
	again.Host = "h4"
	invite(t, h1, &again, pki.Agent)
	run(t, again)
}

func TestCertificatesAreRenewedForTheSameKey(t *testing.T) {
	testkit.Root(t) // tokens are for root
	h1 := run(t, machineConfig(t, "h1"))
	h2 := joined(t, h1, "h2", pki.Agent)
	d, err := openIdentity(filepath.Join(h2.cfg.DataDir, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	by := newTransport()
	by.TLSClientConfig = pki.ClientConfig(func() *pki.Identity { return d.identity.Load() })
	defer by.CloseIdleConnections()
	other, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"its own": d.identity.Load().Key, "another": other} {
		request, err := pki.Request(key)
		if err != nil {
			t.Fatal(err)
		}
		var answer api.RenewAnswer
		err = call(t.Context(), by, "https://"+h1.cfg.Listen+":7470/v1/renew",
			api.RenewRequest{Request: request, API: h2.cfg.Listen + ":7470"}, &answer)
		if (err == nil) != (name == "its own") {
			t.Errorf("for %s key: %v", name, err)
		}
		if name == "another" && !strings.Contains(fmt.Sprint(err), "another machine joined") {
			t.Errorf("for another key it is refused by: %v", err)
		}
	}
}
