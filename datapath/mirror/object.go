package mirror

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// objects are the kernel's next-hop objects (ip nexthop), by id.
type objects map[uint32]object

type object struct {
	kind       fib.Kind // Unicast, Reject or Other
	link       int
	gateway    netip.Addr
	members    []member // of a group
	generation uint32
}

func (o object) same(p object) bool {
	return o.kind == p.kind && o.link == p.link && o.gateway == p.gateway && slices.Equal(o.members, p.members)
}

type member struct {
	id     uint32
	weight int
}

// Next-hop attributes that golang.org/x/sys/unix does not have.
const (
	nhaFDB        = 11
	nhaResilient  = 12
	sizeofNHMsg   = 8
	sizeofNHGroup = 8
)

func parseObject(m rtnl.Message) (id uint32, o object, err error) {
	if len(m.Data) < sizeofNHMsg {
		return 0, o, rtnl.ErrMalformed
	}
	o.kind = fib.Unicast
	for a := m.Attributes(sizeofNHMsg); a.Next(); {
		switch a.Kind {
		case unix.NHA_ID:
			id = a.U32()
		case unix.NHA_OIF:
			o.link = int(a.U32())
		case unix.NHA_GATEWAY:
			o.gateway = a.Address()
		case unix.NHA_BLACKHOLE:
			o.kind = fib.Reject
		case unix.NHA_GROUP:
			for b := a.Value; len(b) >= sizeofNHGroup; b = b[sizeofNHGroup:] {
				// The weight less one has 16 bits in newer kernels; the upper half was reserved, and
				// zero.
				weight := 1 + int(b[4]) + int(b[5])<<8
				o.members = append(o.members, member{binary.NativeEndian.Uint32(b), weight})
			}
		case unix.NHA_GROUP_TYPE:
			// resilient: sticks to a table of buckets
			if len(a.Value) >= 2 && binary.NativeEndian.Uint16(a.Value) != 0 {
				o.kind = fib.Other
			}
		case unix.NHA_ENCAP, unix.NHA_ENCAP_TYPE, nhaFDB, nhaResilient:
			o.kind = fib.Other
		}
	}
	if id == 0 {
		return 0, o, rtnl.ErrMalformed
	}
	return id, o, nil
}

func (all objects) hasMember(group, id uint32) bool {
	for _, m := range all[group].members {
		if m.id == id {
			return true
		}
	}
	return false
}

// weigh gives paths that a route's message spells out, in the order of the group, the weights of the
// object: in the message they have eight bits.
func (o object) weigh(paths []path) []path {
	if len(paths) != len(o.members) {
		return paths
	}
	weighed := slices.Clone(paths)
	for i, m := range o.members {
		weighed[i].weight = m.weight
	}
	return weighed
}

// resolve finds the paths of a route by its object. The kernel spells them out in the route's own messages, unless
// net.ipv4.nexthop_compat_mode is 0.
func (all objects) resolve(h *hops) ([]path, fib.Kind) {
	o, ok := all[h.object]
	switch {
	case !ok:
		return nil, fib.Other
	case o.kind != fib.Unicast:
		return nil, o.kind
	case len(h.paths) > 0:
		return o.weigh(h.paths), fib.Unicast
	case len(o.members) == 0:
		return []path{{link: o.link, gateway: o.gateway, weight: 1}}, fib.Unicast
	}
	paths := make([]path, 0, len(o.members))
	for _, m := range o.members {
		one, ok := all[m.id]
		if !ok || one.kind != fib.Unicast || len(one.members) > 0 {
			return nil, fib.Other
		}
		paths = append(paths, path{link: one.link, gateway: one.gateway, weight: m.weight})
	}
	return paths, fib.Unicast
}
