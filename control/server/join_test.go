package server

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
)

// distant is a server whose clock is ahead by so much; it lets everybody in.
func distant(t *testing.T, ahead time.Duration) (address string, token pki.Token) {
	t.Helper()
	there := time.Now().Add(ahead)
	authority, err := pki.NewAuthority("test", time.Now().Add(-24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := authority.Issue(pki.Member{Name: "s1", Role: pki.Server}, key.Public(), there)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{
		TLSConfig: pki.ServerConfig(func() *pki.Identity {
			return &pki.Identity{Certificate: cert, Key: key, Authority: authority.Certificate}
		}),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", there.UTC().Format(http.TimeFormat))
			_ = json.NewEncoder(w).Encode(api.JoinAnswer{Time: there})
		}),
	}
	var served sync.WaitGroup
	served.Go(func() { _ = web.ServeTLS(listener, "", "") }) // until it is closed
	t.Cleanup(func() {
		web.Close()
		served.Wait()
	})
	token, _ = pki.NewToken(authority, pki.Agent, "", time.Hour, time.Now())
	return listener.Addr().String(), token
}

func TestClocksThatDifferAreBothNamed(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"its certificate is not valid yet": 3 * time.Hour, "ours would not be": -3 * time.Hour,
		"within what certificates allow for": 45 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			address, token := distant(t, ahead)
			_, err := askToJoin(t.Context(), address, token, api.JoinRequest{})
			there := time.Now().Add(ahead).UTC().Format("2006-01-02T15:")
			here := time.Now().UTC().Format("2006-01-02T15:")
			if err == nil || !strings.Contains(err.Error(), "the clocks differ by") ||
				!strings.Contains(err.Error(), "the server's "+there) ||
				!strings.Contains(err.Error(), "this machine's says "+here) {
				t.Errorf("got %v", err)
			}
		})
	}
	address, token := distant(t, time.Minute)
	if _, err := askToJoin(t.Context(), address, token, api.JoinRequest{}); err != nil {
		t.Errorf("a minute apart: %v", err)
	}
}

func TestJoinURLs(t *testing.T) {
	for text, want := range map[string]string{
		"https://192.0.2.1:7470": "192.0.2.1:7470", "https://192.0.2.1/": "192.0.2.1:7470",
		"192.0.2.1":       "192.0.2.1:7470",
		"h1.example:8000": "h1.example:8000", "https://[2001:db8::1]": "[2001:db8::1]:7470",
	} {
		if got, err := joinURL(text); err != nil || got != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"", "http://192.0.2.1", "https://", "https://h1/path", "://"} {
		if got, err := joinURL(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ listen, advertise, at, called string }{
		{"192.0.2.1", "", "192.0.2.1:7470", "192.0.2.1:7470"},
		{"192.0.2.1:8000", "", "192.0.2.1:8000", "192.0.2.1:8000"},
		{"2001:db8::1", "", "[2001:db8::1]:7470", "[2001:db8::1]:7470"},
		{"[2001:db8::1]:8000", "198.51.100.1", "[2001:db8::1]:8000", "198.51.100.1:7470"},
		{"0.0.0.0", "198.51.100.1:443", "0.0.0.0:7470", "198.51.100.1:443"},
	} {
		at, called, err := addresses(c.listen, c.advertise)
		if err != nil || at.String() != c.at || called.String() != c.called {
			t.Errorf("%+v: %v %v %v", c, at, called, err)
		}
	}
	for _, c := range [][2]string{{"h1", ""}, {"192.0.2.1:0", ""}, {"192.0.2.1:65534", ""},
		{"192.0.2.1", "nowhere"}} {
		if at, called, err := addresses(c[0], c[1]); err == nil {
			t.Errorf("%v: %v %v", c, at, called)
		}
	}
	if portAfter(must(t, "192.0.2.1:7470"), etcdPeerPort) != "192.0.2.1:7472" {
		t.Error("the port of etcd's peers")
	}
}

func must(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
