package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store"
)

// Cluster is what the API needs of the machines that a host shares its store with.
type Cluster interface {
	// Self is this host's name.
	Self() string
	// IsServer says whether this host may read the cluster's secrets: its authority's key, and its tokens.
	IsServer() bool
	// KeepsStore is false where the store is an etcd cluster that is not the servers'.
	KeepsStore() bool
	// Authority is the cluster's certificate authority, without its key.
	Authority() *pki.Authority
	// Peer speaks, as this host, to the API of another one; no other machine can answer.
	Peer(h store.HostState) http.RoundTripper
	// AnyServer speaks, as this host, to whichever server answers.
	AnyServer() http.RoundTripper
	// Connected reports whether a server answers: of a machine that is none itself.
	Connected(ctx context.Context) bool
	// Servers are where machines may join: host:port, this host first if it is a server.
	Servers() []string
	// Join admits a machine.
	Join(ctx context.Context, r api.JoinRequest) (api.JoinAnswer, error)
	// Renew signs a new certificate for a member's key.
	Renew(ctx context.Context, m pki.Member, r api.RenewRequest) (api.RenewAnswer, error)
}

// How long tokens live.
const (
	tokenLife    = 24 * time.Hour
	maxTokenLife = 366 * 24 * time.Hour
)

type memberKey struct{}

// WithMember notes that a member of the cluster asks, and on behalf of whom.
func WithMember(ctx context.Context, m pki.Member, who controller.Caller) context.Context {
	return context.WithValue(context.WithValue(ctx, memberKey{}, m), callerKey{}, who)
}

func (s *server) registerCluster(a huma.API) {
	huma.Post(a, "/v1/join", s.join, describe("join", "Become a member of the cluster"))
	huma.Post(a, "/v1/renew", s.renew, describe("renew", "Have a member's certificate renewed"))
	huma.Get(a, "/v1/tokens", s.tokens, describe("list-tokens", "List the tokens with which machines may join"))
	huma.Post(a, "/v1/tokens", s.createToken, describe("create-token", "Make a token with which machines may join"))
	huma.Delete(a, "/v1/tokens/{id}", s.revokeToken, describe("revoke-token", "Revoke a token"), noContent)
}

func (s *server) cluster() (Cluster, error) {
	if s.Cluster == nil {
		return nil, huma.Error409Conflict("this machine is in no cluster: start its server with --listen " +
			"ADDRESS, or let it join another one (pergola agent --join)")
	}
	return s.Cluster, nil
}

type joinInput struct{ Body api.JoinRequest }

func (s *server) join(ctx context.Context, in *joinInput) (*body[api.JoinAnswer], error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	return answer(c.Join(ctx, in.Body))
}

type renewInput struct{ Body api.RenewRequest }

func (s *server) renew(ctx context.Context, in *renewInput) (*body[api.RenewAnswer], error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	m, ok := ctx.Value(memberKey{}).(pki.Member)
	if !ok {
		return nil, huma.Error403Forbidden("only members of the cluster have their certificates renewed")
	}
	return answer(c.Renew(ctx, m, in.Body))
}

func (s *server) tokens(ctx context.Context, _ *struct{}) (*body[[]api.Token], error) {
	if _, err := s.cluster(); err != nil {
		return nil, err
	}
	grants, err := s.Store.Trust().Grants(ctx)
	if err != nil {
		return nil, problem(err)
	}
	all := make([]api.Token, 0, len(grants))
	for _, g := range grants {
		all = append(all, tokenOf(g, time.Now()))
	}
	return &body[[]api.Token]{all}, nil
}

func tokenOf(g pki.Grant, now time.Time) api.Token {
	return api.Token{ID: g.ID, Role: g.Role, Note: g.Note, Created: g.Created, Expires: g.Expires,
		Expired: !now.Before(g.Expires)}
}

type tokenInput struct{ Body api.TokenRequest }

func (s *server) createToken(ctx context.Context, in *tokenInput) (*body[api.CreatedToken], error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	if !caller(ctx).Root {
		return nil, huma.Error403Forbidden("a token lets machines into the cluster: only root may make one")
	}
	// an agent itself reports which of its users is root
	if m, ok := ctx.Value(memberKey{}).(pki.Member); ok && m.Role == pki.Agent && in.Body.Role != pki.Agent {
		return nil, huma.Error403Forbidden(fmt.Sprintf("host %s is an agent, and a server's token gives all "+
			"of the cluster's secrets: make it on a server", m.Name))
	}
	t, err := NewToken(ctx, s.Store.Trust(), c, in.Body)
	if err != nil {
		return nil, problem(err)
	}
	return &body[api.CreatedToken]{t}, nil
}

// Grants is the part of the store that keeps tokens.
type Grants interface {
	PutGrant(ctx context.Context, g pki.Grant) error
}

// NewToken makes a token, and stores its grant.
func NewToken(ctx context.Context, keep Grants, c Cluster, r api.TokenRequest) (api.CreatedToken, error) {
	if r.Role != pki.Agent && r.Role != pki.Server {
		return api.CreatedToken{},
			huma.Error422UnprocessableEntity("a token is for an agent or for a server, and not for " +
				string(r.Role))
	}
	if r.Life == 0 {
		r.Life = tokenLife
	}
	if r.Life < 0 || r.Life > maxTokenLife {
		return api.CreatedToken{}, huma.Error422UnprocessableEntity("a token is valid for at most a year")
	}
	now := time.Now()
	token, grant := pki.NewToken(c.Authority(), r.Role, r.Note, r.Life, now)
	if err := keep.PutGrant(ctx, grant); err != nil {
		return api.CreatedToken{}, err
	}
	created := api.CreatedToken{Token: tokenOf(grant, now), Text: token.Text()}
	if servers := c.Servers(); len(servers) > 0 {
		created.Join = "https://" + servers[0]
	}
	return created, nil
}

type tokenIDInput struct {
	ID string `path:"id" doc:"The first part of the token, after pergola-."`
}

func (s *server) revokeToken(ctx context.Context, in *tokenIDInput) (*struct{}, error) {
	if _, err := s.cluster(); err != nil {
		return nil, err
	}
	if !caller(ctx).Root {
		return nil, huma.Error403Forbidden("only root may revoke a token")
	}
	return nil, problem(s.Store.Trust().DeleteGrant(ctx, in.ID))
}
