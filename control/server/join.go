package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
)

// clocksApart is the largest accepted difference between the clocks of a machine that joins and of the server.
// Certificates allow for an hour.
const clocksApart = 30 * time.Minute

// joinTimeout bounds a join: a new server waits until the others have added it.
const joinTimeout = time.Minute

// ownTimeout bounds opening and reading this machine's own store.
const ownTimeout = 10 * time.Second

// join makes this machine a member of the cluster that its token is from.
func (s *server) join(ctx context.Context, dir string) (*identityDir, error) {
	token, err := pki.ParseToken(s.Token)
	if err != nil {
		return nil, err
	}
	at, called, err := addresses(s.Listen, s.Advertise)
	if err != nil {
		return nil, err
	}
	target, err := joinURL(s.Join)
	if err != nil {
		return nil, err
	}
	if err := s.checkNoSlices(ctx); err != nil {
		return nil, err
	}
	id := new(pki.Identity)
	if id.Key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	request, err := pki.Request(id.Key)
	if err != nil {
		return nil, err
	}
	name, err := machine(s.DataDir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	answer, err := askToJoin(ctx, target, token, api.JoinRequest{
		Token: token.Text(), Request: request,
		Role: s.Role, Name: s.Host, Machine: name, API: called.String(), Version: s.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster at %s: %w%s", target, err, joinAdvice(err))
	}
	if id.Certificate, err = pki.ParseCertificate([]byte(answer.Certificate)); err != nil {
		return nil, fmt.Errorf("join the cluster at %s: read its certificate: %w", target, err)
	}
	id.Authority, err = pki.ParseCertificate([]byte(answer.Authority))
	if err != nil || pki.Pin(id.Authority) != token.Pin {
		return nil, fmt.Errorf("join the cluster at %s: %w", target, pki.ErrPin)
	}
	if err := s.dropOfflineCache(); err != nil {
		return nil, err
	}
	return newIdentity(dir, id, membership{
		Name: s.Host, Role: s.Role, Listen: at.String(), Advertise: called.String(),
		Servers: serversFrom(target, answer.Servers), Etcd: answer.Etcd,
		Initial: answer.Initial, Foreign: answer.Foreign, Join: target,
	})
}

// joinAdvice says what may be wrong where the answer was not that of a server.
func joinAdvice(err error) string {
	var record tls.RecordHeaderError
	var failed *net.OpError
	switch {
	case errors.As(err, new(*api.Problem)):
		return ""
	case errors.As(err, &record), strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Sprintf(": no API answers at that port: is it the one (%d) that "+
			"`pergola token create` prints?", apiPort)
	case errors.As(err, &failed) && failed.Op == "dial":
		return ": is the address right, does a server run there, and do firewalls let this port pass?"
	case errors.Is(err, pki.ErrNoServer):
		return ": join at one of the servers (pergola status lists them)"
	}
	return ""
}

// joinURL reads --join: https://HOST[:PORT], or without the scheme. It gives HOST:PORT.
func joinURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("--join %q: write https://ADDRESS:%d, as `pergola token create` prints it",
			text, apiPort)
	}
	if u.Port() == "" {
		u.Host += ":" + strconv.Itoa(apiPort)
	}
	return u.Host, nil
}

// serversFrom puts the address by which a machine joined first: it is reachable from here.
func serversFrom(target string, servers []string) []string {
	all := []string{target}
	for _, s := range servers {
		if s != target {
			all = append(all, s)
		}
	}
	return all
}

// askToJoin sends the token to the server, once the server has shown a certificate of the token's cluster.
func askToJoin(ctx context.Context, target string, token pki.Token, r api.JoinRequest) (api.JoinAnswer, error) {
	by := newTransport()
	by.TLSClientConfig = pki.JoinConfig(token)
	defer by.CloseIdleConnections()
	var answer api.JoinAnswer
	err := call(ctx, by, "https://"+target+"/v1/join", r, &answer)
	if clock := new(pki.ClockError); errors.As(err, &clock) {
		return answer, clockError(ctx, target, token, clock)
	}
	if err != nil {
		return answer, err
	}
	if apart := time.Since(answer.Time).Abs(); apart > clocksApart {
		return answer, clocksDiffer(time.Now(), answer.Time)
	}
	return answer, nil
}

func clocksDiffer(here, there time.Time) error {
	return fmt.Errorf("the clocks differ by %s: this machine's says %s, the server's %s; certificates do not "+
		"hold then: set the clocks right (NTP) and try again", here.Sub(there).Abs().Round(time.Second),
		stamp(here), stamp(there))
}

// clockError asks for the server's time, to name both times in the error.
func clockError(ctx context.Context, target string, token pki.Token, clock *pki.ClockError) error {
	by := newTransport()
	by.TLSClientConfig = pki.ClockConfig(token)
	defer by.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+target+"/v1/join", nil)
	if err != nil {
		return clock
	}
	resp, err := by.RoundTrip(r)
	if err != nil {
		return clock
	}
	resp.Body.Close()
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || clock.Now.Sub(there).Abs() < time.Minute {
		return clock // it is the certificate that is old
	}
	return clocksDiffer(clock.Now, there)
}

// checkNoSlices refuses to join while this machine runs slices of its own: they are not in the cluster's store, so the
// agent would remove them. Then it removes the own store, which is empty.
func (s *server) checkNoSlices(ctx context.Context) error {
	dir := filepath.Join(s.DataDir, "store")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) || len(s.Etcd) > 0 {
		return nil
	}
	opening, cancel := context.WithTimeout(ctx, ownTimeout) // the store of a cluster's server waits for the others
	defer cancel()
	own, err := store.Open(opening, store.Config{Dir: dir})
	if err != nil {
		return fmt.Errorf("look for networks of this machine: %w; "+
			"if it was a server of a cluster, what it kept there is not needed: remove %s", err, dir)
	}
	records, err := own.Slices(ctx)
	own.Close()
	if err != nil {
		return fmt.Errorf("look for networks of this machine: %w", err)
	}
	if len(records) > 0 {
		return fmt.Errorf("this machine runs %d networks of its own, such as %s, which the cluster would "+
			"know nothing of: take them down first (pergola server, pergola down --all)", len(records),
			records[0].Name)
	}
	return os.RemoveAll(dir)
}

// createCluster makes a cluster with this machine as its first server.
func (s *server) createCluster(dir string, now time.Time) (*identityDir, error) {
	at, called, err := addresses(s.Listen, s.Advertise)
	if err != nil {
		return nil, err
	}
	if !hostName.MatchString(s.Host) {
		return nil, fmt.Errorf("%.80q is no name for a host: letters, digits, dots and hyphens, "+
			"at most 63 (--host NAME)", s.Host)
	}
	authority, err := pki.NewAuthority(s.Host, now)
	if err != nil {
		return nil, err
	}
	id := &pki.Identity{Authority: authority.Certificate}
	if id.Key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	member := pki.Member{Name: s.Host, Role: pki.Server, Hosts: []string{called.Addr().String()}}
	id.Certificate, err = authority.Issue(member, id.Key.Public(), now)
	if err != nil {
		return nil, err
	}
	_, key, err := authority.Encode()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// The membership is written later: without it, the key counts for nothing.
	if err := (&identityDir{dir: dir}).write(authorityKeyFile, key); err != nil {
		return nil, err
	}
	if err := s.dropOfflineCache(); err != nil {
		return nil, err
	}
	return newIdentity(dir, id, membership{
		Name: s.Host, Role: pki.Server, Founder: true, Listen: at.String(), Advertise: called.String(),
		Etcd: s.Etcd, Foreign: len(s.Etcd) > 0,
	})
}
