package routing_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// apply writes what n now asks for, reloads, and gives what was said about it.
func apply(t *testing.T, l *daemons.Lab, n *slice.Node) (said string) {
	t.Helper()
	r, err := routing.NewRenderer(l.Slice).Render(n)
	if err != nil {
		t.Fatal(err)
	}
	l.Write(n.Name, r.Files)
	for _, command := range r.Reload {
		out, err := l.Exec(n.Name, command...)
		if err != nil {
			t.Fatal(err)
		}
		if out = strings.TrimSpace(out); out != "" {
			t.Logf("%s: %v: %s", n.Name, command, out)
			said += out
		}
	}
	return said
}

// daemonPIDs gives the pids of a node's routing daemons.
func daemonPIDs(t *testing.T, l *daemons.Lab, node string) string {
	t.Helper()
	out, err := l.Exec(node, "sh", "-c",
		`cd /run/frr 2>/dev/null && for f in [!w]*.pid; do echo $f $(cat $f); done || pidof bird`)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReloadChangesRoutesAndRestartsNothing(t *testing.T) {
	for _, daemon := range []slice.Daemon{slice.FRR, slice.BIRD} {
		t.Run(string(daemon), func(t *testing.T) {
			testkit.LeakCheck(t)
			l := daemons.New(t, square([4]slice.Daemon{daemon, daemon, daemon, daemon}, slice.OSPF))
			start(t, l)
			converge(t, l, nil, time.Minute)
			n := l.Slice.Node("r1")
			before := daemonPIDs(t, l, "r1")
			// Towards r2 by way of r4 and r3; and no OSPF on the way back there.
			n.Interfaces[0].Cost = 100
			apply(t, l, n)
			converge(t, l, nil, time.Minute)
			testkit.Eventually(t, func() error {
				out, err := l.Exec("r1", "ip", "route", "get", "10.0.0.2")
				if err == nil && !strings.Contains(out, "dev eth2") {
					err = errors.New(out)
				}
				return err
			}, 10*time.Second, "the route to avoid the dear link")
			n.Interfaces[0].Passive = true
			apply(t, l, n)
			other := l.Slice.Node("r2")
			other.Interfaces[0].Passive = true
			apply(t, l, other)
			converge(t, l, nil, time.Minute)
			if after := daemonPIDs(t, l, "r1"); after != before {
				t.Errorf("daemons restarted:\n%s%s", before, after)
			}
		})
	}
}

func TestReloadStartsAndStopsDaemons(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(allFRR, slice.OSPF))
	start(t, l)
	converge(t, l, nil, time.Minute)
	zebra := strings.SplitN(daemonPIDs(t, l, "r1")[strings.Index(daemonPIDs(t, l, "r1"), "zebra"):], "\n", 2)[0]
	for i := range l.Slice.Nodes {
		n := &l.Slice.Nodes[i]
		n.Routing.Protocols = []slice.Protocol{slice.ISIS, slice.Static}
		n.Routing.Static = []slice.Route{{To: netip.MustParsePrefix("192.0.2.0/24"), Blackhole: true}}
		apply(t, l, n)
	}
	converge(t, l, nil, time.Minute)
	after := daemonPIDs(t, l, "r1")
	if strings.Contains(after, "ospf") || !strings.Contains(after, "isisd") ||
		!strings.Contains(after, "staticd") || !strings.Contains(after, zebra) {
		t.Errorf("from OSPF to IS-IS: zebra was %s, now there are\n%s", zebra, after)
	}
	if _, err := l.Exec("r1", "pidof", "watchfrr"); err != nil {
		t.Errorf("nobody watches: %v", err)
	}
}

func TestFRRRestartsADaemonThatDies(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(allFRR, slice.OSPF))
	start(t, l)
	converge(t, l, nil, time.Minute)
	if _, err := l.Exec("r1", "sh", "-c", "kill -9 $(cat /run/frr/ospfd.pid)"); err != nil {
		t.Fatal(err)
	}
	converge(t, l, nil, time.Minute)
	out, err := l.Exec("r1", "vtysh", "-c", "show running-config")
	if err != nil || !strings.Contains(out, "ospf router-id 10.0.0.1") {
		t.Errorf("after the restart: %v\n%s", err, out)
	}
	if out, err := l.Exec("r1", "vtysh", "-c", "write memory"); err != nil || !strings.Contains(out, "[OK]") {
		t.Errorf("write memory: %v\n%s", err, out)
	}
}

// A change must reach the daemons also when it comes while they start, with what was wanted before.
func TestChangeWhileFRRStartsIsNotLost(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(allFRR, slice.OSPF))
	start(t, l)
	// Each router at another moment of its start.
	for name, file := range map[string]string{
		"r1": "zebra.pid", "r2": "ospfd.pid", "r3": "ospfd.vty", "r4": "watchfrr.pid",
	} {
		testkit.Eventually(t, func() error {
			_, err := l.Exec(name, "test", "-e", "/run/frr/"+file)
			return err
		}, 10*time.Second, name+" to have "+file)
		n := l.Slice.Node(name)
		n.Interfaces[0].Cost = 77
		apply(t, l, n)
		if out := running(t, l, name); !strings.Contains(out, "ip ospf cost 77\n") {
			t.Errorf("%s, changed when %s was there, has\n%s", name, file, out)
		}
	}
	converge(t, l, nil, time.Minute)
}

// running gives the configuration that a node's FRR runs by.
func running(t *testing.T, l *daemons.Lab, node string) string {
	t.Helper()
	out, err := l.Exec(node, "vtysh", "-c", "show running-config")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A daemon refuses to forget what it does not know: what a user took away by hand, or what it never heard of because
// it was restarted with a newer configuration. An interface that is no longer wanted goes all the same.
func TestReloadTakesAwayWhatIsGoneAlready(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(allFRR, slice.OSPF))
	start(t, l)
	converge(t, l, nil, time.Minute)
	before := daemonPIDs(t, l, "r1")
	_, err := l.Exec("r1", "vtysh", "-c", "configure", "-c", "interface eth2", "-c", "no ip ospf area 0.0.0.0")
	if err != nil {
		t.Fatal(err)
	}
	n := l.Slice.Node("r1")
	n.Interfaces[0].Cost = 77
	n.Interfaces = n.Interfaces[:1]
	if said := apply(t, l, n); said != "" {
		t.Errorf("said: %s", said)
	}
	out := running(t, l, "r1")
	if !strings.Contains(out, "ip ospf cost 77\n") || strings.Count(out, "ip ospf area") != 2 ||
		strings.Count(out, "ipv6 ospf6 area") != 2 {
		t.Errorf("r1 runs\n%s", out)
	}
	if after := daemonPIDs(t, l, "r1"); after != before {
		t.Errorf("daemons restarted:\n%s%s", before, after)
	}
	// The files of a reload contain passwords.
	out, err = l.Exec("r1", "sh", "-c", "cd /run/frr && stat -c '%a %n' applied difference refused running")
	if want := "600 applied\n600 difference\n600 refused\n600 running\n"; err != nil || out != want {
		t.Errorf("%v: got\n%swant\n%s", err, out, want)
	}
}

// Where what a user did by hand makes the daemons refuse what is wanted, they are started anew, and it is said.
func TestReloadRestartsDaemonsThatRefuse(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(allFRR, slice.OSPF))
	n := l.Slice.Node("r1")
	all := n.Interfaces
	n.Interfaces = all[:1]
	start(t, l)
	converge(t, l, func(link string) bool { return link != "l4" }, time.Minute)
	// ospfd takes no interface by its name while it has networks.
	if _, err := l.Exec("r1", "vtysh", "-c", "configure",
		"-c", "interface eth1", "-c", "no ip ospf area 0.0.0.0", "-c", "interface lo",
		"-c", "no ip ospf area 0.0.0.0", "-c", "router ospf", "-c", "network 0.0.0.0/0 area 0"); err != nil {
		t.Fatal(err)
	}
	n.Interfaces = all
	if said := apply(t, l, n); !strings.Contains(said, "started anew") {
		t.Errorf("said: %s", said)
	}
	if out := running(t, l, "r1"); strings.Count(out, "ip ospf area") != 3 ||
		strings.Contains(out, "network 0.0.0.0") {
		t.Errorf("r1 runs\n%s", out)
	}
	if _, err := l.Exec("r1", "pidof", "watchfrr"); err != nil {
		t.Errorf("nobody watches: %v", err)
	}
	converge(t, l, nil, time.Minute)
}

func TestUsersOwnConfigurationRunsUnmodified(t *testing.T) {
	testkit.LeakCheck(t)
	s := square(mixed, slice.OSPF)
	for i := range s.Nodes {
		r, err := routing.NewRenderer(s).Render(&s.Nodes[i])
		if err != nil {
			t.Fatal(err)
		}
		s.Nodes[i].Routing.Config = map[string][]byte{}
		for _, f := range r.Files {
			if base := filepath.Base(f.Path); strings.HasSuffix(base, ".conf") && base != "vtysh.conf" {
				s.Nodes[i].Routing.Config[base] = f.Data
			}
		}
	}
	l := daemons.New(t, s)
	start(t, l)
	for i := range s.Nodes { // what they are to reach is known here: they say what Pergola would have said
		s.Nodes[i].Routing.Config = nil
	}
	converge(t, l, nil, time.Minute)
}

// The difference of two configurations, as frr.sh computes it.
func TestDifferenceOfConfigurations(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const old = `router bgp 65001
 no bgp ebgp-requires-policy
 neighbor 192.0.2.1 remote-as 65002
 neighbor 192.0.2.1 description a
 address-family ipv4 unicast
  neighbor 192.0.2.1 activate
 exit-address-family
exit
!
router rip
 network eth1
exit
interface eth1
 ip ospf cost 10
 ip ospf area 0.0.0.0
exit
ip route 192.0.2.0/24 blackhole
`
	for _, c := range []struct{ name, from, to, want string }{
		{"nothing", old, old, ""},
		{"a changed value is overwritten",
			"interface eth1\n ip ospf cost 10\nexit\n", "interface eth1\n ip ospf cost 20\nexit\n",
			"interface eth1\nip ospf cost 20\nexit\n"},
		{
			"an interface goes line by line, last first", "interface eth1\n a\n b 1\nexit\n", "",
			"interface eth1\nno b 1\nno a\nexit\n",
		},
		{"a router goes as a whole", "router rip\n network eth1\nexit\n", "", "no router rip\n"},
		{"a neighbour that changes its system is told everything again", old,
			strings.Replace(old, "65002", "65003", 1),
			"router bgp 65001\n" +
				"no neighbor 192.0.2.1 remote-as 65002\nneighbor 192.0.2.1 remote-as 65003\n" +
				"neighbor 192.0.2.1 description a\nexit\n" +
				"router bgp 65001\n" +
				"address-family ipv4 unicast\nneighbor 192.0.2.1 activate\nexit\nexit\n"},
		{
			"a negation goes by its opposite", "router bgp 1\n no x\n y\nexit\n",
			"router bgp 1\n y\nexit\n", "router bgp 1\nx\nexit\n",
		},
	} {
		script := scriptOf(t)
		if err := os.WriteFile(filepath.Join(dir, "frr"), script, 0o700); err != nil {
			t.Fatal(err)
		}
		difference := exec.Command(filepath.Join(dir, "frr"), "difference", write("old", c.from),
			write("new", c.to))
		out, err := difference.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %v, got\n%swant\n%s", c.name, err, out, c.want)
		}
	}
}

// scriptOf gives the script that runs FRR in a node.
func scriptOf(t *testing.T) []byte {
	t.Helper()
	s := square(allFRR, slice.OSPF)
	r, err := routing.NewRenderer(s).Render(&s.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Files {
		if f.Path == r.Command[0] {
			return f.Data
		}
	}
	t.Fatal(fmt.Errorf("no file %s", r.Command[0]))
	return nil
}
