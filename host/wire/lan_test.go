package wire_test

import (
	"fmt"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// lanOver makes one LAN over all machines, with a node n1, n2, ... on each.
func (b *bed) lanOver(t tunnelOf) (ports []string) {
	b.Helper()
	b.keys++
	mtu := b.mtu - t.kind.Overhead(t.ipv6)
	for _, m := range b.machines {
		m.sw("s7b1")
		p := m.port(fmt.Sprint("n", m.number), func(p *wire.Port) { p.MTU = mtu },
			fmt.Sprintf("198.51.100.%d/24", m.number), fmt.Sprintf("2001:db8:1::%x/64", m.number))
		m.must(m.Attach(m.ctx, p, "s7b1"))
		ports = append(ports, p)
		for _, peer := range b.machines {
			if peer == m {
				continue
			}
			w := t.tunnel(m, peer, lanTunnel(peer), b.keys, mtu)
			w.Owner = "lab/lan"
			m.must(m.AddTunnel(m.ctx, w))
			m.must(m.Attach(m.ctx, w.Name, "s7b1"))
		}
	}
	return ports
}

func lanTunnel(peer *machine) string { return fmt.Sprintf("s7t%08x", peer.number) }

func TestLANOverThreeMachines(t *testing.T) {
	for _, kind := range []tunnelOf{{slice.EGRE, false}, {slice.VXLAN, true}} {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 3, 1500)
			b.openUnderlays()
			b.lanOver(kind)
			m := b.machines
			m[0].ping("n1", "198.51.100.2")
			m[1].ping("n2", "198.51.100.3")
			m[2].ping("n3", "2001:db8:1::1")
			for _, m := range m {
				state := m.observe()
				for _, peer := range b.machines {
					if p := state.Ports[lanTunnel(peer)]; peer != m &&
						(!p.Tunnel || p.Switch != "s7b1" || p.Peer != "") {
						t.Errorf("the tunnel to machine %d on machine %d is %+v", peer.number,
							m.number, p)
					}
				}
				if len(state.Remains) > 0 {
					t.Errorf("remains on machine %d: %v", m.number, state.Remains)
				}
			}

			// One copy for each.
			taps := []*tap{m[0].tap("n1"), m[1].tap("n2"), m[2].tap("n3")}
			frame := ethernet(everyone, mac(101), "88b5", 77)
			taps[0].send(frame)
			for i, want := range []int{0, 1, 1} {
				if n := taps[i].copies(frame); n != want {
					t.Errorf("%d copies of a broadcast at node %d, want %d", n, i+1, want)
				}
			}

			// Frames to a known station go to no other.
			before, err := m[0].Counters(m[0].ctx)
			m[0].must(err)
			if out, err := m[0].exec("n1", "ping", "-q", "-c50", "-i0.002", "198.51.100.2"); err != nil {
				t.Fatal(out)
			}
			after, err := m[0].Counters(m[0].ctx)
			m[0].must(err)
			to := func(peer *machine) uint64 {
				return after[lanTunnel(peer)].ToNode.Frames - before[lanTunnel(peer)].ToNode.Frames
			}
			if to(m[1]) < 50 || to(m[2]) > 10 {
				t.Errorf("of 50 frames for n2, %d went to its machine and %d to the other", to(m[1]),
					to(m[2]))
			}
		})
	}
}

// A shaped node of a LAN over machines, and a server that starts anew: what is isolated stays so.
func TestShapedNodeOfALANOverMachines(t *testing.T) {
	b := newBed(t, 3, 1500)
	b.openUnderlays()
	ports := b.lanOver(tunnelOf{kind: slice.EGRE})
	m := b.machines
	m[0].ping("n1", "198.51.100.3")
	m[0].must(m[0].Shape(m[0].ctx, ports[0], wire.FromNode, slice.Shape{Rate: 10e6}))
	m[0].wantRate("n1", "198.51.100.3", lanTunnel(m[2]), 10e6)
	m[0].must(m[0].Shape(m[0].ctx, lanTunnel(m[2]), wire.ToNode, slice.Shape{Rate: 5e6}))
	m[0].wantRate("n1", "198.51.100.3", lanTunnel(m[2]), 5e6)
	m[1].reopen()
	m[1].openUnderlay()
	m[1].must(m[1].Attach(m[1].ctx, lanTunnel(m[0]), "s7b1"))
	frame := ethernet(everyone, mac(101), "88b5", 78)
	taps := []*tap{m[0].tap("n1"), m[2].tap("n3")}
	taps[0].send(frame)
	if a, c := taps[0].copies(frame), taps[1].copies(frame); a != 0 || c != 1 {
		t.Errorf("%d copies of a broadcast at its sender, %d at another node", a, c)
	}
}
