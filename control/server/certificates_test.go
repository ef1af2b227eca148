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
	askAt := func(at *member, verb, path, who string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), verb, "https://"+at.cfg.Listen+":7470"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(rest.CallerHeader, who)
		by := newTransport()
		by.TLSClientConfig = pki.PeerConfig(func() *pki.Identity { return d.identity.Load() }, at.cfg.Host)
		defer by.CloseIdleConnections()
		resp, err := by.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	ask := func(verb, path, who string) (int, string) { return askAt(h1, verb, path, who) }
	if status, text := ask(http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusOK {
		t.Errorf("a member: %d %s", status, text)
	}
	// On behalf of whom a member asks, it says itself.
	if status, text := ask(http.MethodDelete, "/v1/tokens/x", "1000 1000 false"); status != http.StatusForbidden {
		t.Errorf("a user of a member: %d %s", status, text)
	}
	if status, text := ask(http.MethodDelete, "/v1/tokens/x", "0 0 true"); status != http.StatusNotFound {
		t.Errorf("root of a member: %d %s", status, text)
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
	if err := h1.RemoveHost(t.Context(), "h2", false); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(http.MethodGet, "/v1/slices", "0 0 true"); status != http.StatusForbidden ||
		!strings.Contains(text, "host h2 is not in the cluster any more") {
		t.Errorf("a host that was removed: %d %s", status, text)
	}
	again := h2.cfg
	again.Join, again.Token = "", ""
	startFails(t, again, "this host was removed from the cluster: let it join again")

	// Nor when another machine has its name.
	joined(t, h1, "h2", pki.Agent)
	h3 := joined(t, h1, "h3", pki.Agent)
	for _, at := range []*member{h1, h3} {
		if status, text := askAt(at, http.MethodGet, "/v1/slices",
			"0 0 true"); status != http.StatusForbidden ||
			!strings.Contains(text, "another machine joined the cluster as host h2, at 20") {
			t.Errorf("a host whose name another machine has, at %s: %d %s", at.cfg.Host, status, text)
		}
	}
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
		// by h1 and by h3, once each
		strings.Count(text, "which was host h2, was refused: another machine joined") != 2 {
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
