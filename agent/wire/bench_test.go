package wire_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/agent/wire"
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
				ports = append(ports, l.port(fmt.Sprint("h", i), nil, fmt.Sprintf("10.0.%d.%d/16", i/250, i%250+1), fmt.Sprintf("2001:db8::%x/64", i+1)))
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
				p := l.port(fmt.Sprint("h", i), nil, fmt.Sprintf("10.0.%d.%d/16", i/250, i%250+1), fmt.Sprintf("2001:db8::%x/64", i+1))
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

var _ = wire.Port{}
