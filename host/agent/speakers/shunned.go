package speakers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/te"
)

// avoidFor is how long another way is preferred to one that has failed.
const avoidFor = 30 * time.Second

// shunned are links that are avoided until some time, each named by an interface at it.
type shunned map[netip.Addr]time.Time

func (s *shunned) add(link netip.Addr, now time.Time) {
	if *s == nil {
		*s = shunned{}
	}
	(*s)[link] = now.Add(avoidFor)
}

// addAll has all links of a way avoided: one of its routers does not answer.
func (s *shunned) addAll(way te.Path, now time.Time) {
	for _, h := range way.Hops {
		s.add(h.Local, now)
	}
}

// refused has the link avoided at which a router has refused an LSP.
func (s *shunned) refused(way *te.Path, by netip.Addr, network *slice.Slice, now time.Time) {
	if link, ok := refusedAt(way, by, network); ok {
		s.add(link, now)
	}
}

// links are those that are avoided now; the others are forgotten.
func (s shunned) links(now time.Time) []netip.Addr {
	maps.DeleteFunc(s, func(_ netip.Addr, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(s))
}

// refusedAt gives the link at which a router has refused an LSP, by an interface: that by which the LSP was to leave
// the router, for the error has any of its addresses. ok is false where no router of the network has it.
func refusedAt(way *te.Path, by netip.Addr, network *slice.Slice) (link netip.Addr, ok bool) {
	router, at, _ := strings.Cut(routerOf(network, by), ":")
	if way != nil {
		for _, h := range way.Hops {
			if h.From == router {
				return h.Local, true
			}
		}
	}
	return by, at != ""
}
