package fib

import (
	"encoding/binary"
	"net/netip"
)

// The kinds of next hops: enum nexthop_kind in bpf/fib.h.
const (
	nexthopNone uint8 = iota
	nexthopGateway
	nexthopStale
	nexthopLink
	nexthopUnresolved
	nexthopLocal
	nexthopReject
	nexthopOther
)

// The first next hops are the same for all routers.
const (
	hopNone = iota
	hopLocal
	hopReject
	hopOther
	hopNowhere // a path whose port is not known
	hopShared  // their number
)

// constants are the kinds of the next hops that all routers share.
var constants = [hopShared]uint8{nexthopNone, nexthopLocal, nexthopReject, nexthopOther, nexthopOther}

// A target is what routes of a router that say the same have in common.
type target struct {
	route  Route // plain
	answer entry // without a length
	hops   []*hop
	uses   int // routes
}

// A hopKey tells a router's next hops apart.
type hopKey struct {
	station
	ftn uint32
}

// A hop is a next hop of a router.
type hop struct {
	port    int
	gateway netip.Addr // invalid: the link
	ftn     uint32     // 0: none
	index   uint32
	uses    int // paths of targets
}

// adjacency is union adjacency in bpf/fib.h.
func adjacency(kind uint8, mac [6]byte) uint64 {
	var b [8]byte
	copy(b[:], mac[:])
	b[6] = kind
	return binary.NativeEndian.Uint64(b[:])
}

func parseAdjacency(word uint64) (kind uint8, mac [6]byte) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], word)
	copy(mac[:], b[:])
	return b[6], mac
}

func (n Neighbour) adjacency() uint64 {
	if n.Stale {
		return adjacency(nexthopStale, n.MAC)
	}
	return adjacency(nexthopGateway, n.MAC)
}

// acquire finds or makes the target of a plain route.
func (r *Router) acquire(route Route) (*target, error) {
	k := route.key()
	if t := r.targets[k]; t != nil {
		t.uses++
		return t, nil
	}
	t := &target{route: route, uses: 1}
	if err := r.build(t); err != nil {
		for _, h := range t.hops {
			r.releaseHop(h)
		}
		return nil, err
	}
	r.targets[k] = t
	return t, nil
}

func (r *Router) build(t *target) error {
	switch t.route.Kind {
	case Local:
		t.answer = hopLocal
	case Reject:
		t.answer = hopReject
	case Unicast:
		return r.buildPaths(t)
	default:
		t.answer = hopOther
	}
	return nil
}

func (r *Router) buildPaths(t *target) error {
	leaves := make([]entry, len(t.route.Paths))
	for i, p := range t.route.Paths {
		leaves[i] = hopNowhere
		if p.Port == 0 {
			continue
		}
		h, err := r.acquireHop(p)
		if err != nil {
			return err
		}
		t.hops = append(t.hops, h)
		leaves[i] = newEntry(leafEntry, h.index)
	}
	if len(leaves) == 1 {
		t.answer = leaves[0]
		return nil
	}
	n, err := r.account.newNode(0)
	if err != nil {
		return err
	}
	for slot, path := range spread(t.route.Paths) {
		r.fib.node(n)[slot] = uint32(leaves[path])
	}
	t.answer = newEntry(groupEntry, n)
	return nil
}

// release lets a target go with its last route.
func (r *Router) release(t *target) {
	if t.uses--; t.uses > 0 {
		return
	}
	delete(r.targets, t.route.key())
	if t.answer.kind() == groupEntry {
		r.account.freeNode(t.answer.index())
	}
	for _, h := range t.hops {
		r.releaseHop(h)
	}
}

func (r *Router) acquireHop(p Path) (*hop, error) {
	at := hopKey{station{port: p.Port, address: p.Gateway}, p.ftn}
	if h := r.hops[at]; h != nil {
		h.uses++
		return h, nil
	}
	index, err := r.account.newNexthop()
	if err != nil {
		return nil, err
	}
	h := &hop{port: p.Port, gateway: p.Gateway, ftn: p.ftn, index: index, uses: 1}
	r.fib.hops[index].port, r.fib.hops[index].ftn = uint32(p.Port), p.ftn
	r.resolve(h)
	r.hops[at], r.byIndex[index] = h, h
	return h, nil
}

func (r *Router) releaseHop(h *hop) {
	if h.uses--; h.uses > 0 {
		return
	}
	delete(r.hops, hopKey{station{port: h.port, address: h.gateway}, h.ftn})
	delete(r.byIndex, h.index)
	r.account.freeNexthop(h.index)
}

// resolve writes what is known of a next hop, in one store.
func (r *Router) resolve(h *hop) {
	word := adjacency(nexthopUnresolved, [6]byte{})
	if r.legs[h.port].Up {
		if !h.gateway.IsValid() {
			word = adjacency(nexthopLink, [6]byte{})
		} else if n, ok := r.neighbours[station{port: h.port, address: h.gateway}]; ok {
			word = n.adjacency()
		}
	}
	r.fib.store64(&r.fib.hops[h.index].to, word)
}

// routeOf says which route an answer stands for.
func (r *Router) routeOf(e entry) Route {
	if e.kind() != groupEntry {
		return r.routeOfHop(e.index())
	}
	count := map[uint32]int{}
	for i := range r.fib.node(e.index()) {
		count[load(&r.fib.node(e.index())[i]).index()]++
	}
	route := Route{Kind: Unicast}
	for index, n := range count {
		path := Path{}
		if index != hopNowhere {
			path = r.routeOfHop(index).Paths[0]
		}
		path.Weight = n
		route.Paths = append(route.Paths, path)
	}
	return route.plain()
}

func (r *Router) routeOfHop(index uint32) Route {
	switch index {
	case hopNone:
		return Route{}
	case hopLocal:
		return Route{Kind: Local}
	case hopReject:
		return Route{Kind: Reject}
	case hopOther:
		return Route{Kind: Other}
	case hopNowhere:
		return Route{Kind: Unicast, Paths: []Path{{Weight: 1}}}
	}
	path := Path{Port: int(r.fib.hops[index].port), Weight: 1}
	if h := r.byIndex[index]; h != nil {
		path.Gateway = h.gateway
	}
	return Route{Kind: Unicast, Paths: []Path{path}}
}
