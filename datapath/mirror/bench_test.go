package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/testkit"
)

// BenchmarkChange measures from the kernel's change of a route to the change in the maps.
func BenchmarkChange(b *testing.B) {
	l := newLab(b, func(c *Config) { c.EventRate, c.EventBurst, c.Log = 1e9, 1e9, nil })
	l.synced()
	out, addr := l.session().out, netip.MustParseAddr("192.0.2.1")
	l.measure(b, func(i int) bool {
		r := out.Lookup(addr)
		return len(r.Paths) == 1 && r.Paths[0].Port == 100+i%2
	})
}

// BenchmarkChangeWhileVerified does so while the router's 1,000,000 routes are compared with the kernel's, again and
// again.
func BenchmarkChangeWhileVerified(b *testing.B) {
	l := newLab(b, func(c *Config) { c.EventRate, c.EventBurst, c.Log = 1e9, 1e9, nil })
	<-l.mirror.Remove(l.name)
	l.batch(manyRoutes(1_000_000))
	l.set(Router{})
	l.returns()
	out, addr := l.session().out, netip.MustParseAddr("192.0.2.1")
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if found, err := l.mirror.Verify(ctx, l.name); ctx.Err() == nil &&
				(err != nil || len(found) > 0) {
				b.Errorf("%d differences, %v", len(found), err)
			}
		}
	})
	l.measure(b, func(i int) bool {
		r := out.Lookup(addr)
		return len(r.Paths) == 1 && r.Paths[0].Port == l.ports[i%2]
	})
	b.StopTimer()
	cancel()
	group.Wait()
}

// BenchmarkFloor measures what a change costs that nobody does anything with: a thread waits for the kernel's
// message, and has it.
func BenchmarkFloor(b *testing.B) {
	l := newLab(b, func(c *Config) { c.Log = nil })
	<-l.mirror.Remove(l.name)
	sock, err := openSocket(l.ns, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	if err := sock.subscribe(true); err != nil {
		b.Fatal(err)
	}
	var seen atomic.Int64
	seen.Store(-1)
	var group sync.WaitGroup
	group.Go(func() {
		runtime.LockOSThread()
		fd := int(sock.file.Fd())
		if err := unix.SetNonblock(fd, false); err != nil {
			b.Error(err)
			return
		}
		buffer := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buffer)
			if m, _, bad := rtnl.NextMessage(buffer[:max(n, 0)]); err != nil || bad != nil ||
				m.Kind == unix.RTM_NEWLINK {
				return
			} else if m.Kind == unix.RTM_NEWROUTE {
				seen.Add(1)
			}
		}
	})
	l.measure(b, func(i int) bool { return seen.Load() >= int64(i) })
	l.script("ip link set eth0 mtu 1400") // ends the reader
	group.Wait()
	sock.close()
}

// measure changes a route again and again, and looks when it arrives. In between it lets others run: the kernel may
// have put the mirror's thread on the same core, where it would wait for up to two timer ticks.
func (l *lab) measure(b *testing.B, arrived func(i int) bool) {
	b.Helper()
	sock, err := openSocket(l.ns, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer sock.close()
	var requested, changed []time.Duration
	b.ResetTimer()
	for i := range b.N {
		r := kroute{prefix: netip.MustParsePrefix("192.0.2.0/24"), table: 254, kind: 1, paths: []path{{
			link: l.index(i % 2), gateway: netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", i%2)), weight: 1,
		}}}
		m := encode(r.message(unix.RTM_NEWROUTE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_REPLACE))
		var failed error
		before := time.Now()
		err := sock.raw.Control(func(fd uintptr) {
			failed = unix.Sendto(int(fd), m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		})
		after := time.Now()
		if err = errors.Join(err, failed); err != nil {
			b.Fatal(err)
		}
		for !arrived(i) {
			if time.Since(after) > time.Second {
				b.Fatalf("change %d does not arrive", i)
			}
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		requested, changed = append(requested, time.Since(before)), append(changed, time.Since(after))
		time.Sleep(200 * time.Microsecond) // the mirror's thread goes to sleep again, as in life
	}
	for unit, all := range map[string][]time.Duration{"request": requested, "change": changed} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "us-p50-from-"+unit)
		b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1000, "us-p99-from-"+unit)
	}
}

func (l *lab) index(i int) int {
	for index, port := range l.legs {
		if port == l.ports[i] {
			return index
		}
	}
	return 0
}

// BenchmarkMillion mirrors 1,000,000 routes from a cold start.
func BenchmarkMillion(b *testing.B) { benchmarkStart(b, 1_000_000) }

func BenchmarkHundredThousand(b *testing.B) { benchmarkStart(b, 100_000) }

func benchmarkStart(b *testing.B, routes int) {
	b.Helper()
	l := newLab(b, func(c *Config) { c.EventRate, c.EventBurst, c.Log = 1000, 1000, nil })
	<-l.mirror.Remove(l.name)
	l.batch(manyRoutes(routes))
	b.ResetTimer()
	for range b.N {
		begun := time.Now()
		l.set(Router{})
		testkit.Eventually(b, func() error {
			if s, err := l.mirror.Status(l.name); err != nil || !s.IPv4.FastPath || !s.Synchronised {
				return fmt.Errorf("%+v, %w", s, err)
			}
			return nil
		}, time.Minute, "all routes to be mirrored")
		b.ReportMetric(time.Since(begun).Seconds(), "s/start")
		b.StopTimer()
		s, _ := l.mirror.Status(l.name)
		b.Logf("%d routes, dump %v, %+v", s.IPv4.Routes, s.LastDump, l.fib.Usage())
		<-l.mirror.Remove(l.name)
		b.StartTimer()
	}
}

// manyRoutes are of the lengths and with the number of gateways that a router of the Internet has, roughly.
func manyRoutes(n int) string {
	var s strings.Builder
	for i := range n {
		bits := []int{24, 24, 24, 23, 22, 21, 20, 24, 24, 19}[i%10]
		addr := binary.BigEndian.AppendUint32(nil, 0x0b000000+uint32(i)<<8)
		a, _ := netip.AddrFromSlice(addr)
		p, _ := a.Prefix(bits)
		fmt.Fprintf(&s, "route replace %s metric %d via 10.0.%d.%d\n", p, 1+i%7, i%3, 2+i/3%60)
	}
	return s.String()
}

// BenchmarkEvents applies events to the view alone.
func BenchmarkEvents(b *testing.B) {
	v := newView(newMemory(), map[int]int{1: 101})
	v.begin()
	var ms []rtnl.Message
	for i := range 1000 {
		r := kroute{prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24),
			table: 254, kind: 1,
			paths: []path{{link: 1, gateway: netip.AddrFrom4([4]byte{192, 168, 0, byte(i)}), weight: 1}}}
		ms = append(ms, r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE), r.message(unix.RTM_DELROUTE, 0))
	}
	b.ReportAllocs()
	for i := range b.N {
		if err := v.event(ms[i%len(ms)], parts); err != nil {
			b.Fatal(err)
		}
	}
}

var _ sink = (*fib.Router)(nil)

// BenchmarkConfirm takes over a dump of 1,000,000 routes, without a kernel and without maps.
func BenchmarkConfirm(b *testing.B) {
	const routes = 1_000_000
	var ms []rtnl.Message
	for i := range routes {
		r := kroute{prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil,
			uint32(i)<<8))), 24), table: 254, kind: 1,
			paths: []path{{link: 1, gateway: netip.AddrFrom4([4]byte{192, 168, 0, byte(i)}), weight: 1}}}
		ms = append(ms, r.message(unix.RTM_NEWROUTE, 0))
	}
	b.ReportAllocs()
	for b.Loop() {
		v := newView(nowhere{}, map[int]int{1: 101})
		v.begin()
		for _, m := range ms {
			if err := v.confirm(m); err != nil {
				b.Fatal(err)
			}
		}
		if err := v.sweep(partRoutes4); err != nil {
			b.Fatal(err)
		}
	}
}

// nowhere is a sink for routes.
type nowhere struct{ sink }

func (nowhere) SetRoute(netip.Prefix, fib.Route) error { return nil }
