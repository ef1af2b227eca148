package member

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/model/hosts"
)

// surveyEvery is how often the path to each other host is measured, with one packet. The kernel forgets what routers
// reported after ten minutes (net.ipv4.route.mtu_expires); then longer packets may pass.
const surveyEvery = 10 * time.Second

// widerAfter is after how many surveys in a row a path MTU is taken to have grown: when the kernel has forgotten what a
// router reported, everything seems to pass until the router reports it again, and its answer may be lost or late.
const widerAfter = 3

// Survey measures the path MTUs to the other hosts.
type Survey struct {
	ask func(local, peer netip.Addr) (mtu int, err error)

	mu    sync.Mutex // guards paths
	paths map[string]int
}

// NewSurvey gives a survey that measures one path by ask.
func NewSurvey(ask func(local, peer netip.Addr) (mtu int, err error)) *Survey {
	return &Survey{ask: ask}
}

// Paths are the path MTUs found last, in bytes, by host.
func (s *Survey) Paths() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.paths)
}

// Adopt takes the path MTUs that an earlier agent reported, unless there are some: links are not to be given a greater
// MTU until the first survey.
func (s *Survey) Adopt(paths map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = paths
	}
}

// Run measures until ctx ends. peers gives this host's address and those of the others.
func (s *Survey) Run(ctx context.Context, peers func() (local netip.Addr, others map[string]netip.Addr)) {
	ticker := time.NewTicker(surveyEvery)
	defer ticker.Stop()
	wider := map[string]int{}
	for {
		before := s.Paths()
		local, others := peers()
		found := surveyPaths(ctx, local, others, before, s.ask)
		if ctx.Err() != nil {
			return // not all hosts were asked
		}
		delayWider(found, before, wider)
		s.mu.Lock()
		s.paths = found
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// delayWider keeps the path MTU that was found before where a greater one was found now, until that was so widerAfter
// times in a row: wider counts them, by host.
func delayWider(found, before, wider map[string]int) {
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

// surveyPaths measures the path to each host, and to fewer if ctx ends before. Where one cannot be measured, the path
// MTU found before holds.
func surveyPaths(
	ctx context.Context, local netip.Addr, peers map[string]netip.Addr, before map[string]int,
	ask func(local, peer netip.Addr) (int, error),
) map[string]int {
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

// narrowPaths are those with a smaller MTU than the interface that carries tunnels.
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
