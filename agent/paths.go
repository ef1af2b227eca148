package agent

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/substrate"
)

// surveyEvery is how often the agent asks what passes to each other host: one packet. The kernel forgets what routers said after ten minutes
// (net.ipv4.route.mtu_expires); then more may pass.
const surveyEvery = 10 * time.Second

// survey finds out what passes to the other hosts, until ctx ends. The next description of this host tells it.
func (a *Agent) survey(ctx context.Context) {
	ticker := time.NewTicker(surveyEvery)
	defer ticker.Stop()
	for {
		at := a.place()
		found := surveyPaths(at.address, at.peers, a.knownPaths(), wire.PathMTU)
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

// surveyPaths asks for each host. Of one that nothing is known of now, what was known before holds.
func surveyPaths(local netip.Addr, peers map[string]netip.Addr, before map[string]int, ask func(local, peer netip.Addr) (int, error)) map[string]int {
	const most = 32 // at once
	found := map[string]int{}
	var mu sync.Mutex // guards found
	var all sync.WaitGroup
	turns := make(chan struct{}, most)
	for name, peer := range peers {
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
func narrowPaths(all map[string]int, underlays []substrate.Underlay) map[string]int {
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
