package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/wording"
)

// enter finds this machine's place: in the cluster that it is a member of, or is to join, or is to make; nil where it is to be alone.
func (s *server) enter(ctx context.Context) (*cluster, error) {
	if s.Role == "" {
		s.Role = pki.Server
	}
	dir := filepath.Join(s.DataDir, "cluster")
	k, err := openKept(dir)
	switch {
	case s.NewAuthority && errors.Is(err, errNoMember):
		return nil, fmt.Errorf("%w: there is no authority to make another one in the place of", err)
	case s.NewAuthority && err == nil:
		if err := s.renewAuthority(ctx, k); err != nil {
			return nil, fmt.Errorf("make a new authority: %w", err)
		}
		if alone, err := s.resume(ctx, k); alone || err != nil {
			return nil, err
		}
	case err == nil && k.lapsed(time.Now()):
		if k, err = s.joinAgain(ctx, k); err != nil {
			return nil, err
		}
	case err == nil:
		if alone, err := s.resume(ctx, k); alone || err != nil {
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
	c := newCluster(k, id, s.Log, s.events)
	if s.renewal != nil {
		c.renewal = s.renewal
	}
	return c, nil
}

// resume goes on as the member that this machine is. The one that made a cluster, and is all of it, may be alone again.
func (s *server) resume(ctx context.Context, k *kept) (alone bool, err error) {
	m := &k.member
	if s.Join == "" {
		s.Role = m.Role // nobody asked for another one: `pergola server` is what the service starts on every machine
	}
	leave := fmt.Sprintf("to leave that cluster, stop this machine's server, run `pergola host rm %s` on another member, and remove %s here", m.Name, k.dir)
	switch {
	case s.Listen == ListenNone && m.Founder && len(m.Servers) <= 1 && !m.Shared && !m.Foreign:
		s.Host = m.Name
		return true, nil
	case m.Role != s.Role:
		return false, fmt.Errorf("this machine is a member already, as one of the %s: leave out --join; %s", wording.Plural(m.Role.Word()), leave)
	case s.Token != "":
		token, err := pki.ParseToken(s.Token)
		if err != nil {
			return false, err
		}
		if token.Pin != pki.Pin(k.identity.Load().Authority) {
			return false, fmt.Errorf("this machine is a member of another cluster than that of the token: %s; if it is the same one, with a new authority, remove that directory alone", leave)
		}
		if err := s.reachBy(m); err != nil {
			return false, err
		}
	}
	if s.named && s.Host != m.Name {
		return false, fmt.Errorf("this machine is a member by the name %s, and cannot be called %s: %s", m.Name, s.Host, leave)
	}
	s.Host = m.Name
	return false, s.moved(ctx, k)
}

// lapsed reports whether the cluster does not believe an agent any more: it was off for longer than its certificate holds. A server signs itself
// another one.
func (k *kept) lapsed(now time.Time) bool {
	return k.member.Role == pki.Agent && now.After(k.identity.Load().Certificate.NotAfter)
}

// joinAgain lets a member in whose certificate expired, by a new token and as the host that it was.
func (s *server) joinAgain(ctx context.Context, k *kept) (*kept, error) {
	if s.Join == "" || s.Token == "" {
		return nil, fmt.Errorf("this machine's certificate, by which it is a member of the cluster, expired at %s, and it is %s by its clock: if that is right, the machine was off for too long, and joins again "+
			"by a new token (the command that `pergola token create` prints on a server); what runs here runs on, and its name stays %s",
			stamp(k.identity.Load().Certificate.NotAfter), stamp(time.Now()), k.member.Name)
	}
	if s.Role != k.member.Role {
		return nil, fmt.Errorf("this machine was a member as one of the %s: let it join again by a token for these", wording.Plural(k.member.Role.Word()))
	}
	if !s.named {
		s.Host = k.member.Name
	}
	return s.join(ctx, k.dir)
}

// reachBy notes a server's address that a member is told of: those that it knew may be old ones.
func (s *server) reachBy(m *membership) error {
	target, err := joinURL(s.Join)
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(target)
	if err != nil || m.Role != pki.Agent {
		return nil // a name: its etcd is asked for by those that are known
	}
	m.Servers = reached(target, m.Servers)
	if etcd := "https://" + after(at, etcdClientPort); !slices.Contains(m.Etcd, etcd) && len(s.Etcd) == 0 {
		m.Etcd = append([]string{etcd}, m.Etcd...)
	}
	return nil
}

// moved takes over an address that the flags say and the membership does not. That of an agent may also have changed by itself.
func (s *server) moved(ctx context.Context, k *kept) error {
	m := k.member
	listen := s.Listen
	if listen == "" || listen == ListenAuto || listen == ListenNone {
		if m.Role != pki.Agent || s.Advertise != "" || assigned(m.Listen) {
			return k.remember(m)
		}
		listen = ListenAuto
	}
	at, called, err := addresses(listen, s.Advertise)
	if err != nil {
		return err
	}
	switch {
	case m.Role == pki.Agent || called.Addr().String() == addressOf(m.Advertise):
	case m.Founder && len(m.Servers) <= 1: // nobody else knows it as a server
		if err := s.recertify(ctx, k, called.Addr()); err != nil {
			return fmt.Errorf("move this server from %s to %s: %w", m.Advertise, called, err)
		}
	default:
		return fmt.Errorf("this server is known to the others as %s, and cannot move to %s: give it its address back; or stop it, run `pergola host rm %s` on another member, "+
			"remove %s here, and let it join again", m.Advertise, called, m.Name, k.dir)
	}
	if at.String() != m.Listen || called.String() != m.Advertise {
		s.Log.Info("this machine has moved", "from", m.Advertise, "to", called)
	}
	m.Listen, m.Advertise = at.String(), called.String()
	return k.remember(m)
}

// recertify gives the only server of a cluster a certificate for another address. The store is asked for the authority while it listens nowhere.
func (s *server) recertify(ctx context.Context, k *kept, address netip.Addr) error {
	st, err := s.openAlone(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	cert, key, err := st.Trust().Authority(ctx)
	if err != nil {
		return err
	}
	authority, err := pki.LoadAuthority(cert, key)
	if err != nil {
		return err
	}
	own, err := authority.Issue(pki.Member{Name: k.member.Name, Role: pki.Server, Hosts: []string{address.String()}}, k.identity.Load().Key.Public(), time.Now())
	if err != nil {
		return err
	}
	return k.renew(pki.EncodeCertificate(own))
}

func addressOf(hostPort string) string {
	a, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return ""
	}
	return a.Addr().String()
}

// membershipOf is what the agent needs to know of the cluster.
func (s *server) membershipOf(c *cluster) (*Cluster, error) {
	m := c.current()
	end, err := tunnelEnd(c.own().Addr(), s.Underlay)
	if err != nil {
		return nil, err
	}
	return &hosts.Membership{
		Joined: !m.Founder, Machine: c.machine, Address: end, Interfaces: s.Underlay, NoXDP: s.NoXDP, API: m.Advertise,
		Labels: s.Labels, Version: s.Version,
	}, nil
}
