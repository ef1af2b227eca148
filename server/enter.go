package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pergola-net/pergola/pki"
	"github.com/pergola-net/pergola/substrate"
)

// enter finds this machine's place: in the cluster that it is a member of, or is to join, or is to make; nil where it is to be alone.
func (s *server) enter(ctx context.Context) (*cluster, error) {
	if s.Role == "" {
		s.Role = pki.Server
	}
	dir := filepath.Join(s.DataDir, "cluster")
	k, err := openKept(dir)
	switch {
	case err == nil:
		if alone, err := s.resume(k); alone || err != nil {
			return nil, err
		}
	case !errors.Is(err, errNoMember):
		return nil, err
	case s.Join != "":
		if k, err = s.join(ctx, dir); err != nil {
			return nil, err
		}
	case s.Token != "":
		return nil, errors.New("a token, but no cluster to join: --join https://ADDRESS:7470, as the server prints it")
	case s.Role == pki.Agent:
		return nil, fmt.Errorf("%w, and an agent needs one: pergola agent --join https://ADDRESS:7470 --token TOKEN, as the server prints it", errNoMember)
	case s.Listen == ListenNone || s.Listen == "":
		return nil, nil
	default:
		if k, err = s.found(dir, time.Now()); err != nil {
			return nil, fmt.Errorf("make a cluster: %w", err)
		}
	}
	id, err := machine(s.DataDir)
	if err != nil {
		return nil, err
	}
	c := newCluster(k, id, s.Log)
	c.foreign = len(s.Etcd) > 0
	if s.renewal != nil {
		c.renewal = s.renewal
	}
	return c, nil
}

// resume goes on as the member that this machine is. The one that made a cluster, and is its only server, may be alone again.
func (s *server) resume(k *kept) (alone bool, err error) {
	m := &k.member
	if s.Join == "" {
		s.Role = m.Role // nobody asked for another one: `pergola server` is what the service starts on every machine
	}
	leave := fmt.Sprintf("to leave that cluster, stop this machine's server, run `pergola host rm %s` on another member, and remove %s here", m.Name, k.dir)
	switch {
	case s.Listen == ListenNone && m.Founder && len(m.Servers) <= 1:
		s.Host = m.Name
		return true, nil
	case m.Role != s.Role:
		return false, fmt.Errorf("this machine is a member already, as one of the %s: leave out --join; %s", plural(m.Role), leave)
	case s.Token != "":
		token, err := pki.ParseToken(s.Token)
		if err != nil {
			return false, err
		}
		if token.Pin != pki.Pin(k.identity.Load().Authority) {
			return false, fmt.Errorf("this machine is a member of another cluster than that of the token: %s", leave)
		}
	}
	if s.named && s.Host != m.Name {
		return false, fmt.Errorf("this machine is a member by the name %s, and cannot be called %s: %s", m.Name, s.Host, leave)
	}
	s.Host = m.Name
	return false, s.moved(k)
}

// moved takes over an address that the flags say and the membership does not.
func (s *server) moved(k *kept) error {
	m := k.member
	if s.Listen == "" || s.Listen == ListenAuto || s.Listen == ListenNone {
		return nil
	}
	at, called, err := addresses(s.Listen, s.Advertise)
	if err != nil || at.String() == m.Listen && called.String() == m.Advertise {
		return err
	}
	if err := k.identity.Load().Certificate.VerifyHostname(called.Addr().String()); err != nil && m.Role == pki.Server && !m.Founder {
		return fmt.Errorf("move this server from %s to %s: its certificate is for the old address: remove it from the cluster and let it join again", m.Advertise, called)
	}
	m.Listen, m.Advertise = at.String(), called.String()
	return k.remember(m)
}

// membershipOf is what the agent needs to know of the cluster.
func (s *server) membershipOf(c *cluster) (*Cluster, error) {
	m := c.current()
	end, err := tunnelEnd(c.own().Addr(), s.Underlay)
	if err != nil {
		return nil, err
	}
	return &substrate.Membership{
		Joined: !m.Founder, Machine: c.machine, Address: end, Interfaces: s.Underlay, API: m.Advertise, Labels: s.Labels, Version: s.Version,
	}, nil
}
