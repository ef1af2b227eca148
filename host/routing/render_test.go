package routing_test

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is what is rendered and kept: a node of a slice, for each protocol and daemon.
var golden = []struct {
	name  string
	slice *slice.Slice
	node  string
}{
	{"ospf-frr", office(slice.FRR, slice.OSPF), "r3"},
	{"ospf-bird", office(slice.BIRD, slice.OSPF), "r3"},
	{"isis-frr", office(slice.FRR, slice.ISIS), "r3"},
	{"rip-frr", office(slice.FRR, slice.RIP), "r1"},
	{"rip-bird", office(slice.BIRD, slice.RIP), "r1"},
	{"static-frr", office(slice.FRR, slice.Static), "r1"},
	{"static-bird", office(slice.BIRD, slice.Static), "r1"},
	{"bgp-reflector-frr", systems(allFRR), "r1"},
	{"bgp-reflector-bird", systems(allBIRD), "r1"},
	{"bgp-border-frr", systems(allFRR), "r3"},
	{"bgp-border-bird", systems(allBIRD), "r3"},
	{"bgp-originates-frr", systems(allFRR), "r4"},
	{"bgp-originates-bird", systems(allBIRD), "r4"},
}

func render(t *testing.T, s *slice.Slice, node string) routing.Rendered {
	t.Helper()
	r, err := routing.NewRenderer(s).Render(s.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// configuration joins the rendered files, without the script, into one text.
func configuration(r routing.Rendered) []byte {
	var all bytes.Buffer
	for _, f := range r.Files {
		if f.Mode == 0o755 {
			continue
		}
		all.WriteString("# " + f.Path + "\n")
		all.Write(f.Data)
	}
	return all.Bytes()
}

func TestRenderWritesWhatWasAgreed(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			got := configuration(render(t, c.slice, c.node))
			path := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s differs (-want +got); -update writes it anew:\n%s", path, diff)
			}
		})
	}
}

// Every line must be one that the daemons know. They say so without a network: vtysh knows the commands of all
// daemons of FRR.
func TestDaemonsAcceptWhatIsRendered(t *testing.T) {
	testkit.Root(t)
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range render(t, c.slice, c.node).Files {
				file := filepath.Join(dir, filepath.Base(f.Path))
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			check := exec.Command("bird", "-p", "-c", filepath.Join(dir, "bird.conf"))
			if strings.HasSuffix(c.name, "-frr") {
				check = exec.Command("vtysh", "-C", "--config_dir", dir, "-f",
					filepath.Join(dir, "frr.conf"))
			}
			if out, err := check.CombinedOutput(); err != nil || bytes.Contains(out, []byte("Unknown")) {
				t.Errorf("%v: %v: %s", check.Args, err, out)
			}
		})
	}
}

func TestRenderIsTheSameEveryTime(t *testing.T) {
	for _, c := range golden {
		if diff := cmp.Diff(render(t, c.slice, c.node), render(t, c.slice, c.node)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestBothEndsOfALinkAgreeOnTimers(t *testing.T) {
	s := square(mixed, slice.OSPF)
	s.Node("r1").Routing.Timers = slice.Timers{Hello: 5, Dead: 20, FastHellos: true}
	s.Node("r2").Routing.Timers = slice.Timers{Hello: 2, FastHellos: true}
	frr, bird := configuration(render(t, s, "r1")), configuration(render(t, s, "r2"))
	for _, want := range []string{" ip ospf hello-interval 2\n", " ip ospf dead-interval 20\n"} {
		if !strings.Contains(section(frr, "interface eth1"), want) {
			t.Errorf("r1 lacks %q:\n%s", want, frr)
		}
	}
	if strings.Contains(string(frr), "minimal") {
		t.Error("r1 sends fast hellos to BIRD, which has none")
	}
	for _, want := range []string{"hello 2;", "dead 20;"} {
		if !strings.Contains(section(bird, `		interface "eth1"`), want) {
			t.Errorf("r2 lacks %q:\n%s", want, bird)
		}
	}
}

// section gives the text from head to the next line that closes it.
func section(text []byte, head string) string {
	_, rest, _ := strings.Cut(string(text), head)
	for _, end := range []string{"exit\n", "};"} {
		if before, _, ok := strings.Cut(rest, end); ok {
			return before
		}
	}
	return rest
}

func TestInteriorProtocolsEndAtTheBorder(t *testing.T) {
	s := systems(allFRR)
	got := section(configuration(render(t, s, "r3")), "interface eth2")
	if !strings.Contains(got, "ip ospf passive") {
		t.Errorf("r3 speaks OSPF to another system:\n%s", got)
	}
	if got := section(configuration(render(t, s, "r3")), "interface eth1"); strings.Contains(got, "passive") {
		t.Errorf("r3 is silent inside:\n%s", got)
	}
}

func TestSwitchesBelongToTheSegment(t *testing.T) {
	b := &daemons.Topology{}
	b.Router("r1", slice.FRR, slice.OSPF)
	b.Router("r2", slice.FRR, slice.OSPF).Routing.Timers.Hello = 3
	b.Slice.Nodes = append(b.Slice.Nodes, slice.Node{Name: "s1", Kind: slice.Switch})
	b.Link("r1", "s1")
	b.Link("r2", "s1")
	s := b.Done()
	if got := configuration(render(t, s, "r1")); !strings.Contains(string(got), "ip ospf hello-interval 3") {
		t.Errorf("r1 does not see r2 behind the switch:\n%s", got)
	}
}

func TestUsersFilesAreUsedAsTheyAre(t *testing.T) {
	own := []byte("router ospf\n!\nrouter bgp 1\n!\nip route 192.0.2.0/24 blackhole\ninterface eth1\n ip pim\n")
	s := square(allFRR, slice.OSPF)
	s.Node("r1").Routing.Config = map[string][]byte{"frr.conf": own}
	r := render(t, s, "r1")
	text := string(configuration(r))
	for _, want := range []string{
		string(own), "bgpd=yes\nospfd=yes\npimd=yes\nstaticd=yes\n", "/etc/frr/vtysh.conf",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "isisd=yes") || !slices.Equal(r.Reload[0][1:], []string{"reload-user"}) {
		t.Errorf("got %v and\n%s", r.Reload, text)
	}
	list := []byte("ospfd=no\n")
	s.Node("r1").Routing.Config = map[string][]byte{"frr.conf": own, "daemons": list, "vtysh.conf": nil}
	if text := string(configuration(render(t, s, "r1"))); strings.Contains(text, "bgpd=yes") ||
		strings.Contains(text, "service") {
		t.Errorf("the user's list of daemons was changed:\n%s", text)
	}
}

func TestRenderRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*slice.Node)
	}{
		{"IS-IS on BIRD", "BIRD has no IS-IS", func(n *slice.Node) {
			n.Routing.Daemon, n.Routing.Protocols = slice.BIRD, []slice.Protocol{slice.ISIS}
		}},
		{"unknown daemon", `unknown daemon "quagga"`, func(n *slice.Node) { n.Routing.Daemon = "quagga" }},
		{"a line break in a name", "only letters", func(n *slice.Node) { n.Interfaces[0].Name = "eth0\nrouter rip" }},
		{"no router identifier", "router identifier", func(n *slice.Node) { n.Routing.RouterID = netip.Addr{} }},
		{"a path as file name", "plain file name", func(n *slice.Node) {
			n.Routing.Config = map[string][]byte{"../passwd": nil}
		}},
		{"BIRD without bird.conf", "needs a file bird.conf", func(n *slice.Node) {
			n.Routing.Daemon, n.Routing.Config = slice.BIRD, map[string][]byte{"frr.conf": nil}
		}},
	} {
		s := square(allFRR, slice.OSPF)
		c.change(s.Node("r1"))
		if _, err := routing.NewRenderer(s).Render(s.Node("r1")); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
