package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The kernel itself is asked which route it takes (ip route get fibmatch), after random changes: the mirror takes the
// same, or leaves the frame to the kernel.
func TestTheKernelDecidesTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t, func(c *Config) { c.Log = nil })
	sock, err := openSocket(l.ns, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.close()
	agreed, left := 0, 0
	for range 40 {
		var script strings.Builder
		for range 5 {
			script.WriteString(randomChange(random) + "\n")
		}
		l.try(script.String())
		for _, a := range []string{
			"10.0.0.7", "10.0.1.1", "172.16.0.1", "172.16.1.1", "172.16.1.129", "172.17.0.1",
			"198.51.100.1",
			"2001:db8:a::1", "2001:db8:a:1::1", "2001:db8:a:1::2", "2001:db8:b::1", "2001:db8:1::9",
		} {
			addr := netip.MustParseAddr(a)
			testkit.Eventually(t, func() error {
				want, err := l.kernelRoute(sock, addr)
				if err != nil {
					return err
				}
				switch have := l.lookup(a); {
				case have.Kind == fib.Other:
					left++
				case have.Same(want):
					agreed++
				default:
					return fmt.Errorf("%s: mirror %s, kernel %s, after\n%s", a, brief(have),
						brief(want), script.String())
				}
				return nil
			}, 3*time.Second, "kernel and mirror to agree")
		}
		l.synced()
	}
	t.Logf("agreed on %d, left to the kernel %d", agreed, left)
	if agreed < 4*left {
		t.Errorf("agreed on %d, left to the kernel %d: too often", agreed, left)
	}
}

func randomChange(r *rand.Rand) string {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	if r.IntN(5) == 0 {
		return one("link set eth%d down", "link set eth%d up", "link set eth%d up",
			"addr add 10.0.%[1]d.1/24 dev eth%[1]d",
			"addr del 10.0.%[1]d.1/24 dev eth%[1]d", "addr replace 10.0.%[1]d.1/24 dev eth%[1]d",
			"-6 addr replace 2001:db8:%[1]d::1/64 dev eth%[1]d nodad",
			"addr add 172.31.0.1/32 dev eth%d", "addr del 172.31.0.1/32 dev eth%d")
	}
	verb := one("add", "add", "replace", "replace", "del", "del", "append")
	metric := one("", "", "metric 5", "metric 2000")
	way := func(inet string) string {
		i, h := r.IntN(3), 2+r.IntN(2)
		if inet == "-6" {
			return fmt.Sprintf("via 2001:db8:%d::%d", i, h)
		}
		return fmt.Sprintf("via 10.0.%d.%d", i, h)
	}
	inet, prefix := "", one("default", "172.16.0.0/12", "172.16.0.0/16", "172.16.1.0/24", "172.16.1.128/25",
		"172.16.1.1/32")
	if r.IntN(2) == 0 {
		inet, prefix = "-6", one("default", "2001:db8:a::/47", "2001:db8:a::/48", "2001:db8:a:1::/64",
			"2001:db8:a:1::1/128")
	}
	if verb == "del" {
		return fmt.Sprintf("%s route del %s %s", inet, prefix, metric)
	}
	switch r.IntN(6) {
	case 0:
		return fmt.Sprintf("%s route %s %s %s nexthop %s nexthop %s", inet, verb, prefix, metric, way(inet),
			way(inet))
	case 1:
		return fmt.Sprintf("%s route %s %s %s %s", inet, verb, one("blackhole", "unreachable", "prohibit"),
			prefix, metric)
	case 2:
		if inet == "" {
			return fmt.Sprintf("route %s %s %s %s src 172.31.0.1", verb, prefix, metric, way(inet))
		}
	}
	return fmt.Sprintf("%s route %s %s %s %s", inet, verb, prefix, metric, way(inet))
}

// try runs lines of `ip`, of which some may fail.
func (l *lab) try(lines string) {
	l.Helper()
	for i := strings.Index(lines, "%"); i >= 0; i = strings.Index(lines, "%") {
		line := strings.SplitN(lines[i:], "\n", 2)[0]
		begin := strings.LastIndex(lines[:i], "\n") + 1
		lines = lines[:begin] + fmt.Sprintf(lines[begin:i]+line, len(lines)%3) + lines[i+len(line):]
	}
	err := netns.In(l.ns, func() error {
		c := exec.Command("ip", "-force", "-batch", "-")
		c.Stdin = strings.NewReader(lines)
		if err := c.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			return err
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
}

// kernelRoute asks the kernel for the route that it takes.
func (l *lab) kernelRoute(sock *socket, addr netip.Addr) (fib.Route, error) {
	const fibMatch = 0x2000
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = unix.AF_INET, byte(addr.BitLen())
	if addr.Is6() {
		body[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(body[8:], fibMatch)
	body = append(body, rtnl.Bytes(unix.RTA_DST, addr.AsSlice())...)
	request := encode(netlinkMessage(unix.RTM_GETROUTE, unix.NLM_F_REQUEST, body))
	var sent error
	err := sock.raw.Control(func(fd uintptr) {
		sent = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	if err = errors.Join(err, sent); err != nil {
		return fib.Route{}, err
	}
	var route fib.Route
	err = sock.receive(func(b []byte, _ bool) error {
		m, _, err := rtnl.NextMessage(b)
		if err != nil {
			return err
		}
		if m.Kind == unix.NLMSG_ERROR {
			if no := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))); no != unix.ENETUNREACH {
				route.Kind = fib.Reject
			}
			return nil
		}
		var p routeParser
		_, n, ok, err := p.parse(m)
		if err != nil || !ok {
			return fmt.Errorf("%w, understood: %v", err, ok)
		}
		route = newRIB(newMemory(), l.legs).answer(n.hops).Route
		return nil
	}, true)
	return route, err
}
