package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/wording"
)

// openCluster opens the cluster that this machine is a member of, joins one, or makes one, as the configuration says;
// nil where the machine is to be alone.
func (s *server) openCluster(ctx context.Context) (*cluster, error) {
	if s.Role == "" {
		s.Role = pki.Server
	}
	dir := filepath.Join(s.DataDir, "cluster")
	d, err := openIdentity(dir)
	switch {
	case s.NewAuthority && errors.Is(err, errNoMember):
		return nil, fmt.Errorf("%w: there is no authority to make another one in the place of", err)
	case s.NewAuthority && err == nil:
		if err := s.renewAuthority(ctx, d); err != nil {
			return nil, fmt.Errorf("make a new authority: %w", err)
		}
		if alone, err := s.resume(ctx, d); alone || err != nil {
			return nil, err
		}
	case err == nil && d.expired(time.Now()):
		if d, err = s.rejoin(ctx, d); err != nil {
			return nil, err
		}
	case err == nil:
		if alone, err := s.resume(ctx, d); alone || err != nil {
			return nil, err
		}
	case !errors.Is(err, errNoMember):
		return nil, err
	case s.Join != "":
		if d, err = s.join(ctx, dir); err != nil {
			return nil, err
		}
	case s.Token != "":
		return nil, errors.New("a token, but no cluster to join: --join https://ADDRESS:7470, " +
			"as the server prints it")
	case s.Role == pki.Agent:
		return nil, fmt.Errorf("%w, and an agent needs one: "+
			"pergola agent --join https://ADDRESS:7470 --token TOKEN, as the server prints it", errNoMember)
	case s.Listen == ListenNone || s.Listen == "":
		return nil, nil
	default:
		if d, err = s.createCluster(dir, time.Now()); err != nil {
			return nil, fmt.Errorf("make a cluster: %w", err)
		}
	}
	id, err := machine(s.DataDir)
	if err != nil {
		return nil, err
	}
	c := newCluster(d, id, s.Log, s.events)
	if s.renewal != nil {
		c.renewal = s.renewal
	}
	return c, nil
}

// resume continues the membership. The machine that made a cluster, and is all of it, may be alone again.
func (s *server) resume(ctx context.Context, d *identityDir) (alone bool, err error) {
	m := &d.member
	if s.Join == "" {
		s.Role = m.Role // the service starts `pergola server` on every machine
	}
	leave := fmt.Sprintf("to leave that cluster, stop this machine's server, run `pergola host rm %s` on another "+
		"member, and remove %s here", m.Name, d.dir)
	switch {
	case s.Listen == ListenNone && m.Founder && len(m.Servers) <= 1 && !m.Shared && !m.Foreign:
		s.Host = m.Name
		return true, nil
	case m.Role != s.Role:
		return false, fmt.Errorf("this machine is a member already, as one of the %s: leave out --join; %s",
			wording.Plural(m.Role.Word()), leave)
	case s.Token != "":
		token, err := pki.ParseToken(s.Token)
		if err != nil {
			return false, err
		}
		if token.Pin != pki.Pin(d.identity.Load().Authority) {
			return false, fmt.Errorf("this machine is a member of another cluster than that of the "+
				"token: %s; if it is the same one, with a new authority, remove that directory alone",
				leave)
		}
		if err := s.addServer(m); err != nil {
			return false, err
		}
	}
	if s.named && s.Host != m.Name {
		return false, fmt.Errorf("this machine is a member by the name %s, and cannot be called %s: %s",
			m.Name, s.Host, leave)
	}
	s.Host = m.Name
	return false, s.updateAddress(ctx, d)
}

// expired reports whether an agent was off for longer than its certificate holds. A server signs itself another
// certificate.
func (d *identityDir) expired(now time.Time) bool {
	return d.member.Role == pki.Agent && now.After(d.identity.Load().Certificate.NotAfter)
}

// rejoin makes an agent whose certificate expired a member again, by a new token, under its old name.
func (s *server) rejoin(ctx context.Context, d *identityDir) (*identityDir, error) {
	if s.Join == "" || s.Token == "" {
		return nil, fmt.Errorf("this machine's certificate, by which it is a member of the cluster, expired "+
			"at %s, and it is %s by its clock: if that is right, the machine was off for too long, and "+
			"joins again by a new token (the command that `pergola token create` prints on a server); "+
			"the networks here continue, and its name stays %s",
			stamp(d.identity.Load().Certificate.NotAfter),
			stamp(time.Now()), d.member.Name)
	}
	if s.Role != d.member.Role {
		return nil, fmt.Errorf("this machine was a member as one of the %s: let it join "+
			"again by a token for these", wording.Plural(d.member.Role.Word()))
	}
	if !s.named {
		s.Host = d.member.Name
	}
	return s.join(ctx, d.dir)
}

// addServer adds the address of a server that was given with a token: those in the membership may be outdated.
func (s *server) addServer(m *membership) error {
	target, err := joinURL(s.Join)
	if err != nil {
		return err
	}
	if m.Role == pki.Agent {
		m.Servers, m.Join = serversFrom(target, m.Servers), target
	}
	return nil
}

// updateAddress writes down an address of the flags that differs from the membership. The address of an agent may also
// have changed by itself.
func (s *server) updateAddress(ctx context.Context, d *identityDir) error {
	m := d.member
	listen := s.Listen
	if listen == "" || listen == ListenAuto || listen == ListenNone {
		if m.Role != pki.Agent || s.Advertise != "" || assigned(m.Listen) {
			return d.save(m)
		}
		listen = ListenAuto
	}
	at, called, err := addresses(listen, s.Advertise)
	if err != nil {
		return err
	}
	switch {
	case m.Role == pki.Agent || called.Addr().String() == addressOf(m.Advertise):
	case m.Founder && len(m.Servers) <= 1: // no other machine has its address
		if err := s.recertify(ctx, d, called.Addr()); err != nil {
			return fmt.Errorf("move this server from %s to %s: %w", m.Advertise, called, err)
		}
	default:
		return fmt.Errorf("this server is known to the others as %s, and cannot move to %s: "+
			"give it its address back; or stop it, run `pergola host rm %s` on another member, "+
			"remove %s here, and let it join again", m.Advertise, called, m.Name, d.dir)
	}
	if at.String() != m.Listen || called.String() != m.Advertise {
		s.Log.Info("change the address of this machine in the cluster", "from", m.Advertise, "to", called)
	}
	m.Listen, m.Advertise = at.String(), called.String()
	return d.save(m)
}

// recertify gives the only server of a cluster a certificate for another address. Its store is opened without
// listeners.
func (s *server) recertify(ctx context.Context, d *identityDir, address netip.Addr) error {
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
	member := pki.Member{Name: d.member.Name, Role: pki.Server, Hosts: []string{address.String()}}
	own, err := authority.Issue(member, d.identity.Load().Key.Public(), time.Now())
	if err != nil {
		return err
	}
	return d.renew(pki.EncodeCertificate(own))
}

func addressOf(hostPort string) string {
	a, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return ""
	}
	return a.Addr().String()
}

// membershipOf is what the agent needs of the cluster.
func (s *server) membershipOf(c *cluster) (*hosts.Membership, error) {
	m := c.current()
	end, err := tunnelEnd(c.ownAddress().Addr(), s.Underlay)
	if err != nil {
		return nil, err
	}
	return &hosts.Membership{
		Joined: !m.Founder, Machine: c.machine, Address: end, Interfaces: s.Underlay, NoXDP: s.NoXDP,
		BestEffort: s.BestEffort, API: m.Advertise, Labels: s.Labels, Version: s.Version,
	}, nil
}
