package outside

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

// datagrams sends one datagram each from so many ports of a sliver, and gives how many of them the host outside gets.
func (w *world) datagrams(pid, first, count int) int {
	w.Helper()
	seen := w.run(w.away, "timeout", "20", "python3", "-c", fmt.Sprintf(`
import socket, subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("", 5000))
subprocess.run(["nsenter", "--net", "--target", "%d", "python3", "-c", '''
import socket
for port in range(%d, %d):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("198.19.0.%d", port))
    s.sendto(b"x", ("192.0.2.2", 5000))
'''], check=True)
s.setblocking(False)
n = 0
try:
    while s.recvfrom(9): n += 1
except BlockingIOError: pass
print(n)
`, pid, first, first+count, 1))
	var n int
	_, err := fmt.Sscan(seen, &n)
	w.check(err)
	return n
}

func TestASliverHasABoundedShareOfTheMachinesConnections(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.g.tracked = func() int { return 2 * 2 * 2 * leastConnections } // for two slivers
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		w.expect("connections that it gets", w.datagrams(a, 8000, 200), leastConnections)
		refused := func() uint64 {
			all, err := w.g.Counts(context.Background())
			w.check(err)
			w.expect("what the other is refused", all["2/b"], Counts{})
			return all["1/a"].Refused
		}
		w.expect("refused", refused(), uint64(200-leastConnections))
		w.expect("the other sliver pings", w.ping(b, "192.0.2.2"), true)

		// The count outlives the rules, and the agent.
		w.check(w.set(a, Node{Owner: "1/a", NAT: true, Ports: []slice.HostPort{web}}))
		tracked := w.g.tracked
		w.g = New(w.dir, nil, nil)
		w.g.tracked = tracked
		_, err := w.g.Nodes(context.Background())
		w.check(err)
		w.expect("connections that it gets then", w.datagrams(a, 9000, 100), 0)
		w.expect("a ping of the machine, which is a connection, too", w.ping(a, "192.0.2.1"), false)
		if n := refused(); n < 200-leastConnections+101 {
			w.Errorf("refused %d", n)
		}

		// The next sliver with the device's name has a new count.
		w.check(w.g.Delete(context.Background(), "1/a"))
		c := w.process()
		w.check(w.set(c, Node{Owner: "3/c", NAT: true}))
		w.expect("connections of the next one", w.datagrams(c, 8000, leastConnections), leastConnections)
		all, err := w.g.Counts(context.Background())
		w.check(err)
		w.expect("what the next one was refused", all["3/c"], Counts{})
	})
}

func TestAStreamWithoutAnswersIsOneConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.run(a, "python3", "-c", fmt.Sprintf(`
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(%d): s.sendto(b"x", ("192.0.2.2", 5000))
`, 4*newConnectionsBurst))
		all, err := w.g.Counts(context.Background())
		w.check(err)
		w.expect("what was refused", all["1/a"].Refused, uint64(0))
	})
}

func TestWhatComesToAPortIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.g.tracked = func() int { return 2 * 2 * leastConnections }
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{{Protocol: slice.UDP, Port: 5300}}}))
		w.run(w.away, "python3", "-c", `
import socket
for port in range(8000, 8100):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", port))
    s.sendto(b"x", ("192.0.2.1", 5300))
`)
		all, err := w.g.Counts(context.Background())
		w.check(err)
		w.expect("what was refused", all["1/a"].Refused, uint64(100-leastConnections))
	})
}

func TestConnectionsAreDividedAmongSlivers(t *testing.T) {
	for _, tt := range []struct {
		tracked, slivers int
		want             uint32
	}{
		{65536, 0, 2048}, {65536, 1, 2048}, {65536, 15, 1024}, {65536, 100, 128}, {262144, 100, 512},
		{65536, 10000, leastConnections}, {0, 1, leastConnections},
	} {
		if got := connectionsEach(tt.tracked, tt.slivers); got != tt.want {
			t.Errorf("%d of %d: %d, want %d", tt.slivers, tt.tracked, got, tt.want)
		}
	}
}

// rate measures how many bytes a second pass by TCP in one direction, as one side sends for a second and a half.
func (w *world) rate(from, to int, at string) float64 {
	w.Helper()
	sender := []string{"python3", "-c", `
import socket, sys, time
s = socket.create_connection((sys.argv[1], 5201))
end = time.monotonic() + 2
while time.monotonic() < end: s.send(b"x" * 65536)
`, at}
	if from != 0 {
		sender = append([]string{"nsenter", "--net", "--target", fmt.Sprint(from)}, sender...)
	}
	asJSON, err := json.Marshal(sender)
	w.check(err)
	out := w.run(to, "timeout", "20", "python3", "-c", `
import json, socket, subprocess, sys, time
l = socket.create_server(("", 5201))
p = subprocess.Popen(json.loads(sys.argv[1]))
c, _ = l.accept()
begin, n = time.monotonic(), 0
while (got := len(c.recv(1 << 16))): n += got
print(n / (time.monotonic() - begin))
p.wait()
`, string(asJSON))
	var bytes float64
	_, err = fmt.Sscan(out, &bytes)
	w.check(err)
	return bytes
}

func TestTheOutsideHasARateInBothDirections(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		const rate = 16_000_000 // bits a second: 2 MB
		n := Node{Owner: "1/a", NAT: true, Rate: rate}
		n.Ports = []slice.HostPort{{Protocol: slice.TCP, Port: 5201}}
		w.check(w.set(a, n))
		check := func(what string, bytes float64) {
			if bytes < 0.5*rate/8 || bytes > 1.25*rate/8 {
				w.Errorf("%s: %.0f bytes a second pass, of %d", what, bytes, rate/8)
			}
		}
		check("from the sliver", w.rate(a, w.away, "192.0.2.2"))
		check("to the sliver", w.rate(w.away, a, "192.0.2.1"))

		// What the sliver does to its own end does not help it. The kernel's limit lets a second's bytes pass
		// at once.
		w.run(a, "tc", "qdisc", "del", "dev", Inner, "root")
		if bytes := w.rate(a, w.away, "192.0.2.2"); bytes > 2*rate/8 {
			w.Errorf("without its own shaping, %.0f bytes a second pass, of %d", bytes, rate/8)
		}
		all, err := w.g.Counts(context.Background())
		w.check(err)
		if all["1/a"].Dropped == 0 {
			w.Error("nothing is counted as beyond the rate")
		}

		n.Rate = 0
		w.check(w.set(a, n))
		if bytes := w.rate(a, w.away, "192.0.2.2"); bytes < 4*rate/8 {
			w.Errorf("without a rate, %.0f bytes a second pass", bytes)
		}
	})
}
