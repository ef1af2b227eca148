package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/api/eventstream"
	"github.com/pergola-net/pergola/model/slice"
)

type checkInput struct {
	PartInput
	Body api.CheckRequest
}

// Resolve refuses checks that do not exist.
func (in *checkInput) Resolve(ctx huma.Context) []error {
	return refusal(serverOf(ctx).Find.HasChecks(ctx.Context(), in.Slice, in.Body.Names))
}

func (s *server) registerChecks(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/convergence", s.convergence,
		describe("convergence", "Whether routing has settled"))
	huma.Get(a, "/v1/slices/{slice}/addresses", s.addresses, describe("addresses",
		"The addresses that nodes have to which the topology gives none"))
	registerEvents(s, a, huma.Operation{
		OperationID: "check", Method: http.MethodPost, Path: "/v1/slices/{slice}/check",
		Summary: "Run the slice's checks", Description: "Events `progress`, then one `outcome`.",
	}, map[string]any{"progress": api.CheckProgress{}, "outcome": api.CheckOutcome{}}, s.check)
}

func (s *server) convergence(ctx context.Context, in *PartInput) (*body[api.Convergence], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := api.Convergence{Converged: true}
	own := func(ctx context.Context) (api.Convergence, error) { return s.Agent.Convergence(ctx, in.Slice) }
	unreachable, err := gather(ctx, s, *in, http.MethodGet, "convergence", own, func(c api.Convergence) {
		all.Converged = all.Converged && c.Converged
		all.Routers += c.Routers
		all.Pairs += c.Pairs
		all.Reached += c.Reached
		all.Missing = append(all.Missing, c.Missing...)
		all.Down = append(all.Down, c.Down...)
		all.Unjudged = append(all.Unjudged, c.Unjudged...)
	})
	for _, h := range unreachable { // the routes of its routers are not known
		all.Converged = false
		all.Missing = append(all.Missing, h.Why)
	}
	all.Unreachable = unreachable
	return answer(all, err)
}

// addresses asks all hosts what addresses the kernels of their nodes have.
func (s *server) addresses(ctx context.Context, in *PartInput) (*body[api.NodeAddresses], error) {
	if _, _, err := s.Find.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	own := func(ctx context.Context) (part api.NodeAddresses, err error) {
		part.Addresses, err = s.Agent.Addresses(ctx, in.Slice)
		return part, err
	}
	all := api.NodeAddresses{Addresses: map[string][]netip.Addr{}}
	unreachable, err := gather(ctx, s, *in, http.MethodGet, "addresses", own, func(part api.NodeAddresses) {
		maps.Copy(all.Addresses, part.Addresses)
	})
	all.Unreachable = unreachable
	return answer(all, err)
}

func (s *server) check(ctx context.Context, in *checkInput, send sse.Sender) error {
	spec, _, err := s.Find.Slice(ctx, in.Slice)
	if err != nil {
		return err
	}
	var unknown []api.UnreachableHost // whose addresses are
	if in.Part == "" {                // the others get them with the request
		known, err := s.addresses(ctx, &in.PartInput)
		if err != nil {
			return err
		}
		in.Body.Addresses, unknown = known.Body.Addresses, known.Body.Unreachable
	}
	all := checking{send: send, progress: map[string]api.CheckProgress{}}
	own := func(ctx context.Context) error {
		results, err := s.Agent.Check(ctx, in.Slice, in.Body, func(p api.CheckProgress) { all.proceed("", p) })
		all.done(results)
		return err
	}
	unreachable, err := s.ask(ctx, in.PartInput, http.MethodPost, "check", in.Body, own, all.follow)
	if err != nil {
		return err
	}
	for _, h := range unreachable {
		all.done(unchecked(spec, in.Body, h))
	}
	for _, h := range unknown {
		if allPairs(spec, in.Body) && !slices.ContainsFunc(unreachable, func(other api.UnreachableHost) bool {
			return other.Host == h.Host
		}) {
			h.Why = "its nodes' addresses are not known: " + h.Why
			all.done(unchecked(spec, in.Body, h))
		}
	}
	order(spec, all.results)
	return send.Data(api.CheckOutcome{Results: all.results})
}

// checking collects what several hosts find.
type checking struct {
	mu       sync.Mutex                   // guards all below, and send
	send     sse.Sender                   // when the client has gone, its context ends
	progress map[string]api.CheckProgress // by host
	results  []api.CheckResult
}

func (c *checking) proceed(host string, p api.CheckProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress[host] = p
	var sum api.CheckProgress
	for _, p := range c.progress {
		sum.Done += p.Done
		sum.Total += p.Total
		sum.Failed += p.Failed
	}
	_ = c.send.Data(sum)
}

func (c *checking) done(results []api.CheckResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results = append(c.results, results...)
}

// follow reads another host's stream.
func (c *checking) follow(host string, stream io.Reader) error {
	ended := false
	err := eventstream.Read(stream, func(event string, data []byte) error {
		switch event {
		case "progress":
			var p api.CheckProgress
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			c.proceed(host, p)
		case "outcome":
			var o api.CheckOutcome
			if err := json.Unmarshal(data, &o); err != nil {
				return err
			}
			ended = true
			c.done(o.Results)
		}
		return nil
	})
	if err == nil && !ended {
		err = fmt.Errorf("host %s %w any more", host, errLost)
	}
	return err
}

// unchecked are the checks that an unreachable host should have tried.
func unchecked(spec *slice.Slice, r api.CheckRequest, h api.UnreachableHost) (failed []api.CheckResult) {
	if allPairs(spec, r) {
		return []api.CheckResult{{Name: "host " + h.Host, Message: h.Why}}
	}
	for _, c := range spec.Checks {
		if n := spec.Node(c.From); n != nil && n.Host == h.Host &&
			(len(r.Names) == 0 || slices.Contains(r.Names, c.Name)) {
			failed = append(failed, api.CheckResult{Name: c.Name, Kind: c.Kind, From: c.From, To: c.To,
				Message: h.Why})
		}
	}
	return failed
}

func allPairs(spec *slice.Slice, r api.CheckRequest) bool { return r.AllPairs || len(spec.Checks) == 0 }

// order puts results as the file has its checks, and those of all pairs as it has its nodes.
func order(spec *slice.Slice, results []api.CheckResult) {
	checks, nodes := map[string]int{}, map[string]int{}
	for i := range spec.Checks {
		checks[spec.Checks[i].Name] = i + 1
	}
	for i := range spec.Nodes {
		nodes[spec.Nodes[i].Name] = i + 1
	}
	slices.SortStableFunc(results, func(a, b api.CheckResult) int {
		return cmp.Or(cmp.Compare(checks[a.Name], checks[b.Name]), cmp.Compare(nodes[a.From], nodes[b.From]))
	})
}
