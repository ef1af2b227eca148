package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// PartInput says whether a request is for this host's part alone.
type PartInput struct {
	SliceInput
	Part string `header:"Pergola-Part" doc:"1: only what this host itself has to say."`
}

// askTimeout bounds how long the others are waited for, where what they do does not take its own time.
const askTimeout = 30 * time.Second

// ask has the other hosts of a slice do their part, all at once. each is given the answers, one at a time; what it
// returns makes a host a unreachable one. The caller's own part runs meanwhile, in own.
func (s *server) ask(ctx context.Context, in PartInput, method, verb string, request any,
	own func(context.Context) error,
	each func(host string, answer io.Reader) error) ([]api.UnreachableHost, error) {
	hosts, err := s.others(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.askHosts(ctx, hosts, in.Slice, method, verb, request, own, each)
}

// others lists the hosts that a request is passed on to.
func (s *server) others(ctx context.Context, in PartInput) ([]string, error) {
	if in.Part != "" || s.Cluster == nil {
		return nil, nil
	}
	spec, _, err := s.Find.Slice(ctx, in.Slice)
	if err != nil {
		return nil, err
	}
	return s.hostsOf(spec), nil
}

// askHosts is ask for some hosts of a slice.
func (s *server) askHosts(ctx context.Context, hosts []string, of, method, verb string, request any,
	own func(context.Context) error,
	each func(host string, answer io.Reader) error) ([]api.UnreachableHost, error) {
	var (
		mu          sync.Mutex // guards unreachable
		unreachable []api.UnreachableHost
		asked       sync.WaitGroup
	)
	for _, name := range hosts {
		asked.Go(func() {
			if err := s.askHost(ctx, name, of, method, verb, request, each); err != nil {
				mu.Lock()
				defer mu.Unlock()
				unreachable = append(unreachable, api.UnreachableHost{Host: name, Why: err.Error()})
			}
		})
	}
	err := own(ctx)
	asked.Wait()
	slices.SortFunc(unreachable, func(a, b api.UnreachableHost) int { return strings.Compare(a.Host, b.Host) })
	return unreachable, err
}

// hostsOf lists the other hosts that run nodes of a slice.
func (s *server) hostsOf(spec *slice.Slice) []string {
	var names []string
	for i := range spec.Nodes {
		if h := spec.Nodes[i].Host; s.elsewhere(h) {
			names = append(names, h)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *server) askHost(ctx context.Context, name, of, method, verb string, request any,
	each func(string, io.Reader) error) error {
	h, err := s.Records.HostState(ctx, name)
	if err != nil {
		return err
	}
	if !h.Alive {
		return lost(h)
	}
	resp, err := s.send(ctx, &h, method, "/v1/slices/"+url.PathEscape(of)+"/"+verb, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return each(name, resp.Body)
}

// send asks another host for its part, on behalf of the caller, and gives its answer if that is no problem. The caller
// closes its body.
func (s *server) send(ctx context.Context, h *store.HostState, method, path string, request any) (*http.Response,
	error) {
	var content io.Reader
	if request != nil {
		data, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, "https://"+h.API+path, content)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(PartHeader, "1")
	r.Header.Set(CallerHeader, writeCaller(caller(ctx)))
	resp, err := s.Cluster.Peer(*h).RoundTrip(r)
	if err != nil {
		return nil, unanswered(h, err)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	var p api.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Detail == "" {
		return nil, fmt.Errorf("host %s answers %s", h.Name, resp.Status)
	}
	return nil, errors.New(p.Detail)
}

// gather adds up the parts of all hosts of a slice, the own one first.
func gather[T any](ctx context.Context, s *server, in PartInput, method, verb string,
	own func(context.Context) (T, error), add func(T)) ([]api.UnreachableHost, error) {
	hosts, err := s.others(ctx, in)
	if err != nil {
		return nil, err
	}
	return gatherFrom(ctx, s, hosts, in.Slice, method, verb, own, add)
}

// gatherFrom is gather for some hosts of a slice.
func gatherFrom[T any](ctx context.Context, s *server, hosts []string, of, method, verb string,
	own func(context.Context) (T, error), add func(T)) ([]api.UnreachableHost, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex // guards parts
	var parts []part[T]
	keep := func(host string, v T) {
		mu.Lock()
		defer mu.Unlock()
		parts = append(parts, part[T]{host, v})
	}
	unreachable, err := s.askHosts(ctx, hosts, of, method, verb, nil, func(ctx context.Context) error {
		v, err := own(ctx)
		if err == nil {
			keep("", v)
		}
		return err
	}, func(host string, answer io.Reader) error {
		var v T
		if err := json.NewDecoder(answer).Decode(&v); err != nil {
			return fmt.Errorf("decode the answer of host %s: %w", host, err)
		}
		keep(host, v)
		return nil
	})
	if err != nil {
		return unreachable, err
	}
	slices.SortFunc(parts, func(a, b part[T]) int { return strings.Compare(a.host, b.host) })
	for _, p := range parts {
		add(p.value)
	}
	return unreachable, nil
}

// part is one host's; "" is this one.
type part[T any] struct {
	host  string
	value T
}
