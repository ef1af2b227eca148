package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/host/reconcile"
)

// A bridge of the kernel has at most 1023 ports. A switch or LAN with more here is a star of bridges: the one in the
// middle has the tunnels, and each of the others as many devices as fit.
//
//	s1p1 ... s1p1000 ── first ═══ middle ═══ second ── s1p1001 ...
const bridgePorts = 1000

// bridge adds a bridge.
func (b *builder) bridge(device, owner string) reconcile.Key {
	k := b.key(KindSwitch, device)
	b.add(reconcile.Resource{
		Key: k, Needs: []reconcile.Key{HostNetKey, b.area}, Falls: reconcile.FallsWithAny,
	}, Bridge{device, b.Spec.Name + "/" + owner})
	return k
}

// divide adds the outer bridges of a segment that needs some, and says in bridges what is plugged into which. Devices
// are taken in the order of their numbers, which stay: few have to move when others come and go.
func (b *builder) divide(g segment) {
	if len(g.plugged)+len(g.hosts) <= bridgePorts {
		return
	}
	slices.SortFunc(g.plugged, func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
	for i, chunk := range slices.Collect(slices.Chunk(g.plugged, bridgePorts)) {
		part := fmt.Sprint(g.device, " ", i)
		outer := switchDevice(b.Spec.ID, part)
		k := b.bridge(outer, g.owner)
		end := fmt.Sprintf("s%dx%s", b.Spec.ID, hash(part)[:7])
		c := NewCable(Cable{
			A: end + "i", BridgeA: g.device, B: end + "o", BridgeB: outer,
			Owner: b.Spec.Name + "/" + g.owner, MTU: g.mtu,
		})
		b.addWire(nil, c, reconcile.FallsWithAny, nil, b.key(KindSwitch, g.device), k)
		for _, device := range chunk {
			b.bridges[g.device+" "+device] = outer
		}
	}
}

// bridgeOf gives the bridge of a segment that a device is plugged into.
func (b *builder) bridgeOf(segment, device string) string {
	return cmp.Or(b.bridges[segment+" "+device], segment)
}
