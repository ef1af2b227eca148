package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Declares reports whether the slice gives a node an address. The others get theirs in the node: by commands, or by a
// daemon with a configuration of the user's own.
func Declares(n *slice.Node) bool {
	_, v4 := n.Address(false)
	_, v6 := n.Address(true)
	return v4 || v6
}

// Addresses gives, for those of the processes whose node has no address in the slice, the addresses by which others can
// reach it, as the node's kernel has them: those of lo first. Link-local addresses and 127.0.0.0/8 are left out, and
// interfaces for management and the one to the outside, and nodes that are gone meanwhile.
func Addresses(ctx context.Context, s *slice.Slice, pids map[string]int) (map[string][]netip.Addr, error) {
	var mu sync.Mutex // guards all
	all := make(map[string][]netip.Addr, len(pids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.NumCPU())
	for name, pid := range pids {
		n := s.Node(name)
		if n == nil || Declares(n) {
			continue
		}
		g.Go(func() error {
			interfaces, err := Interfaces(ctx, pid)
			if errors.Is(err, netns.ErrGone) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look into %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all[name] = reachable(n, interfaces)
			return nil
		})
	}
	err := g.Wait()
	return all, err
}

// mostAddresses is how many are told of a node, which may give itself any number.
const mostAddresses = 256

// reachable lists a node's addresses that mean it in other nodes: the first ones.
func reachable(n *slice.Node, interfaces []Interface) (all []netip.Addr) {
	for _, i := range interfaces {
		if n.ReachesOutside() && i.Name == slice.OutsideInterface {
			continue
		}
		if own := n.Interface(i.Name); own != nil && own.Management {
			continue
		}
		for _, p := range i.Addresses {
			if p.Addr().IsGlobalUnicast() && len(all) < mostAddresses {
				all = append(all, p.Addr())
			}
		}
	}
	return all
}

// address is the address that a node's name means in a family.
func (c Checker) address(n *slice.Node, ipv6 bool) (netip.Addr, bool) {
	if Declares(n) {
		return n.Address(ipv6)
	}
	for _, a := range c.Addresses[n.Name] {
		if a.Is6() == ipv6 {
			return a, true
		}
	}
	return netip.Addr{}, false
}
