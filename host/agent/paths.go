package agent

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/hosts"
)

// surveyEvery is how often the agent asks what passes to each other host: one packet. The kernel forgets what routers said after ten minutes
// (net.ipv4.route.mtu_expires); then more may pass.
const surveyEvery = 10 * time.Second

// widerAfter is after how many surveys in a row more is taken to pass than before: when the kernel has forgotten what a router said, all seems to pass
// until the router says it again, and its answer may be lost or late.
const widerAfter = 3

// survey finds out what passes to the other hosts, until ctx ends. The next description of this host tells it.
func (a *Agent) survey(ctx context.Context) {
	ticker := time.NewTicker(surveyEvery)
	defer ticker.Stop()
	wider := map[string]int{}
	for {
		at, before := a.place(), a.knownPaths()
		found := surveyPaths(ctx, at.Address, at.Peers, before, wire.PathMTU)
		if ctx.Err() != nil {
			return // not all hosts were asked
		}
		doubtWider(found, before, wider)
		a.mu.Lock()
		a.paths = found
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// doubtWider keeps what was known before of hosts to which more passes now, until that was so widerAfter times in a row: wider counts them, by host.
func doubtWider(found, before, wider map[string]int) {
	for name := range wider {
		if _, there := found[name]; !there {
			delete(wider, name)
		}
	}
	for name, mtu := range found {
		was, known := before[name]
		if !known || mtu <= was {
			delete(wider, name)
			continue
		}
		wider[name]++
		if wider[name] < widerAfter {
			found[name] = was
		} else {
			delete(wider, name)
		}
	}
}

// surveyPaths asks for each host, of as many as it comes to before ctx ends. Of one that nothing is known of now, what was known before holds.
func surveyPaths(ctx context.Context, local netip.Addr, peers map[string]netip.Addr, before map[string]int, ask func(local, peer netip.Addr) (int, error)) map[string]int {
	const most = 32 // at once
	found := map[string]int{}
	var mu sync.Mutex // guards found
	var all sync.WaitGroup
	turns := make(chan struct{}, most)
	for name, peer := range peers {
		if ctx.Err() != nil {
			break
		}
		if !peer.IsValid() || peer.Is4() != local.Is4() || peer == local {
			continue
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			mtu, err := ask(local, peer)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				found[name] = mtu
			} else if was, known := before[name]; known {
				found[name] = was
			}
		})
	}
	all.Wait()
	return found
}

func (a *Agent) knownPaths() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.paths)
}

// narrowPaths are those that take less than the interface that carries tunnels.
func narrowPaths(all map[string]int, underlays []hosts.Underlay) map[string]int {
	if len(underlays) == 0 {
		return nil
	}
	var narrow map[string]int
	for name, mtu := range all {
		if mtu < underlays[0].MTU {
			if narrow == nil {
				narrow = map[string]int{}
			}
			narrow[name] = mtu
		}
	}
	return narrow
}

// recallPaths takes what an earlier agent said of paths for what is known: links are not to be given a greater MTU until the first survey.
func (a *Agent) recallPaths(ctx context.Context) {
	all, err := a.cfg.Store.Hosts(ctx)
	if err != nil {
		return // who does not answer this does not take the registration, either
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range all {
		if h.Name == a.cfg.Host && a.paths == nil {
			a.paths = h.Paths
		}
	}
}
