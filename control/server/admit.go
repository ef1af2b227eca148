package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/wording"
)

// hostName matches the names of hosts: they stand in tables, URLs and keys of the store.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$`)

// Join implements rest.Cluster: it admits a machine with a valid token.
func (c *cluster) Join(ctx context.Context, r api.JoinRequest) (api.JoinAnswer, error) {
	if !c.IsServer() {
		return api.JoinAnswer{}, huma.NewError(http.StatusMisdirectedRequest,
			fmt.Sprintf("%s is no server: join at one of %v", c.Self(), c.Servers()))
	}
	if err := c.checkToken(ctx, r); err != nil {
		return api.JoinAnswer{}, err
	}
	address, err := c.checkClaim(ctx, r)
	if err != nil {
		return api.JoinAnswer{}, err
	}
	authority, err := c.signingAuthority(ctx)
	if err != nil {
		return api.JoinAnswer{}, fmt.Errorf("admit %s: %w", r.Name, err)
	}
	cert, err := authority.IssueRequest(memberAt(r.Name, r.Role, address), r.Request, time.Now())
	if err != nil {
		return api.JoinAnswer{}, huma.Error422UnprocessableEntity(err.Error())
	}
	if err := c.store.Trust().Admit(ctx, cert); err != nil {
		return api.JoinAnswer{}, fmt.Errorf("admit %s: %w", r.Name, err)
	}
	answer := api.JoinAnswer{
		Certificate: string(pki.EncodeCertificate(cert)),
		Authority:   string(pki.EncodeCertificate(authority.Certificate)),
		Servers:     c.Servers(), Etcd: c.endpoints(), Foreign: !c.KeepsStore(), Time: time.Now(),
	}
	if err := c.markShared(); err != nil {
		return api.JoinAnswer{}, fmt.Errorf("admit %s: %w", r.Name, err)
	}
	if r.Role == pki.Server && c.KeepsStore() {
		peerURL := "https://" + portAfter(address, etcdPeerPort)
		if answer.Initial, err = c.store.AddMember(ctx, r.Name, peerURL); err != nil {
			return api.JoinAnswer{}, fmt.Errorf("make %s a server: %w", r.Name, err)
		}
	}
	c.log.Info("admit a machine to the cluster", "name", r.Name, "role", r.Role, "address", r.API)
	return answer, nil
}

// endpoints are the URLs of an external etcd, for servers.
func (c *cluster) endpoints() []string {
	if m := c.current(); m.Foreign {
		return m.Etcd
	}
	return nil
}

// checkToken refuses a token that is invalid, expired, revoked, or for another role.
func (c *cluster) checkToken(ctx context.Context, r api.JoinRequest) error {
	token, err := pki.ParseToken(r.Token)
	if err != nil {
		return huma.Error403Forbidden(err.Error())
	}
	grant, err := c.store.Trust().Grant(ctx, token.ID)
	if errors.Is(err, store.ErrNoGrant) {
		err = fmt.Errorf("%w: this cluster did not make it, or it was revoked: "+
			"`pergola token create` on a server makes another one", pki.ErrToken)
		return huma.Error403Forbidden(err.Error())
	}
	if err != nil {
		return err
	}
	now := time.Now()
	if why := grant.Check(token, now); why != nil {
		at := ""
		if !now.Before(grant.Expires) {
			at = ", and it is " + stamp(now) + " now"
		}
		return huma.Error403Forbidden(fmt.Sprintf("%v%s: `pergola token create` on a server makes another one",
			why, at))
	}
	if grant.Role != r.Role {
		return huma.Error403Forbidden(fmt.Sprintf("%v: it is for %s, and this machine wants to be one of %s: "+
			"use `pergola %s --join`, or make another token (pergola token create --role %s)",
			pki.ErrToken, wording.Plural(grant.Role.Word()), wording.Plural(r.Role.Word()),
			grant.Role.Word(), r.Role.Word()))
	}
	return nil
}

// checkClaim refuses a name or an address that is another machine's.
func (c *cluster) checkClaim(ctx context.Context, r api.JoinRequest) (netip.AddrPort, error) {
	if !hostName.MatchString(r.Name) {
		return netip.AddrPort{}, huma.Error422UnprocessableEntity(
			fmt.Sprintf("%.80q is no name for a host: letters, digits, dots and hyphens, at most 63",
				r.Name))
	}
	address, err := netip.ParseAddrPort(r.API)
	if err != nil || address.Addr().IsUnspecified() {
		return netip.AddrPort{}, huma.Error422UnprocessableEntity(
			fmt.Sprintf("others cannot reach %q: say which address they can (--advertise ADDRESS)", r.API))
	}
	hosts, err := c.store.Hosts(ctx)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, h := range hosts {
		switch {
		case h.Machine == r.Machine && (h.Name != r.Name || !h.Alive):
			// The same machine joins again, or under another name.
		case h.Machine == r.Machine: // the machine's ID is its own claim, and no secret: it proves nothing
			return address, fmt.Errorf("%w: %s is a host already, and alive at %s: "+
				"if that is this machine, stop Pergola on it, and try again some seconds later",
				store.ErrNameTaken, r.Name, h.API)
		case h.Name == r.Name && !h.Alive:
			// Two machines may have one host name, and the other one may be back soon.
			return address, fmt.Errorf("%w: %s is a host already, at %s, which is lost at the moment: "+
				"choose another name (--host NAME), or, if this machine is to take its place, "+
				"remove it before (pergola host rm %[2]s)", store.ErrNameTaken, r.Name, h.API)
		case !h.Alive:
		case h.Name == r.Name:
			return address, fmt.Errorf(
				"%w: %s is a host already, and alive at %s: choose another name (--host NAME)",
				store.ErrNameTaken, r.Name, h.API)
		case h.API == r.API:
			return address, huma.Error409Conflict(fmt.Sprintf("%s is the address of host %s, which is "+
				"alive: say by which one others reach this machine (--listen or --advertise ADDRESS)",
				r.API, h.Name))
		}
	}
	return address, c.checkServers(ctx, r.Name)
}

// checkServers refuses the name of a server, reachable or not: its certificate would be revoked.
func (c *cluster) checkServers(ctx context.Context, name string) error {
	if !c.KeepsStore() {
		return nil // members of an external etcd are no hosts
	}
	members, err := c.store.Members(ctx)
	if err == nil && slices.ContainsFunc(members, func(m store.Member) bool { return m.Name == name }) {
		err = fmt.Errorf("%w: %s is a server of the cluster: choose another name (--host NAME), or, "+
			"if this machine is to take its place, remove it before (pergola host rm %[2]s)",
			store.ErrNameTaken, name)
	}
	return err
}

// memberAt is the content of the certificate of a member at an address. An agent's names no address: etcd's members
// identify each other by addresses, and an agent must not pass for one of them.
func memberAt(name string, role pki.Role, at netip.AddrPort) pki.Member {
	m := pki.Member{Name: name, Role: role}
	if role == pki.Server {
		m.Hosts = []string{at.Addr().String()}
	}
	return m
}

// Renew implements rest.Cluster: it signs a member's key anew, unless the member was removed.
func (c *cluster) Renew(ctx context.Context, m pki.Member, r api.RenewRequest) (api.RenewAnswer, error) {
	address, err := netip.ParseAddrPort(r.API)
	if err != nil {
		return api.RenewAnswer{}, huma.Error422UnprocessableEntity(fmt.Sprintf("others cannot reach %q", r.API))
	}
	cert, err := c.sign(ctx, memberAt(m.Name, m.Role, address), r.Request)
	return api.RenewAnswer{Certificate: string(cert)}, err
}

func (c *cluster) sign(ctx context.Context, m pki.Member, request []byte) ([]byte, error) {
	if !c.IsServer() {
		return nil, huma.NewError(http.StatusMisdirectedRequest,
			c.Self()+" is no server: it has no certificate to give")
	}
	authority, err := c.signingAuthority(ctx)
	if err != nil {
		return nil, fmt.Errorf("renew the certificate of %s: %w", m.Name, err)
	}
	cert, err := authority.IssueRequest(m, request, time.Now())
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	// the request has another key than that by which the host joined
	if err := c.checkMember(ctx, cert); err != nil {
		return nil, huma.Error403Forbidden(err.Error())
	}
	return pki.EncodeCertificate(cert), nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
