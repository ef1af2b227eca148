package wire_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// phase reports how long each of n steps took, in milliseconds.
func phase(b *testing.B, what string, n int, f func()) {
	b.Helper()
	start := time.Now()
	f()
	b.ReportMetric(float64(time.Since(start).Microseconds())/1000/float64(n), "ms/"+what)
}

// BenchmarkLAN500 is 500 hosts on one switch: made, observed, deleted.
func BenchmarkLAN500(b *testing.B) {
	const hosts = 500
	for b.Loop() {
		l := newLab(b)
		l.ctx = context.Background()
		for i := range hosts {
			l.node(fmt.Sprint("h", i))
		}
		l.sw("s7b1")
		var ports []string
		phase(b, "port", hosts, func() {
			for i := range hosts {
				ports = append(ports,
					l.port(fmt.Sprint("h", i), nil, fmt.Sprintf("10.0.%d.%d/16", i/250, i%250+1),
						fmt.Sprintf("2001:db8::%x/64", i+1)))
			}
		})
		phase(b, "attach", hosts, func() {
			for _, p := range ports {
				l.must(l.Attach(l.ctx, p, "s7b1"))
			}
		})
		l.ping("h0", "10.0.1.250")
		phase(b, "observe", 1, func() { l.observe() })
		phase(b, "delete-all", 1, func() { l.must(l.DeletePorts(l.ctx, append(ports, "s7b1")...)) })
		b.StopTimer()
		b.StartTimer()
	}
}

// BenchmarkLine500 is 500 hosts on a line of 500 switches.
func BenchmarkLine500(b *testing.B) {
	const hosts = 500
	for b.Loop() {
		l := newLab(b)
		l.ctx = context.Background()
		for i := range hosts {
			l.node(fmt.Sprint("h", i))
		}
		phase(b, "switch", hosts, func() {
			for i := range hosts {
				l.sw(fmt.Sprint("s7b", i))
			}
		})
		phase(b, "port+attach", hosts, func() {
			for i := range hosts {
				p := l.port(fmt.Sprint("h", i), nil, fmt.Sprintf("10.0.%d.%d/16", i/250, i%250+1),
					fmt.Sprintf("2001:db8::%x/64", i+1))
				l.must(l.Attach(l.ctx, p, fmt.Sprint("s7b", i)))
			}
		})
		phase(b, "cable", hosts-1, func() {
			for i := 1; i < hosts; i++ {
				l.cable(fmt.Sprint("s7b", i-1), fmt.Sprint("s7b", i))
			}
		})
		l.ping("h0", "10.0.1.250")
		phase(b, "observe", 1, func() { l.observe() })
		phase(b, "delete-all", 1, func() { l.must(l.DeleteSlice(l.ctx, 7)) })
		if s := l.observe(); len(s.Ports)+len(s.Switches)+len(s.Cables)+len(s.Remains) > 0 {
			b.Errorf("left: %d ports", len(s.Ports))
		}
	}
}

// BenchmarkTunnels1000 is a machine with a thousand tunnels: made, joined in pairs, observed, deleted.
func BenchmarkTunnels1000(b *testing.B) {
	const tunnels = 1000
	for b.Loop() {
		bed := newBed(b, 1, 1500)
		m := bed.machines[0]
		m.ctx = context.Background()
		m.openUnderlay()
		peer := &machine{ip4: testAddress(2)}
		kind := tunnelOf{kind: slice.EGRE}
		var names []string
		phase(b, "tunnel", tunnels, func() {
			for i := range tunnels {
				w := kind.tunnel(m, peer, fmt.Sprintf("s7p%d", 1000+i), uint32(i+1), 1458)
				m.must(m.AddTunnel(m.ctx, w))
				names = append(names, w.Name)
			}
		})
		phase(b, "join", tunnels/2, func() {
			for i := 0; i < tunnels; i += 2 {
				m.must(m.Join(m.ctx, names[i], names[i+1]))
			}
		})
		phase(b, "observe", 1, func() { m.observe() })
		phase(b, "delete-all", 1, func() { m.must(m.DeletePorts(m.ctx, names...)) })
	}
}

// BenchmarkShapedLinks1000 is a machine with a thousand links that have classes in both directions: made, observed by a
// server that starts and by one that runs, and asked for the counters of one link, and of all.
func BenchmarkShapedLinks1000(b *testing.B) {
	const links = 1000
	for b.Loop() {
		l := newLab(b)
		l.ctx = context.Background()
		for i := range links {
			l.node(fmt.Sprint("n", i))
		}
		var ports, queues []string
		phase(b, "port", 2*links, func() {
			for i := range 2 * links {
				change := func(p *wire.Port) { p.Inner = fmt.Sprint("e", i%2) }
				ports = append(ports, l.port(fmt.Sprint("n", i/2), change))
			}
		})
		phase(b, "join+treat", links, func() {
			for i := 0; i < 2*links; i += 2 {
				from, to := ports[i+1], ports[(i+2)%len(ports)] // a ring
				l.must(l.Join(l.ctx, from, to))
				link := l.joined(from, to, classes(1e9, 100))
				l.must(l.Treat(l.ctx, link))
				fromA, fromB := link.Queues()
				queues = append(queues, fromA, fromB)
			}
		})
		phase(b, "observe-first", 1, func() { l.observe() })
		l.reopen()
		phase(b, "observe-adopt", 1, func() { l.observe() })
		phase(b, "observe", 10, func() {
			for range 10 {
				l.observe()
			}
		})
		phase(b, "counters-of-one", 100, func() {
			for i := range 100 {
				_, err := l.QueueStats(l.ctx, queues[2*i], queues[2*i+1])
				l.must(err)
			}
		})
		phase(b, "counters-of-all", 1, func() {
			_, err := l.QueueStats(l.ctx, queues...)
			l.must(err)
		})
	}
}
