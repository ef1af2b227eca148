package program

import (
	"context"
	"net/netip"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// linePlan is rows of routers that are walked, between one source and one sink.
//
//	source ── if1 p0.0 if2 ── if1 p0.1 if2 ── sink
//	source ── if1 p1.0 if2 ── if1 p1.1 if2 ── sink
type linePlan struct {
	first   uint16 // number of the network, a multiple of 100
	routers int    // of a row
	rows    int
	shape   slice.Shape // of what the last router of a row sends
	program bool        // there is one row more, whose only node has a packet program (setFlood)
}

// all is how many rows there are, with that of a packet program.
func (p linePlan) all() int {
	if p.program {
		return p.rows + 1
	}
	return p.rows
}

// length is how many routers a row has.
func (p linePlan) length(row int) int {
	if row == p.rows {
		return 1
	}
	return p.routers
}

// labelSpace is that of router i of a row.
func (p linePlan) labelSpace(row, i int) uint32 { return uint32(p.first) + uint32(50*row+i+1) }

// plan has all that a walk has to know: no router has to ask for a neighbour.
func (p linePlan) plan() vnet.Plan {
	v := vnet.Plan{Slice: p.first, Nodes: []vnet.NodePlan{{Name: sourceNode}, {Name: sinkNode}}}
	for row := range p.all() {
		routers := p.length(row)
		source, sink := netip.PrefixFrom(sourceAddress(row), 24), netip.PrefixFrom(sinkAddress(row), 24)
		lead := func(n *vnet.NodePlan, to netip.Prefix, via netip.Addr) {
			n.Routes = append(n.Routes, vnet.Route{To: to.Masked(), Hops: []vnet.Hop{{Via: via}}})
		}
		near := vnet.End{Node: sourceNode, Interface: endDevice(row), MAC: sourceMAC, NIC: true,
			Addresses: []netip.Prefix{source}}
		for i := range routers {
			h := hopOf(row, i, routers)
			r := vnet.NodePlan{Name: nodeName(row, i), Router: true, LabelSpace: p.labelSpace(row, i),
				Neighbours: []vnet.Neighbour{
					{Interface: ifIn, Address: h.neighbours[0], MAC: h.other[0]},
					{Interface: ifOut, Address: h.neighbours[1], MAC: h.other[1]},
				}}
			if i > 0 {
				lead(&r, source, h.neighbours[0])
			}
			if i < routers-1 {
				lead(&r, sink, h.neighbours[1])
			}
			end := func(side int, name string) vnet.End {
				return vnet.End{Node: r.Name, Interface: name, MAC: h.own[side],
					Addresses: []netip.Prefix{netip.PrefixFrom(h.addresses[side], 24)}}
			}
			v.Links = append(v.Links, vnet.LinkPlan{Ends: []vnet.End{near, end(0, ifIn)}})
			near = end(1, ifOut)
			if row == p.rows {
				r = vnet.NodePlan{Name: r.Name}
			}
			v.Nodes = append(v.Nodes, r)
		}
		near.Shape = p.shape
		v.Links = append(v.Links, vnet.LinkPlan{Ends: []vnet.End{near, {Node: sinkNode,
			Interface: endDevice(row), MAC: sinkMAC, NIC: true, Addresses: []netip.Prefix{sink}}}})
		for i, e := range []struct {
			gateway netip.Addr
			to      netip.Prefix
			mac     []byte
		}{{sourceAddress(row).Next(), sink, inMAC}, {sinkAddress(row).Next(), source, outMAC}} {
			n := &v.Nodes[i]
			n.Neighbours = append(n.Neighbours,
				vnet.Neighbour{Interface: endDevice(row), Address: e.gateway, MAC: e.mac})
			lead(n, e.to, e.gateway)
		}
	}
	return v
}

// line makes the rows, which are walked.
func (g *platform) line(ctx context.Context, p linePlan) (_ *vnet.Network, err error) {
	n, err := g.New(ctx, p.plan())
	if err != nil {
		return nil, err
	}
	g.undo.Push(n.Close)
	if err := n.FastPath(ctx, true); err != nil {
		return nil, err
	}
	return n, n.InStep(ctx)
}

// The flow's label, the same on all links, those of other LSPs, and the traffic class of what has a reservation.
const (
	flowLabel  = 100
	otherLabel = 1000
	flowClass  = datapath.ReservedClass
)

// reserveLine makes LSPs with reservations, through all routers of a row: of so many labels, from one on.
func (g *platform) reserveLine(n *vnet.Network, p linePlan, row int, first, count uint32) error {
	for i := range p.routers {
		r := n.Plan.Node(nodeName(row, i))
		for label := first; label < first+count; label++ {
			err := g.HostNetwork.SetLabel(r.LabelSpace, label, datapath.NHLFE{
				Port: n.PortIndex(r.Name, ifOut), MAC: [6]byte(hopOf(row, i, p.routers).other[1]),
				Push: []datapath.Label{{Label: label}}, KeepClass: true, Reserved: true,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
