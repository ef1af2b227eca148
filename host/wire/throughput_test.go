package wire_test

import (
	"cmp"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/kernel/netns"
)

// BenchmarkJoinAgainstBareVeth compares a link with a veth pair between two namespaces: round trips of 64-byte UDP
// datagrams, and TCP throughput. Rounds are interleaved, because the machine may be busy; the medians' ratios are
// reported.
func BenchmarkJoinAgainstBareVeth(b *testing.B) {
	l := newLab(b)
	l.pair()
	l.bareVeth()
	l.ping("a", "192.0.2.1")
	l.ping("a", "203.0.113.1")
	var rtt, tcp [2][]float64
	for b.Loop() {
		for range 7 {
			for i, to := range []string{"192.0.2.1", "203.0.113.1"} {
				rtt[i] = append(rtt[i], l.roundTrip(to))
				tcp[i] = append(tcp[i], l.transfer(to, 1<<30))
			}
		}
	}
	b.ReportMetric(median(rtt[0]), "us/rtt")
	b.ReportMetric(median(rtt[1])/median(rtt[0]), "rtt-ratio")
	b.ReportMetric(median(tcp[0]), "Gb/s")
	b.ReportMetric(median(tcp[0])/median(tcp[1]), "tcp-ratio")
}

// bareVeth gives a and b a second link, in which we have no part.
func (l *lab) bareVeth() {
	l.Helper()
	for _, c := range []string{
		"nsenter --net=A ip link add bare type veth peer name bare netns B",
		"nsenter --net=A ip address add 203.0.113.0/31 dev bare", "nsenter --net=A ip link set bare up",
		"nsenter --net=B ip address add 203.0.113.1/31 dev bare", "nsenter --net=B ip link set bare up",
	} {
		a, b := l.node("a").pid, l.node("b").pid
		c = strings.NewReplacer("=A ", "="+netns.Path(a)+" ", "=B ", "="+netns.Path(b)+" ",
			"netns B", fmt.Sprint("netns ", b)).Replace(c)
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			l.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// in opens a socket in a node.
func in[T any](l *lab, name string, open func() (T, error)) T {
	l.Helper()
	var v T
	l.must(netns.Do(netns.Path(l.node(name).pid), func() (err error) {
		v, err = open()
		return err
	}))
	return v
}

func (l *lab) roundTrip(to string) (us float64) {
	l.Helper()
	const trips = 5000
	server := in(l, "b", func() (net.PacketConn, error) { return net.ListenPacket("udp", to+":7") })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], from)
		}
	}()
	client := in(l, "a", func() (net.Conn, error) { return net.Dial("udp", to+":7") })
	buf := make([]byte, 64)
	start := time.Now()
	for range trips {
		if _, err := client.Write(buf[:22]); err != nil {
			l.Fatal(err)
		}
		if _, err := client.Read(buf); err != nil {
			l.Fatal(err)
		}
	}
	took := time.Since(start)
	l.must(client.Close())
	l.must(server.Close())
	return float64(took.Microseconds()) / trips
}

// transfer sends bytes by TCP and gives the throughput in Gbit/s.
func (l *lab) transfer(to string, total int) (gbps float64) {
	l.Helper()
	listener := in(l, "b", func() (net.Listener, error) { return net.Listen("tcp", to+":9") })
	received := make(chan int64, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- 0
			return
		}
		buf := make([]byte, 1<<18)
		var n int64
		for {
			m, err := c.Read(buf)
			n += int64(m)
			if err != nil {
				break
			}
		}
		_ = c.Close()
		received <- n
	}()
	client := in(l, "a", func() (net.Conn, error) { return net.Dial("tcp", to+":9") })
	buf := make([]byte, 1<<18)
	start := time.Now()
	for range total / len(buf) {
		if _, err := client.Write(buf); err != nil {
			l.Fatal(err)
		}
	}
	l.must(client.Close())
	if n := <-received; n != int64(total) {
		l.Fatalf("%d bytes of %d came through", n, total)
	}
	took := time.Since(start)
	l.must(listener.Close())
	return float64(total) * 8 / 1e9 / took.Seconds()
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
