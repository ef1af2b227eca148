package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/rest"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/wording"
)

// renewAuthority replaces the certificate authority of a cluster whose only server this machine is: the old key was
// stolen, or its certificate ends. The contents of the store stay. The store is opened without listeners: no other
// member accepts both authorities. If it fails half way, it is done again.
func (s *server) renewAuthority(ctx context.Context, d *identityDir) error {
	m := d.member
	switch {
	case s.Join != "" || s.Token != "":
		return errors.New("--new-authority is for the cluster that this machine is in: leave " +
			"out --join and the token")
	case m.Role != pki.Server:
		return fmt.Errorf("this machine is one of the %s: --new-authority is for a server",
			wording.Plural(m.Role.Word()))
	case m.Foreign || len(s.Etcd) > 0:
		return errors.New("the state of this cluster is in another etcd (--etcd), which does not show " +
			"whether other servers run: make a new cluster instead")
	}
	st, err := s.openAlone(ctx)
	if errors.Is(err, store.ErrNotAlone) {
		return fmt.Errorf("%w; there must be one server alone: remove the others before (pergola host rm)", err)
	}
	if err != nil {
		return err
	}
	defer st.Close()
	authority, err := pki.NewAuthority(m.Name, time.Now())
	if err != nil {
		return err
	}
	certificate, key, err := authority.Encode()
	if err != nil {
		return err
	}
	id := &pki.Identity{Authority: authority.Certificate}
	if id.Key, err = pki.NewKey(); err != nil {
		return err
	}
	member := pki.Member{Name: m.Name, Role: pki.Server, Hosts: []string{addressOf(m.Advertise)}}
	id.Certificate, err = authority.Issue(member, id.Key.Public(), time.Now())
	if err != nil {
		return err
	}
	if err := st.Trust().ReplaceAuthority(ctx, certificate, key, id.Certificate); err != nil {
		return err
	}
	next, err := newIdentity(d.dir, id, m)
	if err != nil {
		return err
	}
	d.identity.Store(next.identity.Load())
	if s.Out != nil {
		fmt.Fprintf(s.Out, "The cluster has a new authority. No other machine trusts it: on each, stop "+
			"Pergola, remove %s (where a server was, %s too), and let it join again\n"+
			"by the command that `pergola token create` prints here. The networks "+
			"there continue meanwhile.\n",
			d.dir, filepath.Join(s.DataDir, "store"))
	}
	return nil
}

// openAlone opens the store of a cluster's only server, without listeners.
func (s *server) openAlone(ctx context.Context) (*store.Store, error) {
	certificates, err := s.EtcdTLS.config(s.Etcd)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.DataDir, "store")
	return store.Open(ctx, store.Config{Dir: dir, Endpoints: s.Etcd, TLS: certificates})
}

const authorityInterval = 24 * time.Hour

// watchAuthority logs and publishes once a day that the authority's certificate ends, from rest.AuthoritySoon before
// the end, until ctx ends.
func (c *cluster) watchAuthority(ctx context.Context, bus *events.Bus) {
	tick := time.NewTicker(authorityInterval)
	defer tick.Stop()
	for {
		if why := rest.AuthorityEnds(c.identity().Authority.NotAfter, time.Now()); why != "" {
			c.log.Warn("the certificate of the cluster's authority ends", "warning", why)
			bus.Publish(events.Event{Kind: events.AuthorityEnds, Message: why})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
