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

// renewAuthority makes another authority for the cluster, whose only server this machine is: the old one's key got into wrong hands, or its
// certificate ends. What the store knows stays. The store is opened while it listens nowhere: no other member can be reached meanwhile, since none
// believes both. Where it fails half way, it is done again.
func (s *server) renewAuthority(ctx context.Context, k *kept) error {
	m := k.member
	switch {
	case s.Join != "" || s.Token != "":
		return errors.New("--new-authority is for the cluster that this machine is in: leave out --join and the token")
	case m.Role != pki.Server:
		return fmt.Errorf("this machine is one of the %s: --new-authority is for a server", wording.Plural(m.Role.Word()))
	case m.Foreign || len(s.Etcd) > 0:
		return errors.New("the state of this cluster is in another etcd (--etcd), by which nobody can see that no other server runs: such a cluster has to be made anew")
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
	id.Certificate, err = authority.Issue(pki.Member{Name: m.Name, Role: pki.Server, Hosts: []string{addressOf(m.Advertise)}}, id.Key.Public(), time.Now())
	if err != nil {
		return err
	}
	if err := st.Trust().ReplaceAuthority(ctx, certificate, key, id.Certificate); err != nil {
		return err
	}
	next, err := newKept(k.dir, id, m)
	if err != nil {
		return err
	}
	k.identity.Store(next.identity.Load())
	if s.Out != nil {
		fmt.Fprintf(s.Out, "The cluster has a new authority. No other machine believes it: on each, stop Pergola, remove %s (where a server was, %s too), and let it join again\n"+
			"by the command that `pergola token create` prints here. What runs there runs on meanwhile.\n", k.dir, filepath.Join(s.DataDir, "store"))
	}
	return nil
}

// openAlone opens the store of a server whose cluster has no other one.
func (s *server) openAlone(ctx context.Context) (*store.Store, error) {
	certificates, err := s.EtcdTLS.config(s.Etcd)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Config{Dir: filepath.Join(s.DataDir, "store"), Endpoints: s.Etcd, TLS: certificates})
}

const authorityAgain = 24 * time.Hour

// watchAuthority tells once a day of an authority that ends, from rest.AuthoritySoon before, until ctx ends.
func (c *cluster) watchAuthority(ctx context.Context, bus *events.Bus) {
	tick := time.NewTicker(authorityAgain)
	defer tick.Stop()
	for {
		if why := rest.AuthorityEnds(c.now().Authority.NotAfter, time.Now()); why != "" {
			c.log.Warn("the cluster's authority ends", "warning", why)
			bus.Publish(events.Event{Kind: events.AuthorityEnds, Message: why})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
