package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// HostInput names a host.
type HostInput struct {
	Host string `path:"host" doc:"Name of the host."`
}

type hostPatchInput struct {
	HostInput
	Body api.HostPatch
}

type hostRemoveInput struct {
	HostInput
	Force bool `query:"force" doc:"Also where it has nodes."`
}

func (s *server) registerHosts(a huma.API) {
	huma.Get(a, "/v1/hosts", s.hosts, describe("list-hosts", "List the machines of the cluster"))
	huma.Get(a, "/v1/hosts/{host}", s.host, describe("get-host", "Everything about a machine"))
	huma.Get(a, "/v1/hosts/{host}/underlay", s.underlay, describe("underlay",
		"What went through all tunnels of a machine"))
	huma.Patch(a, "/v1/hosts/{host}", s.patchHost,
		describe("change-host", "Cordon, drain or label a machine"), noContent)
	huma.Delete(a, "/v1/hosts/{host}", s.removeHost,
		describe("remove-host", "Remove a machine from the cluster"), noContent)
}

func (s *server) hosts(ctx context.Context, _ *struct{}) (*body[[]api.Host], error) {
	states, err := s.Records.Hosts(ctx)
	if err != nil {
		return nil, problem(err)
	}
	all := make([]api.Host, 0, len(states))
	problems := controller.Problems(states)
	for _, h := range states {
		host := s.hostOf(ctx, h)
		host.Problem = problems[h.Name]
		all = append(all, host)
	}
	if len(all) == 0 {
		return &body[[]api.Host]{all}, nil // no cluster: nothing is placed
	}
	return answer(all, s.addPlaced(ctx, all))
}

func (s *server) host(ctx context.Context, in *HostInput) (*body[api.Host], error) {
	if _, err := s.hostState(ctx, in.Host); err != nil {
		return nil, problem(err)
	}
	all, err := s.hosts(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range all.Body {
		if h.Name == in.Host {
			return &body[api.Host]{h}, nil
		}
	}
	return nil, huma.Error404NotFound(fmt.Sprintf("host %s has gone", in.Host))
}

// underlay has the host itself say it.
func (s *server) underlay(ctx context.Context, in *HostInput) (*body[api.UnderlayTraffic], error) {
	h, err := s.hostState(ctx, in.Host)
	if err != nil {
		return nil, problem(err)
	}
	if !s.elsewhere(h.Name) {
		u, err := s.Agent.Underlay(ctx)
		return answer(u, err)
	}
	if !h.Alive {
		return nil, problem(lost(h))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := s.send(ctx, &h, http.MethodGet, "/v1/hosts/"+url.PathEscape(h.Name)+"/underlay", nil)
	if err != nil {
		return nil, problem(err)
	}
	defer resp.Body.Close()
	var u api.UnderlayTraffic
	err = json.NewDecoder(resp.Body).Decode(&u)
	return answer(u, err)
}

// hostOf describes a host; Self is the one on which the user asks.
func (s *server) hostOf(ctx context.Context, h store.HostState) api.Host {
	asks := caller(ctx).Host
	if asks == "" && s.Cluster != nil {
		asks = s.Cluster.Self()
	}
	return api.Host{Host: h.Host, Policy: h.Policy, Alive: h.Alive, Since: h.Since, Self: asks == h.Name}
}

// hostState is a host; where there is none of the name, the error names those that there are.
func (s *server) hostState(ctx context.Context, name string) (store.HostState, error) {
	all, err := s.Records.Hosts(ctx)
	if err != nil {
		return store.HostState{}, err
	}
	var names []string
	for _, h := range all {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	if len(names) == 0 {
		return store.HostState{},
			huma.Error404NotFound(fmt.Sprintf("there is no host %q: this machine is in no cluster", name))
	}
	return store.HostState{}, huma.Error404NotFound(fmt.Sprintf("there is no host %q: the cluster has %s", name,
		strings.Join(names, ", ")))
}

// addPlaced counts what the slices have on the hosts.
func (s *server) addPlaced(ctx context.Context, hosts []api.Host) error {
	records, err := s.Records.Slices(ctx)
	if err != nil {
		return err
	}
	at := make(map[string]*api.Host, len(hosts))
	for i := range hosts {
		at[hosts[i].Name] = &hosts[i]
	}
	for _, r := range records {
		if r.Corrupt || r.Deleting { // a slice that is being deleted is not waited for
			continue
		}
		spec, _, err := s.Records.Slice(ctx, r.Name)
		if err != nil {
			continue // it has gone meanwhile
		}
		nodes := map[string]int{}
		for i := range spec.Nodes {
			n := &spec.Nodes[i]
			if h := at[n.Host]; h != nil {
				nodes[n.Host]++
				h.Nodes++
				h.CPU += n.CPU
				h.RAM += n.Memory
			}
		}
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			at[name].Slices = append(at[name].Slices, api.HostSlice{Name: r.Name, Nodes: nodes[name]})
		}
	}
	return nil
}

// onlyRoot refuses changes of machines (membership, where nodes may be placed) to callers who may only use slices: the
// group of the socket. These may delete slices anyway.
func onlyRoot(ctx context.Context) error {
	if caller(ctx).Root {
		return nil
	}
	return huma.Error403Forbidden("only root may change the machines of the cluster: use sudo")
}

func (s *server) patchHost(ctx context.Context, in *hostPatchInput) (*struct{}, error) {
	if err := onlyRoot(ctx); err != nil {
		return nil, err
	}
	if _, err := s.hostState(ctx, in.Host); err != nil {
		return nil, problem(err)
	}
	err := s.Store.UpdatePolicy(ctx, in.Host, func(p *hosts.Policy) error {
		if in.Body.Cordoned != nil {
			p.Cordoned = *in.Body.Cordoned
		}
		if in.Body.Draining != nil {
			p.Draining = *in.Body.Draining
		}
		if p.Labels == nil && len(in.Body.Labels) > 0 {
			p.Labels = map[string]string{}
		}
		maps.Copy(p.Labels, in.Body.Labels)
		return nil
	})
	return nil, problem(err)
}

// removeHost removes a host, so that nothing waits for it any more. A host that is alive would come back.
func (s *server) removeHost(ctx context.Context, in *hostRemoveInput) (*struct{}, error) {
	if err := onlyRoot(ctx); err != nil {
		return nil, err
	}
	state, err := s.hostState(ctx, in.Host)
	if err != nil {
		return nil, problem(err)
	}
	one := []api.Host{s.hostOf(ctx, state)}
	if err := s.addPlaced(ctx, one); err != nil {
		return nil, problem(err)
	}
	voters, err := s.voters(ctx)
	if err != nil {
		return nil, problem(err)
	}
	ofTwo := len(voters) == 2 && slices.Contains(voters, in.Host)
	switch h := one[0]; {
	case h.Alive && ofTwo && h.Self:
		return nil, huma.Error409Conflict(
			fmt.Sprintf("host %s cannot remove itself: run this on the other server", h.Name))
	case h.Alive && !ofTwo: // force or not: as a server, it would lose its vote and then be refused here
		return nil, huma.Error409Conflict(
			fmt.Sprintf("host %s is alive, and would come back: stop its server first", h.Name))
	case h.Nodes > 0 && !in.Force:
		return nil, huma.Error409Conflict(fmt.Sprintf("host %s has %d nodes of %s: move them away first "+
			"(pergola host drain %[1]s)", h.Name, h.Nodes, sliceNames(h.Slices)))
	}
	if err := s.removeMember(ctx, in.Host); err != nil {
		return nil, problem(err)
	}
	if one[0].Alive {
		if err := s.awaitLoss(ctx, in.Host); err != nil {
			return nil, problem(err)
		}
	}
	return nil, problem(s.Store.DeleteHost(ctx, in.Host))
}

// awaitLoss waits for the end of a server that was removed while it ran, as of two it has to be: once one of them is
// stopped, the other alone can decide nothing. The process ends by itself, and its lease some seconds later.
func (s *server) awaitLoss(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	for {
		h, err := s.Records.HostState(ctx, host)
		if err != nil || !h.Alive {
			return err
		}
		select {
		case <-ctx.Done():
			return huma.Error409Conflict(fmt.Sprintf("%s is no server any more, and alive: stop it, "+
				"and remove the host then", host))
		case <-time.After(lossLook):
		}
	}
}

const (
	lossTimeout = 30 * time.Second
	lossLook    = 250 * time.Millisecond
)

func sliceNames(all []api.HostSlice) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}
