package mirror

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/test/testkit"
)

// BenchmarkChange measures from the moment at which the kernel is asked to change a route to the change in the maps.
func BenchmarkChange(b *testing.B) {
	l := newLab(b, func(c *Config) { c.EventRate, c.EventBurst, c.Log = 1e9, 1e9, nil })
	l.synced()
	sock, err := openSocket(l.ns, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer sock.close()
	out, addr := l.session().out, netip.MustParseAddr("192.0.2.1")
	all := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		r := kroute{prefix: netip.MustParsePrefix("192.0.2.0/24"), table: 254, kind: 1, paths: []path{{
			link: l.index(i % 2), gateway: netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", i%2)), weight: 1,
		}}}
		m := r.message(unix.RTM_NEWROUTE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_REPLACE).bytes()
		begun := time.Now()
		if err := sock.raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) }); err != nil {
			b.Fatal(err)
		}
		for {
			if r := out.Lookup(addr); len(r.Paths) == 1 && r.Paths[0].Port == 100+i%2 {
				break
			}
			if time.Since(begun) > time.Second {
				b.Fatalf("change %d does not arrive", i)
			}
		}
		all = append(all, time.Since(begun))
		time.Sleep(200 * time.Microsecond) // the mirror's thread goes to sleep again, as in life
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "us-p50")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1000, "us-p99")
	b.ReportMetric(float64(all[len(all)-1].Nanoseconds())/1000, "us-max")
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
	l.mirror.Remove(name)
	l.batch(manyRoutes(routes))
	b.ResetTimer()
	for range b.N {
		begun := time.Now()
		l.set(Router{})
		testkit.Eventually(b, func() error {
			if s, err := l.mirror.Status(name); err != nil || !s.IPv4.FastPath || !s.Synchronised {
				return fmt.Errorf("%+v, %w", s, err)
			}
			return nil
		}, time.Minute, "all routes to be mirrored")
		b.ReportMetric(time.Since(begun).Seconds(), "s/start")
		b.StopTimer()
		s, _ := l.mirror.Status(name)
		b.Logf("%d routes, dump %v, %+v", s.IPv4.Routes, s.LastDump, l.fib.Usage())
		l.mirror.Remove(name)
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
	var ms []message
	for i := range 1000 {
		r := kroute{prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), table: 254, kind: 1,
			paths: []path{{link: 1, gateway: netip.AddrFrom4([4]byte{192, 168, 0, byte(i)}), weight: 1}}}
		ms = append(ms, r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE), r.message(unix.RTM_DELROUTE, 0))
	}
	b.ReportAllocs()
	for i := range b.N {
		if err := v.tell(ms[i%len(ms)], parts); err != nil {
			b.Fatal(err)
		}
	}
}

var _ sink = (*fib.Router)(nil)
