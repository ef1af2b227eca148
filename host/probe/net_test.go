package probe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// line is r1 - r2 - r3 - r4 whose kernels have the routes that a routing protocol would have given them.
func line(t *testing.T) *daemons.Lab {
	t.Helper()
	testkit.Root(t)
	s := grid(4, 1, slice.OSPF)
	for i := range s.Nodes {
		s.Nodes[i].Name = strings.Replace(s.Nodes[i].Name, "r00", "r", 1)
	}
	for i := range s.Links {
		for j := range s.Links[i].Ends {
			s.Links[i].Ends[j].Node = strings.Replace(s.Links[i].Ends[j].Node, "r00", "r", 1)
		}
	}
	for name, table := range converge(s, all) {
		n := s.Node(name)
		for _, r := range table.Routes {
			if n.Interfaces[0].Addresses[0].Masked() == r.To ||
				n.Interfaces[0].Addresses[1].Masked() == r.To ||
				len(r.Hops) == 0 {
				continue
			}
			if last := n.Interfaces[len(n.Interfaces)-1]; last.Addresses[0].Masked() == r.To ||
				last.Addresses[1].Masked() == r.To {
				continue
			}
			n.Routes = append(n.Routes, slice.Route{To: r.To, Via: r.Hops[0].Via})
		}
	}
	testkit.LeakCheck(t)
	l := daemons.New(t, s)
	look(t, l)
	reach(t, l, "r1", "r4")
	return l
}

// reach waits until frames pass in both families: the tables show an interface before the kernel has noticed that its
// far end is up, and what it sends until then is lost; the next question for a neighbour follows a second later, at
// each hop.
func reach(t *testing.T, l *daemons.Lab, from, to string) {
	t.Helper()
	var targets []netip.Addr
	for _, isIPv6 := range []bool{false, true} {
		if a, ok := l.Slice.Node(to).Address(isIPv6); ok {
			targets = append(targets, a)
		}
	}
	testkit.Eventually(t, func() error {
		results, err := probe.Ping(t.Context(), l.PID(from), targets, probe.PingOptions{})
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	}, 20*time.Second, "the first answers")
}

// look gives the tables once everything works: the kernel is slow to notice that a far end came up.
func look(t *testing.T, l *daemons.Lab) (tables map[string]probe.Table) {
	t.Helper()
	testkit.Eventually(t, func() (err error) {
		pids, _ := l.PIDs(t.Context())
		if tables, err = probe.AllTables(t.Context(), pids); err != nil {
			return err
		}
		if v := probe.Converged(l.Slice, tables, nil); !v.Converged || v.Routers != 4 {
			return fmt.Errorf("got %+v", v)
		}
		return nil
	}, 10*time.Second, "all routes to be seen")
	return tables
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestTablesShowWhatTheKernelKnows(t *testing.T) {
	l := line(t)
	tables := look(t, l)
	if out, err := l.Exec("r2", "ip", "route", "add", "192.0.2.0/24", "metric", "7",
		"nexthop", "via", "10.1.1.0", "nexthop", "via", "10.1.2.1"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := l.Exec("r2", "ip", "route", "add", "blackhole", "198.51.100.0/24"); err != nil {
		t.Fatal(out, err)
	}
	table, err := probe.Tables(t.Context(), l.PID("r2"))
	if err != nil {
		t.Fatal(err)
	}
	find := func(p string) probe.Route {
		for _, r := range table.Routes {
			if r.To == netip.MustParsePrefix(p) {
				return r
			}
		}
		t.Errorf("no route %s in %+v", p, table.Routes)
		return probe.Route{}
	}
	r := find("192.0.2.0/24")
	hops := []probe.Hop{{Via: addr("10.1.1.0"), Interface: "eth1"}, {Via: addr("10.1.2.1"), Interface: "eth2"}}
	if !slices.Equal(r.Hops, hops) || r.Metric != 7 || r.Protocol != "boot" {
		t.Errorf("multipath: got %+v", r)
	}
	if r := find("198.51.100.0/24"); r.Type != probe.Blackhole {
		t.Errorf("blackhole: got %+v", r)
	}
	if table.Equal(tables["r2"]) || !tables["r1"].Equal(tables["r1"]) {
		t.Error("Equal does not tell a changed table")
	}
	if lo := table.Interface("lo"); !slices.Contains(lo.Addresses, netip.MustParsePrefix("2001:db8::2/128")) {
		t.Errorf("lo: got %+v", lo)
	}
	l.SetLink("l1", false)
	testkit.Eventually(t, func() error {
		table, err := probe.Tables(t.Context(), l.PID("r2"))
		if err != nil || !table.Interface("eth1").Up {
			return err
		}
		return errors.New("eth1 is up")
	}, 5*time.Second, "r2 to lose its carrier")
}

func TestTablesOfADeadNodeSaySo(t *testing.T) {
	testkit.Root(t)
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := probe.Tables(t.Context(), cmd.Process.Pid); !errors.Is(err, netns.ErrGone) {
		t.Errorf("got %v", err)
	}
	tables, err := probe.AllTables(t.Context(), map[string]int{"gone": cmd.Process.Pid})
	if err != nil || len(tables) != 0 {
		t.Errorf("got %v, %v", tables, err)
	}
}

func TestPingHearsWhoAnswersAndSaysWhyOthersDoNot(t *testing.T) {
	l := line(t)
	targets := []netip.Addr{
		addr("10.0.0.4"), addr("2001:db8::4"), addr("10.0.0.1"), addr("203.0.113.9"), addr("2001:db8:ffff::9"),
	}
	results, err := probe.Ping(t.Context(), l.PID("r1"), targets, probe.PingOptions{
		Timeout: 600 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Target != targets[i] {
			t.Errorf("result %d is of %s", i, r.Target)
		}
		if i < 3 && (r.Err != nil || r.Received != 1 || r.RTT <= 0) {
			t.Errorf("%s: got %+v", r.Target, r)
		}
		if i >= 3 && (r.Err == nil || !strings.Contains(r.Err.Error(), "unreachable")) {
			t.Errorf("%s: got %+v, want unreachable", r.Target, r)
		}
	}
	// r1 sends it on; r2 refuses.
	if out, err := l.Exec("r2", "ip", "route", "add", "unreachable", "192.0.2.0/24"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := l.Exec("r1", "ip", "route", "add", "192.0.2.0/24", "via", "10.1.1.1"); err != nil {
		t.Fatal(out, err)
	}
	results, err = probe.Ping(t.Context(), l.PID("r1"), []netip.Addr{addr("192.0.2.1")}, probe.PingOptions{
		Timeout: 400 * time.Millisecond,
	})
	if err != nil || !strings.Contains(results[0].Err.Error(), "10.1.1.1 says: host unreachable") {
		t.Errorf("got %+v, %v", results, err)
	}
}

func TestPingGivesUpWhatItsKernelDoesNotSend(t *testing.T) {
	l := line(t)
	targets := []netip.Addr{addr("203.0.113.9"), addr("2001:db8:ffff::9")}
	results, err := probe.Ping(t.Context(), l.PID("r1"), targets,
		probe.PingOptions{Timeout: time.Hour, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err == nil || r.Err.Error() != "cannot send: network is unreachable" {
			t.Errorf("%s: got %+v, want that it cannot be sent to", r.Target, r)
		}
	}
}

func TestPingSurvivesLossAndCountsIt(t *testing.T) {
	l := line(t)
	for _, rule := range []string{"add table ip t", "add chain ip t c { type filter hook prerouting priority 0; }",
		"add rule ip t c icmp type echo-request numgen inc mod 2 0 drop"} {
		if out, err := l.Exec("r2", "nft", rule); err != nil {
			t.Fatal(out, err)
		}
	}
	opt := probe.PingOptions{Interval: 20 * time.Millisecond}
	results, err := probe.Ping(t.Context(), l.PID("r1"), []netip.Addr{addr("10.0.0.4")}, opt)
	if err != nil || results[0].Err != nil || results[0].Sent < 2 {
		t.Errorf("every second request is lost: got %+v, %v", results, err)
	}
	opt.Count = 5
	results, err = probe.Ping(t.Context(), l.PID("r1"), []netip.Addr{addr("10.0.0.4")}, opt)
	if err != nil || results[0].Received != 5 || results[0].Sent < 9 {
		t.Errorf("five replies: got %+v, %v", results, err)
	}
}

func TestPathNamesEveryHop(t *testing.T) {
	l := line(t)
	hops, err := probe.Path(t.Context(), l.PID("r1"), addr("10.0.0.4"), probe.PathOptions{})
	if want := []netip.Addr{addr("10.1.1.1"), addr("10.1.2.1"), addr("10.0.0.4")}; err != nil ||
		!slices.Equal(hops, want) {
		t.Errorf("got %v, %v", hops, err)
	}
	hops, err = probe.Path(t.Context(), l.PID("r1"), addr("2001:db8::4"), probe.PathOptions{
		Source: addr("2001:db8::1"),
	})
	if err != nil || len(hops) != 3 || hops[2] != addr("2001:db8::4") {
		t.Errorf("got %v, %v", hops, err)
	}
	const block = "ip route del 10.0.0.4/32 && ip route add unreachable 10.0.0.4/32"
	if out, err := l.Exec("r2", "sh", "-c", block); err != nil {
		t.Fatal(out, err)
	}
	hops, err = probe.Path(t.Context(), l.PID("r1"), addr("10.0.0.4"), probe.PathOptions{Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "host unreachable") || len(hops) != 1 {
		t.Errorf("r2 refuses: got %v, %v", hops, err)
	}
}

// capture starts a capture, lets do make traffic and gives the packets.
func capture(t *testing.T, pid int, iface string, opt probe.CaptureOptions, do func()) ([]gopacket.Packet, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	started := make(chan struct{})
	opt.Started = func() { close(started) }
	var file bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- probe.Capture(ctx, pid, iface, opt, &file) }()
	select {
	case <-started:
	case err := <-done:
		return nil, err
	}
	do()
	if err := <-done; err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		t.Fatal("capture did not end by itself")
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var packets []gopacket.Packet
	for p := range gopacket.NewPacketSource(r, r.LinkType()).Packets() {
		packets = append(packets, p)
	}
	return packets, nil
}

func TestCaptureTakesWhatPasses(t *testing.T) {
	l := line(t)
	filter, err := probe.CompileFilter(t.Context(), "icmp")
	if err != nil {
		t.Fatal(err)
	}
	ping := func() {
		_, _ = probe.Ping(t.Context(), l.PID("r1"), []netip.Addr{addr("10.0.0.4")}, probe.PingOptions{
			Count: 2, Interval: 10 * time.Millisecond,
		})
	}
	begin := time.Now()
	packets, err := capture(t, l.PID("r2"), "eth2", probe.CaptureOptions{Count: 4, Filter: filter}, ping)
	if err != nil || len(packets) != 4 {
		t.Fatalf("got %d packets, %v", len(packets), err)
	}
	for i, p := range packets {
		if p.Layer(layers.LayerTypeICMPv4) == nil {
			t.Errorf("packet %d is no ICMP: %v", i, p)
		}
		if at := p.Metadata().Timestamp; at.Before(begin) || at.After(time.Now()) ||
			at.Nanosecond()%1000 == 0 && i == 3 {
			t.Errorf("packet %d: stamped %v", i, at)
		}
	}
	packets, err = capture(t, l.PID("r2"), probe.AnyInterface,
		probe.CaptureOptions{Count: 8, Filter: filter, Snaplen: 20},
		ping)
	if err != nil || len(packets) != 8 {
		t.Fatalf("any: got %d packets, %v", len(packets), err)
	}
	seen := map[int]bool{}
	for _, p := range packets {
		seen[p.Metadata().InterfaceIndex] = true
		if len(p.Data()) != 20 || p.Metadata().Length < 40 {
			t.Errorf("snaplen: got %d of %d bytes", len(p.Data()), p.Metadata().Length)
		}
	}
	if len(seen) != 2 {
		t.Errorf("any: saw interfaces %v, want two", seen)
	}
}

func TestCaptureEndsWithItsInterfaceAndItsNode(t *testing.T) {
	l := line(t)
	_, err := capture(t, l.PID("r1"), "eth1", probe.CaptureOptions{}, func() {
		const remove = "ip link set eth1 down && ip link set eth1 up && ip link del eth1"
		if out, err := l.Exec("r1", "sh", "-c", remove); err != nil {
			t.Error(out, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	cmd := exec.Command("unshare", "-n", "sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() error {
		table, err := probe.Tables(t.Context(), cmd.Process.Pid)
		if err == nil && len(table.Interfaces) != 1 {
			err = errors.New("still in the namespace of the test")
		}
		return err
	}, 5*time.Second, "a namespace")
	_, err = capture(t, cmd.Process.Pid, "lo", probe.CaptureOptions{}, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCaptureSaysWhichInterfacesThereAre(t *testing.T) {
	l := line(t)
	err := probe.Capture(t.Context(), l.PID("r2"), "eht1", probe.CaptureOptions{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "there are eth1, eth2, lo; did you mean eth1?") {
		t.Errorf("got %v", err)
	}
	if _, err := probe.CompileFilter(t.Context(), "icmp or or"); err == nil ||
		!strings.Contains(err.Error(), "syntax error") {
		t.Errorf("filter: got %v", err)
	}
}

func TestChecksAreTriedAndWorded(t *testing.T) {
	l := line(t)
	c := probe.Checker{
		Slice: l.Slice,
		PID:   func(n string) (int, bool) { return l.PID(n), n != "r3" },
		Exec: func(_ context.Context, node, command string) (int, []byte, error) {
			out, err := l.Exec(node, "sh", "-c", command)
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return exit.ExitCode(), []byte(out), nil
			}
			return 0, []byte(out), err
		},
	}
	calls := 0
	c.Progress = func(int, int) { calls++ }
	short := 300 * time.Millisecond
	checks := []struct {
		check slice.Check
		ok    bool
		says  string
	}{
		{slice.Check{Kind: slice.CheckPing, From: "r1", To: "r4"}, true, ""},
		{slice.Check{Kind: slice.CheckPing, From: "r1", To: "10.0.0.99", Timeout: short}, false, "0 of 1 replies"},
		{slice.Check{Kind: slice.CheckPing, From: "r1", To: "10.0.0.99", Timeout: short, Fails: true}, true, "as wanted"},
		{slice.Check{Kind: slice.CheckPing, From: "r1", To: "r4", Fails: true}, false, "was to fail"},
		{slice.Check{Kind: slice.CheckPing, From: "r3", To: "r1", Fails: true}, false, "r3 does not run"},
		{slice.Check{Kind: slice.CheckPing, From: "r1", To: "nobody"}, false, "no node nobody"},
		{slice.Check{Kind: slice.CheckPath, From: "r1", To: "r4", Via: []string{"r2", "r3"}}, true, ""},
		{
			slice.Check{Kind: slice.CheckPath, From: "r1", To: "r4", Via: []string{"r3", "r2"}}, false,
			"passed r2, r3, r4, not r2",
		},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "echo hello", Output: "^hel+o"}, true, ""},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "echo 3", Output: "^3$"}, true, ""},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "echo hello", Output: "bye"}, false, "hello"},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "exit 3", Status: 3}, true, ""},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "exit 3"}, false, "status 3, not 0"},
		{slice.Check{Kind: slice.CheckExec, From: "r1", Command: "echo why; exit 3"}, false, "status 3, not 0: why"},
	}
	var list []slice.Check
	for _, c := range checks {
		list = append(list, c.check)
	}
	results, err := c.Run(t.Context(), list)
	if err != nil || calls != len(list) {
		t.Fatal(calls, err)
	}
	for i, want := range checks {
		if r := results[i]; r.OK != want.ok || !strings.Contains(r.Message, want.says) ||
			strings.HasSuffix(r.Message, ": ") {
			t.Errorf("%+v: got ok=%v %q", want.check, r.OK, r.Message)
		}
	}
}

func TestAllPairsFindsWhoIsCutOff(t *testing.T) {
	l := line(t)
	c := probe.Checker{Slice: l.Slice, PID: func(n string) (int, bool) { return l.PID(n), true }}
	results, err := c.AllPairs(t.Context())
	if err != nil || len(results) != 2*4*3 {
		t.Fatal(len(results), err)
	}
	for _, r := range results {
		if !r.OK {
			t.Errorf("%s by %s: %s", r.Name, r.Address, r.Message)
		}
	}
	l.SetLink("l3", false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results, _ = c.AllPairs(ctx)
	for _, r := range results {
		if cut := r.From == "r4" || r.To == "r4"; r.OK == cut {
			t.Errorf("%s by %s: ok=%v %s", r.Name, r.Address, r.OK, r.Message)
		}
	}
	fmt.Fprintln(t.Output(), results[len(results)-1].Message)
}

// undeclared is a slice of which nodes have no addresses.
func undeclared(s *slice.Slice, nodes ...string) *slice.Slice {
	other := *s
	other.Nodes = slices.Clone(s.Nodes)
	for i := range other.Nodes {
		n := &other.Nodes[i]
		if !slices.Contains(nodes, n.Name) {
			continue
		}
		n.Loopbacks, n.Interfaces = nil, slices.Clone(n.Interfaces)
		for j := range n.Interfaces {
			n.Interfaces[j].Addresses = nil
		}
	}
	return &other
}

func TestChecksTakeAddressesThatTheSliceDoesNotKnowFromKernels(t *testing.T) {
	l := line(t)
	if out, err := l.Exec("r4", "ip", "address", "add", "127.0.0.2/8", "dev", "lo"); err != nil {
		t.Fatal(out, err)
	}
	s := undeclared(l.Slice, "r1", "r4")
	pids, _ := l.PIDs(t.Context())
	known, err := probe.Addresses(t.Context(), s, pids)
	if err != nil || len(known) != 2 {
		t.Fatal(known, err)
	}
	own := l.Slice.Node("r4")
	var want []netip.Addr
	for _, p := range slices.Concat(own.Loopbacks, own.Interfaces[0].Addresses) {
		want = append(want, p.Addr())
	}
	have := slices.Clone(known["r4"])
	slices.SortFunc(want, netip.Addr.Compare)
	slices.SortFunc(have, netip.Addr.Compare)
	if !slices.Equal(have, want) {
		t.Errorf("r4 has %v, want %v", have, want)
	}

	c := probe.Checker{
		Slice: s, Addresses: known, PID: func(n string) (int, bool) { pid, ok := pids[n]; return pid, ok },
	}
	results, err := c.AllPairs(t.Context())
	if err != nil || len(results) != 2*4*3 {
		t.Fatal(len(results), err)
	}
	for _, r := range results {
		if a, _ := l.Slice.Node(r.To).Address(r.Address.Is6()); !r.OK || r.Address != a {
			t.Errorf("%s by %s, which is to be %s: %s", r.Name, r.Address, a, r.Message)
		}
	}
	results, err = c.Run(t.Context(), []slice.Check{
		{Kind: slice.CheckPing, From: "r1", To: "r4"},
		{Kind: slice.CheckPath, From: "r1", To: "r4", Via: []string{"r2", "r3", "r4"}},
	})
	for _, r := range results {
		if !r.OK || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}

	// Nothing is known of a node that does not run; that is no reason to be silent about it.
	delete(pids, "r4")
	delete(known, "r4")
	results, err = c.AllPairs(t.Context())
	if err != nil || len(results) != 2*3*2+1 {
		t.Fatal(len(results), err)
	}
	for _, r := range results {
		if r.OK == (r.From == "r4") {
			t.Errorf("%+v", r)
		}
	}
	results, err = c.Run(t.Context(), []slice.Check{{Kind: slice.CheckPing, From: "r1", To: "r4"}})
	if err != nil || results[0].OK || !strings.Contains(results[0].Message, "r4 has no address") {
		t.Errorf("%+v, %v", results, err)
	}
}
