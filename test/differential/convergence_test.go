package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pergola-net/pergola/bench/vnet"
)

// twoWays is a chain of two routers with two links between them.
func twoWays(slice uint16) vnet.Plan {
	sides := []vnet.NodePlan{{Name: "a"}, {Name: "r1", Router: true}, {Name: "r2", Router: true}, {Name: "b"}}
	p := vnet.Plan{Slice: slice, Nodes: sides}
	for i, ends := range [][2]string{{"a", "r1"}, {"r1", "r2"}, {"r1", "r2"}, {"r2", "b"}} {
		var l vnet.LinkPlan
		for k, name := range ends {
			l.Ends = append(l.Ends, vnet.End{Node: name, Interface: fmt.Sprintf("eth%d", i), MAC: mac(i+1, k),
				Addresses: []netip.Prefix{netip.PrefixFrom(nth(subnet4(i+1), k+1), 24)}})
		}
		for k, name := range ends {
			n := p.Node(name)
			n.Neighbours = append(n.Neighbours, vnet.Neighbour{Interface: fmt.Sprintf("eth%d", i), Address: nth(subnet4(i+1), 2-k), MAC: mac(i+1, 1-k)})
		}
		p.Links = append(p.Links, l)
	}
	p.Node("r1").Routes = []vnet.Route{way(1)}
	return p
}

// way is the route of r1 to b by one of the two links.
func way(link int) vnet.Route {
	return vnet.Route{To: subnet4(4), Hops: []vnet.Hop{{Via: nth(subnet4(link+1), 2), Interface: fmt.Sprintf("eth%d", link)}}}
}

// BenchmarkConvergence cuts a link that carries traffic, and then, as a routing daemon would, replaces the route. Reported is how long
// frames go astray after the kernel has taken the new route: with the fast path, the mirror has to follow.
func BenchmarkConvergence(b *testing.B) {
	a := newArena(b)
	plan := twoWays(1)
	n, err := a.ground.New(b.Context(), plan)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	from, err := openTap(n.Nodes["a"], "eth0", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = from.close() }()
	to, err := openTap(n.Nodes["b"], "eth3", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = to.close() }()
	var astray [2][]float64
	for b.Loop() {
		for _, on := range []bool{false, true} {
			if err := n.FastPath(b.Context(), on); err != nil {
				b.Fatal(err)
			}
			t, err := a.cut(b, n, from, to)
			if err != nil {
				b.Fatal(err)
			}
			astray[bit(on)] = append(astray[bit(on)], float64(t.Microseconds()))
		}
	}
	for i, name := range []string{"kernel", "fast"} {
		slices.Sort(astray[i])
		b.ReportMetric(astray[i][len(astray[i])/2], "us-"+name)
		b.ReportMetric(astray[i][len(astray[i])-1], "us-"+name+"-max")
	}
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// cut gives the time from the kernel's word that it has the new route to when the first frame that arrives was sent.
func (a *arena) cut(b *testing.B, n *vnet.Network, from, to *tap) (time.Duration, error) {
	b.Helper()
	r1 := n.Nodes["r1"]
	if err := r1.Apply(vnet.ReplaceRoute{Route: way(1)}); err != nil {
		return 0, err
	}
	if err := n.InStep(b.Context(), "r1"); err != nil {
		return 0, err
	}
	link := func(up bool) error {
		s := a.ground.Substrate
		return errors.Join(s.SetUp(b.Context(), n.Port("r1", "eth1"), up), s.SetUp(b.Context(), n.Port("r2", "eth1"), up))
	}
	if err := link(false); err != nil {
		return 0, err
	}
	if err := r1.Apply(vnet.ReplaceRoute{Route: way(2)}); err != nil {
		return 0, err
	}
	replaced := time.Now()
	var sent []time.Duration
	for len(sent) < 100_000 {
		id := uint32(len(sent))
		payload := binary.BigEndian.AppendUint32(slices.Clone(magic), id)
		source, target := nth(subnet4(1), 1), nth(subnet4(4), 2)
		packet := ipv4{from: source, to: target, proto: protoUDP, ttl: 64}.packet(udp(source, target, 1000, 2000, payload))
		sent = append(sent, time.Since(replaced))
		if err := from.send(&frame{data: ethernet(mac(1, 1), mac(1, 0), etherIPv4, packet)}); err != nil {
			return 0, err
		}
		got, err := to.receive()
		if err != nil {
			return 0, err
		}
		for _, r := range got {
			if id, ok := number(r.data); ok {
				if err := a.backlog.drained(); err != nil {
					return 0, err
				}
				_, err := to.receive()
				return sent[id], errors.Join(err, link(true))
			}
		}
	}
	return 0, fmt.Errorf("no frame arrives")
}
