package eligible

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// BenchmarkPoll is what a namespace costs at every Interval.
func BenchmarkPoll(b *testing.B) {
	for _, sockets := range []int{0, 20} {
		b.Run(fmt.Sprintf("%d packet sockets", sockets), func(b *testing.B) {
			n := benchNode(b, sockets)
			buf := newPollBuffer()
			n.poll(buf, [2]bool{}, false)
			b.ReportAllocs()
			for b.Loop() {
				n.poll(buf, [2]bool{}, false)
			}
		})
	}
}

// BenchmarkPollAll is what 500 namespaces cost at every Interval; their audits come on top.
func BenchmarkPollAll(b *testing.B) {
	w := &Watcher{config: Config{Interval: time.Second, Audit: 1000 * time.Hour}}
	for range 500 {
		w.nodes = append(w.nodes, benchNode(b, 2))
	}
	buf := newPollBuffer()
	w.poll(buf)
	b.ReportAllocs()
	for b.Loop() {
		w.poll(buf)
	}
}

// BenchmarkExamine is a look at everything.
func BenchmarkExamine(b *testing.B) {
	n := benchNode(b, 20)
	n.poll(newPollBuffer(), [2]bool{}, false)
	b.ReportAllocs()
	for b.Loop() {
		n.examine(everything)
	}
}

// benchNode is a namespace with packet sockets like those of isisd.
func benchNode(b *testing.B, sockets int) *node {
	b.Helper()
	testkit.Root(b)
	n, err := newNode(newNamespace(b), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.close)
	program := make([]unix.SockFilter, len(isisd))
	for i, in := range isisd {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	err = netns.In(n.ns, func() error {
		for range sockets {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0300) // ETH_P_ALL
			if err != nil {
				return err
			}
			b.Cleanup(func() { _ = unix.Close(fd) })
			filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
			if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&filter); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	n.examine(n.take(nil))
	return n
}
