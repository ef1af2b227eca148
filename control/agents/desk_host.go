package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

func (c *counter) keeper() store.LeaseKeeper { return c.cfg.Store.Leases(c.cfg.Self) }

func (c *counter) claim(r *http.Request) (any, error) {
	var in claim
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	if err := c.own(in.Host.Name); err != nil {
		return nil, err
	}
	if in.TTL < minTTL || in.TTL > maxTTL {
		return nil, fmt.Errorf("a lease of %v: between %v and %v it may be", in.TTL, minTTL, maxTTL)
	}
	id, err := c.keeper().Claim(r.Context(), in.Host, in.TTL, in.Again)
	return leaseID{id}, err
}

// Bounds of a lease: for how long others wait before they start a lost host's nodes elsewhere.
const (
	minTTL = time.Second
	maxTTL = time.Minute
)

// own refuses what is another host's.
func (c *counter) own(host string) error {
	if host != c.host {
		return fmt.Errorf("host %s speaks for host %.80q: %w", c.host, host, errDenied)
	}
	return nil
}

func (c *counter) renew(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, err
	}
	return nil, c.keeper().Renew(r.Context(), c.host, id)
}

func (c *counter) end(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, err
	}
	return nil, c.keeper().End(r.Context(), c.host, id)
}

func (c *counter) putHost(r *http.Request) (any, error) {
	var h hosts.Host
	if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
		return nil, err
	}
	if err := c.own(h.Name); err != nil {
		return nil, err
	}
	return nil, c.cfg.Store.PutHost(r.Context(), h)
}

// hosts lists the hosts, as far as their tunnels' ends go. Of the caller's own it is everything.
func (c *counter) hosts(r *http.Request) (any, error) {
	all, err := c.cfg.Store.Hosts(r.Context())
	if err != nil {
		return nil, err
	}
	peers := make([]peer, len(all))
	for i, h := range all {
		peers[i] = peer{Host: reach(h.Host), Alive: h.Alive}
		if h.Name == c.host {
			peers[i].Host = h.Host
		}
	}
	return peers, nil
}

// reach is what others have to know of a host to send to it.
func reach(h hosts.Host) hosts.Host {
	return hosts.Host{Name: h.Name, Machine: h.Machine, Address: h.Address, Underlays: h.Underlays, Bound: h.Bound,
		Paths: h.Paths}
}
