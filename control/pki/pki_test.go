package pki_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
)

func authority(t *testing.T, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func identity(t *testing.T, a *pki.Authority, name string, role pki.Role, now time.Time) func() *pki.Identity {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.IssueRequest(pki.Member{Name: name, Role: role, Hosts: []string{"192.0.2.1", "h1.example"}},
		request, now)
	if err != nil {
		t.Fatal(err)
	}
	return func() *pki.Identity { return &pki.Identity{Certificate: cert, Key: key, Authority: a.Certificate} }
}

// talk shakes hands over a pipe, and returns the member that the server saw.
func talk(t *testing.T, server, client *tls.Config) (pki.Member, bool, error) {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	s, c := tls.Server(there, server), tls.Client(here, client)
	served := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			// in TLS 1.3 the client is done before the server has seen its certificate
			_, err = s.Write([]byte("x"))
		}
		there.Close()
		served <- err
	}()
	err := c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	here.Close()
	serverErr := <-served
	if err == nil && serverErr != nil {
		err = serverErr
	}
	state := s.ConnectionState()
	m, known := pki.PeerOf(&state)
	return m, known, err
}

func TestMembersAuthenticateEachOther(t *testing.T) {
	now := time.Now()
	ours, foreign := authority(t, now), authority(t, now)
	server := pki.ServerConfig(identity(t, ours, "s1", pki.Server, now))
	token, _ := pki.NewToken(ours, pki.Agent, "", time.Hour, now)
	stranger, _ := pki.NewToken(foreign, pki.Agent, "", time.Hour, now)
	intruder := identity(t, foreign, "h1", pki.Agent, now)()
	intruder.Authority = ours.Certificate // it believes our servers; they are not to believe it
	for _, tt := range []struct {
		name           string
		server, client *tls.Config
		want           string // part of the error
		member         string
	}{
		{name: "agent", server: server, client: pki.ClientConfig(identity(t, ours, "h1", pki.Agent, now)), member: "h1"},
		{name: "server to server", server: server,
			client: pki.ClientConfig(identity(t, ours, "s2", pki.Server, now)), member: "s2"},
		{name: "joining", server: server, client: pki.JoinConfig(token)},
		{name: "joining another cluster", server: server, client: pki.JoinConfig(stranger),
			want: "not the cluster that the token is from"},
		{name: "agent of another cluster", server: server,
			client: pki.ClientConfig(identity(t, foreign, "h1", pki.Agent, now)),
			want:   "not of this cluster"},
		{name: "an intruder", server: server, client: pki.ClientConfig(func() *pki.Identity { return intruder }), want: "unknown certificate authority"},
		{name: "a peer", server: pki.ServerConfig(identity(t, ours, "h2", pki.Agent, now)),
			client: pki.PeerConfig(identity(t, ours, "h1", pki.Agent, now), "h2"), member: "h1"},
		{name: "another peer", server: pki.ServerConfig(identity(t, ours, "h3", pki.Agent, now)),
			client: pki.PeerConfig(identity(t, ours, "h1", pki.Agent, now), "h2"),
			want:   "h3 answers in place of h2"},
		{name: "not valid yet", server: pki.ServerConfig(identity(t, ours, "s1", pki.Server,
			now.Add(3*time.Hour))), client: pki.JoinConfig(token), want: "this machine's clock says"},
		{name: "asking for its clock",
			server: pki.ServerConfig(identity(t, ours, "s1", pki.Server, now.Add(3*time.Hour))),
			client: pki.ClockConfig(token)},
		{name: "an agent that plays server", server: pki.ServerConfig(identity(t, ours, "h2", pki.Agent, now)),
			client: pki.ClientConfig(identity(t, ours, "h1", pki.Agent, now)),
			want:   "h2 answers, which is no server"},
		{name: "an agent that plays server to who joins",
			server: pki.ServerConfig(identity(t, ours, "h2", pki.Agent, now)),
			client: pki.JoinConfig(token),
			want:   "h2 answers, which is no server"},
		{name: "expired", server: pki.ServerConfig(identity(t, ours, "s1", pki.Server,
			now.Add(-365*24*time.Hour))), client: pki.ClientConfig(identity(t, ours, "h1", pki.Agent, now)),
			want: "this machine's clock says"},
		{name: "an expired agent", server: server,
			client: pki.ClientConfig(identity(t, ours, "h1", pki.Agent, now.Add(-365*24*time.Hour))),
			want:   "expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, known, err := talk(t, tt.server, tt.client)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || m.Name != tt.member || known != (tt.member != "") {
				t.Errorf("the server saw %+v, %v (%v)", m, known, err)
			}
		})
	}
}

// A forged authority with the pinned one's certificate in its chain must not do: the leaf is verified against the pin.
func TestJoinVerifiesTheLeaf(t *testing.T) {
	now := time.Now()
	ours, foreign := authority(t, now), authority(t, now)
	token, _ := pki.NewToken(ours, pki.Agent, "", time.Hour, now)
	forged := identity(t, foreign, "s1", pki.Server, now)()
	forged.Authority = ours.Certificate
	if _, _, err := talk(t, pki.ServerConfig(func() *pki.Identity { return forged }),
		pki.JoinConfig(token)); err == nil || !strings.Contains(err.Error(), "not of this cluster") {
		t.Errorf("got %v", err)
	}
}

func TestTokens(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := authority(t, now)
	token, grant := pki.NewToken(a, pki.Agent, "lab", time.Hour, now)
	other, _ := pki.NewToken(a, pki.Agent, "", time.Hour, now)
	text := token.Text()
	if printed := fmt.Sprint(token); strings.Contains(printed, strings.Split(text, "-")[2]) ||
		!strings.Contains(printed, token.ID) {
		t.Errorf("printed as %s", printed)
	}
	read, err := pki.ParseToken(" " + text + "\n")
	if err != nil || read != token {
		t.Fatalf("read %v (%v), wrote %v", read, err, token)
	}
	if err := grant.Check(read, now.Add(59*time.Minute)); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"expired": {grant.Check(read, now.Add(time.Hour)), "it expired at 2026-01-01T01:00:00Z"},
		"other":   {grant.Check(other, now), "this cluster did not make it"},
	} {
		if !errors.Is(tt.err, pki.ErrToken) || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, tt.err, tt.want)
		}
	}
	for cut := 1; cut < len(text); cut++ {
		if _, err := pki.ParseToken(text[:cut]); !errors.Is(err, pki.ErrToken) {
			t.Errorf("%d characters are a token: %v", cut, err)
		}
	}
	for _, bad := range []string{"", "hello", text + "-x", strings.Replace(text, token.ID, "x", 1)} {
		if _, err := pki.ParseToken(bad); !errors.Is(err, pki.ErrToken) {
			t.Errorf("%q is a token: %v", bad, err)
		}
	}
}

func TestAuthorityIsKept(t *testing.T) {
	now := time.Now()
	a := authority(t, now)
	cert, key, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.LoadAuthority(cert, key)
	if err != nil || pki.Pin(again.Certificate) != pki.Pin(a.Certificate) {
		t.Fatalf("loaded another authority (%v)", err)
	}
	_, foreign, err := authority(t, now).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2][]byte{"foreign key": {cert, foreign}, "no certificate": {key, key},
		"no key": {cert, cert}, "nothing": {}} {
		if _, err := pki.LoadAuthority(pair[0], pair[1]); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	member := identity(t, again, "h1", pki.Agent, now)()
	if at := pki.Renewal(member.Certificate); !at.After(now.Add(59*24*time.Hour)) ||
		!at.Before(now.Add(61*24*time.Hour)) {
		t.Errorf("renewal at %s", at)
	}
	if _, err := a.IssueRequest(pki.Member{Name: "h1", Role: pki.Agent}, []byte("no request"), now); err == nil {
		t.Error("issued for no request")
	}
	memberKey, err := pki.EncodeKey(member.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadAuthority(pki.EncodeCertificate(member.Certificate), memberKey); err == nil ||
		!strings.Contains(err.Error(), "may not sign others") {
		t.Errorf("a member as an authority: %v", err)
	}
	for want, try := range map[string]struct {
		m   pki.Member
		at  time.Time
		key any
	}{
		"has no name":  {pki.Member{Role: pki.Agent}, now, member.Key.Public()},
		"unknown role": {pki.Member{Name: "h1"}, now, member.Key.Public()},
		"P-256":        {pki.Member{Name: "h1", Role: pki.Agent}, now, ed25519.PublicKey{}},
		"expired":      {pki.Member{Name: "h1", Role: pki.Agent}, now.AddDate(11, 0, 0), member.Key.Public()},
	} {
		if _, err := a.Issue(try.m, try.key, try.at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
