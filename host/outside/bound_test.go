package outside

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/claims"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/slice"
)

// binding makes the world's gateway one that pins, and sends on told when a port is bound.
func (w *world) binding() (told chan bool) {
	w.Helper()
	bpf := filepath.Join(w.dir, "bpf")
	w.check(os.Mkdir(bpf, 0o700))
	w.check(unix.Mount("bpf", bpf, "bpf", 0, ""))
	told = make(chan bool, 1)
	w.g = New(w.dir, func() {
		select {
		case told <- true:
		default:
		}
	}, nil)
	w.Cleanup(func() { w.check(unix.Unmount(bpf, 0)) })
	return told
}

// bound gives what slivers have bound.
func (w *world) bound(pids map[string]int) string {
	w.Helper()
	all, err := w.g.Bound(context.Background(), pids)
	w.check(err)
	return fmt.Sprint(all)
}

func TestAPortThatAProcessBindsLeadsToTheSliver(t *testing.T) {
	inWorld(t, func(w *world) {
		told := w.binding()
		a, b := w.process(), w.process()
		pids := map[string]int{"1/a": a, "1/b": b}
		nodes := map[int]Node{
			a: {Owner: "1/a", Bind: slice.Ports{First: 8000, Last: 8099}},
			b: {Owner: "1/b", NAT: true, Bind: slice.Ports{First: 8080, Last: 9999}},
		}
		w.serve(0, "9000", "of the machine")
		w.serve(b, "8081", "before it could reserve ports")
		for pid, n := range nodes {
			w.check(w.set(pid, n))
		}
		w.expect("bound at first", w.bound(pids), "map[1/a:[] 1/b:[tcp/8081]]")

		w.serve(a, "8080", "of a")
		w.serve(a, "8100", "out of range")
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			w.Fatal("nothing is told")
		}
		w.expect("bound", w.bound(pids), "map[1/a:[tcp/8080] 1/b:[tcp/8081]]")
		w.expect("not reserved yet", w.fetch(w.away, "192.0.2.1:8080"), "")
		n := nodes[a]
		n.Ports = []slice.HostPort{web}
		w.check(w.set(a, n))
		w.expect("from outside", w.fetch(w.away, "192.0.2.1:8080"), "of a")
		w.expect("from outside, out of range", w.fetch(w.away, "192.0.2.1:8100"), "")

		for port, whose := range map[string]string{"8080": "another sliver's", "9000": "of the machine"} {
			out, err := w.try(b, "python3", "-m", "http.server", port)
			if err == nil || !strings.Contains(out, "Address already in use") {
				w.Errorf("port %s, %s: %v: %s", port, whose, err, out)
			}
		}

		// The next agent has the same claims.
		w.check(w.g.Close())
		out, err := w.try(b, "python3", "-m", "http.server", "8080")
		if err == nil || !strings.Contains(out, "Address already in use") {
			w.Errorf("without an agent: %v: %s", err, out)
		}
		w.g = New(w.dir, nil, nil)
		w.expect("bound, by the next agent", w.bound(pids), "map[1/a:[tcp/8080] 1/b:[tcp/8081]]")

		// What cannot be reserved is free for others.
		w.check(w.g.Unclaim("1/b", web))
		w.expect("of another sliver", w.bound(pids), "map[1/a:[tcp/8080] 1/b:[tcp/8081]]")

		// A sliver that is disconnected leaves nothing.
		w.check(w.g.Delete(context.Background(), "1/a"))
		w.expect("bound at last", w.bound(pids), "map[1/b:[tcp/8081]]")
		w.serve(b, "8080", "of b")
		w.expect("by another sliver", w.bound(pids), "map[1/b:[tcp/8080 tcp/8081]]")
		w.check(w.g.Close())
		w.check(Remove(w.dir))
		w.expect("pins are there", claims.Present(w.g.pins), false)
	})
}

func TestClaimsFollowSocketsAndReservations(t *testing.T) {
	tcp := func(n uint16) claims.Port { return claims.Port{Protocol: unix.IPPROTO_TCP, Number: n} }
	const a, b, gone claims.NetNS = 10, 20, 30
	inner := device{index: 1}.inner()
	any, far := netip.IPv4Unspecified(), netip.MustParseAddr("10.0.0.1")
	bind := slice.Ports{First: 8000, Last: 8999}
	ports := func(n ...uint16) (all []slice.HostPort) {
		for _, p := range n {
			all = append(all, slice.HostPort{Protocol: slice.TCP, Port: p})
		}
		return all
	}
	there := []device{
		{index: 1, node: Node{Owner: "1/a", Bind: bind, Ports: ports(8001, 8002)}},
		{index: 2, node: Node{Owner: "1/b", Bind: bind}},
		{index: 3, node: Node{Owner: "1/c", Ports: ports(8003)}},
	}
	binders := []binder{
		{device: there[0], netns: a, sockets: []socket{
			{tcp(8001), any, true},    // reserved
			{tcp(8010), inner, true},  // claimed
			{tcp(8011), far, true},    // of another interface
			{tcp(8012), any, false},   // the kernel chose the port
			{tcp(8003), any, true},    // reserved for c
			{tcp(7000), any, true},    // out of range
			{tcp(8013), inner, false}, // claimed, and a port that the kernel may choose
		}},
		{device: there[1], netns: b},
	}
	own := []socket{{tcp(8090), any, true}, {tcp(8091), any, false},
		{claims.Port{Protocol: unix.IPPROTO_UDP, Number: 8092}, any, false}}
	const old = time.Hour
	has := map[claims.Port]claims.Claim{
		tcp(8001): {NetNS: a, Age: old},
		tcp(8002): {NetNS: a, Age: old}, // its socket is gone, and the reservation not yet
		tcp(8003): {NetNS: a, Age: 0},
		tcp(8010): {NetNS: a, Age: old},
		tcp(8013): {NetNS: a, Age: old},
		tcp(8020): {NetNS: b, Age: 0},
		tcp(8021): {NetNS: b, Age: old},
		tcp(8022): {NetNS: gone, Age: 0},
		tcp(8023): {NetNS: claims.Nobody, Age: old},
		tcp(8090): {NetNS: claims.Nobody, Age: old},
	}
	for i := range binders {
		binders[i].ports = binders[i].bound(has)
	}
	give, release := settle(has, reserved(there, binders, own), binders)
	wantGive := map[claims.Port]claims.NetNS{
		tcp(8003): claims.Nobody, tcp(8091): claims.Nobody,
		{Protocol: unix.IPPROTO_UDP, Number: constants.VXLANPort}: claims.Nobody,
	}
	if diff := cmp.Diff(wantGive, give); diff != "" {
		t.Errorf("given: %s", diff)
	}
	released := map[claims.Port]bool{}
	for _, p := range release {
		released[p] = true
	}
	wantReleased := map[claims.Port]bool{tcp(8021): true, tcp(8022): true, tcp(8023): true}
	if diff := cmp.Diff(wantReleased, released); diff != "" {
		t.Errorf("released: %s", diff)
	}
	for i, want := range []string{"[tcp/8001 tcp/8003 tcp/8010 tcp/8013]", "[tcp/8020]"} {
		if got := fmt.Sprint(binders[i].ports); got != want {
			t.Errorf("%s has bound %s, want %s", there[i].node.Owner, got, want)
		}
	}
}

// The number of a sliver's first process that ended may be that of any process by now.
func TestAProcessOfTheMachineIsNoSliver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.binding()
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", Bind: slice.Ports{First: 8000, Last: 8099}}))
		c := exec.Command("sleep", "infinity")
		w.check(c.Start())
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
		w.serve(0, "8000", "of the machine")
		w.expect("bound", w.bound(map[string]int{"1/a": c.Process.Pid}), "map[]")
		w.serve(0, "8001", "of the machine, later")
		port := claims.Port{Protocol: unix.IPPROTO_TCP, Number: 8001}
		if whose, claimed, err := w.g.claims.Of(port); claimed || err != nil {
			w.Errorf("port 8001 is claimed by %d: %v", whose, err)
		}
		w.check(Remove(w.dir))
	})
}

// A sliver that binds all ports of its range keeps few of them from others: those that are reserved for it, and some.
func TestASliverKeepsFewPortsFromOthers(t *testing.T) {
	tcp := func(n uint16) claims.Port { return claims.Port{Protocol: unix.IPPROTO_TCP, Number: n} }
	const a claims.NetNS = 10
	last := slice.HostPort{Protocol: slice.TCP, Port: 8999}
	b := binder{netns: a, device: device{index: 1, node: Node{
		Owner: "1/a", Bind: slice.Ports{First: 8000, Last: 8999}, Ports: []slice.HostPort{last},
	}}}
	has := map[claims.Port]claims.Claim{tcp(7999): {NetNS: a}} // of a range that it had before
	for n := uint16(8000); n < 9000; n++ {
		has[tcp(n)] = claims.Claim{NetNS: a}
		b.sockets = append(b.sockets, socket{tcp(n), netip.IPv4Unspecified(), true})
	}
	b.ports = b.bound(has)
	if len(b.ports) != mostBound || !slices.Contains(b.ports, last) {
		t.Errorf("it has bound %v, want %d ports and %v among them", b.ports, mostBound, last)
	}
	_, release := settle(has, reserved([]device{b.device}, []binder{b}, nil), []binder{b})
	if len(release) != len(has)-mostBound || !slices.Contains(release, tcp(7999)) {
		t.Errorf("%d of %d claims are released", len(release), len(has))
	}
	if more := b.claimer().More; more != 0 {
		t.Errorf("it may claim %d ports more", more)
	}
}

func TestSocketsAreReadAsTheKernelListsThem(t *testing.T) {
	const heading = "  sl  local_address rem_address   st tx_queue rx_queue\n"
	for _, tt := range []struct {
		name, text string
		protocol   uint16
		want       string
	}{
		{"TCP that listens comes first", heading +
			"   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000\n" +
			"   1: 00000000:1F90 00000000:0000 0A 00000000:00000000\n" +
			"   2: 0100007F:1F91 0100007F:A000 01 00000000:00000000\n" +
			"   3: 00000000:1F92 00000000:0000 0A 00000000:00000000\n", unix.IPPROTO_TCP,
			"[127.0.0.1:3306 true 0.0.0.0:8080 true]"},
		{"UDP", heading +
			"  1: 020113C6:14E9 00000000:0000 07 00000000:00000000\n" +
			"  2: 0101A8C0:D000 08080808:0035 01 00000000:00000000\n", unix.IPPROTO_UDP,
			"[198.19.1.2:5353 true 192.168.1.1:53248 false]"},
		{"IPv6", heading +
			"  0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0\n" +
			"  1: 0000000000000000FFFF00000100007F:1F91 00000000000000000000000000000000:0000 0A 0:0\n" +
			"  2: B80D0120000000000000000001000000:1F92 00000000000000000000000000000000:0000 0A 0:0\n",
			unix.IPPROTO_TCP, "[[::]:8080 true 127.0.0.1:8081 true [2001:db8::1]:8082 true]"},
		{"nothing", heading, unix.IPPROTO_TCP, "[]"},
	} {
		all, err := parseSockets(strings.NewReader(tt.text), tt.protocol)
		var got []string
		for _, s := range all {
			got = append(got, fmt.Sprint(netip.AddrPortFrom(s.address, s.port.Number), s.chosen))
		}
		if err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	many := heading + strings.Repeat("  1: 00000000:14E9 00000000:0000 07 00000000:00000000\n", mostSockets+1)
	if all, err := parseSockets(strings.NewReader(many), unix.IPPROTO_UDP); len(all) != mostSockets || err != nil {
		t.Errorf("of many, %d are read: %v", len(all), err)
	}
	for _, line := range []string{"0: 1 2", "0: 00:1F90 0 0A", "0: 00000000 0 0A", "0: 0000000G:1F90 0 0A",
		"0: 0000000000000000:1F90 0 0A"} {
		if all, err := parseSockets(strings.NewReader(heading+line+"\n"), unix.IPPROTO_TCP); err == nil {
			t.Errorf("%q: %v", line, all)
		}
	}
}

func TestThisKernelTellsOfBinds(t *testing.T) {
	testkit.Root(t)
	if err := HaveBind(); err != nil {
		t.Error(err)
	}
}
