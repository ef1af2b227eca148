package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/pergola-net/pergola/lab/vnet"
)

// Memory gives the bytes that the mirrors of so many routers with so many routes each take: the maps of the kernel,
// and the heap of the process that keeps them.
func Memory(ctx context.Context, routers, routes int) (maps, heap uint64, err error) {
	g, done, err := open(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n, err := g.New(ctx, pairs(routers, routes))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	before := heapNow()
	if err := n.FastPath(ctx, true); err != nil {
		return 0, 0, err
	}
	if err := walked(n); err != nil {
		return 0, 0, err
	}
	after := heapNow()
	return g.FastPathMemory(), after - min(after, before), nil
}

func heapNow() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// pairs are routers of which each two share a link, and send all their routes across.
func pairs(routers, routes int) vnet.Plan {
	p := vnet.Plan{Slice: 1}
	for i := range routers {
		p.Nodes = append(p.Nodes, vnet.NodePlan{Name: fmt.Sprintf("r%d", i), Router: true})
	}
	for i := 0; i+1 < routers; i += 2 {
		join(&p, p.Nodes[i].Name, p.Nodes[i+1].Name)
		for end := range 2 {
			for k := range routes {
				to := netip.PrefixFrom(netip.AddrFrom4(
					[4]byte(binary.BigEndian.AppendUint32(nil,
						11<<24+uint32((i+end)%50*routes+k)<<8))), 24)
				p.Nodes[i+end].Routes = append(p.Nodes[i+end].Routes,
					vnet.Route{To: to, Hops: []vnet.Hop{{Via: address(i/2, 1-end)}}})
			}
		}
	}
	return p
}
