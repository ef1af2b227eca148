package importer

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// fabric has a vendor's nodes, and what others write beside them: end systems with commands, and an FRR of their own.
const fabric = `
name: fabric
topology:
  kinds:
    nokia_srlinux: {image: ghcr.io/nokia/srlinux, type: ixr-d2l, license: key}
    linux: {image: alpine:3}
  nodes:
    leaf1: {kind: nokia_srlinux, startup-config: leaf1.cfg, labels: {role: leaf}}
    leaf2: {kind: nokia_srlinux, startup-config: leaf2.cfg, exec: [sr_cli info]}
    spine: {kind: arista_ceos, image: ceos, binds: ["a:/a"]}
    edge:
      kind: linux
      image: frrouting/frr
      binds: ["edge.conf:/etc/frr/frr.conf"]
    client1:
      kind: linux
      exec: ["ip addr add 192.168.1.2/24 dev eth1", "ip route add default via 192.168.1.254"]
    client2: {kind: linux}
    client3:
      kind: linux
      exec: ["sh -c 'ip a add dev eth1 192.168.3.2/24 && ip -6 addr add 2001:db8::2/64 dev eth1'"]
    br: {kind: bridge}
    gen: {kind: keysight_ixia-c-one, image: ixia}
    lone1: {kind: linux}
  links:
  - endpoints: ["leaf1:e1-49", "spine:eth1"]
  - endpoints: ["leaf2:ethernet-1/49", "spine:Ethernet1/2"]
    ipv4: [10.1.0.0/31, 10.1.0.1/31]
  - endpoints: ["client1:eth1", "leaf1:e1-1"]
  - endpoints: ["client2:eth1", "leaf2:e1-1"]
  - endpoints: ["client3:eth1", "br:p1"]
  - endpoints: ["leaf2:e1-2", "br:p2"]
  - endpoints: ["edge:eth1", "spine:eth3"]
  - endpoints: ["gen:eth1", "spine:eth4"]
  - endpoints: ["lone1:eth1", "client1:eth2"]
`

var fabricDir = fstest.MapFS{"edge.conf": {Data: []byte("interface lo\n ip address 10.9.9.9/32\n!\n" +
	"interface eth1\n ip address 10.5.0.1/30\n!\nrouter bgp 65001\n neighbor 10.5.0.2 remote-as 65002\n")}}

// resolved is the network of a topology whose files are all there.
func resolved(t *testing.T, top *topology.Topology) *slice.Slice {
	t.Helper()
	for _, f := range top.Sources() {
		f.Data = []byte("x")
	}
	s, found := topology.Resolve(top, nil)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

func allFRR() ClabOptions { return ClabOptions{Dir: fabricDir, Kinds: KindTable{AllKinds: AsFRR}} }

func TestReplacedKindsAreRoutersOfOurs(t *testing.T) {
	top, _ := clabOf(t, fabric, allFRR())
	for name, want := range map[string]slice.Kind{"leaf1": slice.Router,
		"leaf2": slice.Router, "spine": slice.Router,
		"gen": slice.Host, "client1": slice.Host, "edge": slice.Router} {
		if n := top.Nodes[name]; n.Kind != want || n.Image != "" {
			t.Errorf("%s is a %s of image %q, want a %s", name, n.Kind, n.Image, want)
		}
	}
	leaf := top.Nodes["leaf1"]
	if leaf.Daemon != slice.FRR || len(leaf.Loopbacks) != 2 || len(leaf.Routing) != 0 ||
		leaf.Labels["role"] != "leaf" {
		t.Errorf("leaf1: %+v", leaf)
	}
	if len(top.Nodes["edge"].Loopbacks) > 0 {
		t.Error("a router with its own configuration got loopbacks")
	}
}

func TestInterfacesOfReplacedNodesHaveNamesOfLinux(t *testing.T) {
	top, _ := clabOf(t, fabric, allFRR())
	var got []string
	for _, l := range top.Links {
		got = append(got, string(l.Ends[0]), string(l.Ends[1]))
	}
	want := []string{"leaf1:eth49", "spine:eth1", "leaf2:eth49", "spine:eth2", "client1:eth1", "leaf1:eth1",
		"client2:eth1", "leaf2:eth1", "client3:eth1", "br:p1", "leaf2:eth2", "br:p2", "edge:eth1", "spine:eth3",
		"gen:eth1", "spine:eth4", "lone1:eth1", "client1:eth2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ kind, name, want string }{
		{"nokia_srlinux", "ethernet-1/1", "eth1"}, {"nokia_srlinux", "e1-1", "eth1"},
		{"nokia_srlinux", "e2-3", "e2-3"}, {"nokia_srlinux", "ethernet-2/3/1", "ethernet-2-3-1"},
		{"juniper_vmx", "ge-0/0/2", "eth3"}, {"cjunosevolved", "et-0/0/0", "eth4"},
		{"cisco_csr1000v", "GigabitEthernet2", "eth1"}, {"cisco_csr1000v", "Gi1", "Gi1"},
		{"cisco_cat9kv", "Gi1/0/3", "eth3"}, {"cisco_xrv9k", "Gi0/0/0/0", "eth1"},
		{"cisco_xrd", "Gi0-0-0-1", "eth2"}, {"cisco_iol", "Ethernet1/1", "eth5"},
		{"arista_veos", "Ethernet1/2", "eth2"}, {"nokia_sros", "1/1/3", "eth3"},
		{"nokia_srsim", "1/1/c1/1", "e1-1-c1-1"}, {"cumulus_cvx", "swp12", "eth12"},
		{"ciena_saos", "7", "eth7"}, {"f5_bigip-ve", "1.2", "eth2"},
		{"cisco_c8000", "HundredGigE0/0/0/1", "Hu0-0-0-1"}, {"fortinet_fortigate", "port2", "eth1"},
		{"mikrotik_ros", "ether2", "eth1"}, {"openbsd", "vio1", "eth1"},
		{"arista_ceos", "eth1", "eth1"}, {"x", "a b", "a-b"},
	} {
		if got := (&clabNode{kind: c.kind}).face(c.name); got != c.want {
			t.Errorf("%s of %s is %s, want %s", c.name, c.kind, got, c.want)
		}
	}
}

// Nodes that set their addresses themselves keep them, and find the routers at the addresses that they expect.
func TestAddressesFollowWhatOtherNodesSay(t *testing.T) {
	top, _ := clabOf(t, fabric, allFRR())
	s := resolved(t, top)
	for end, want := range map[string]string{
		"client1:eth1": "192.168.1.2/24", "leaf1:eth1": "192.168.1.254/24", // the next hop of client1's route
		"leaf2:eth49": "10.1.0.0/31", "spine:eth2": "10.1.0.1/31", // as the link says
		"client3:eth1": "192.168.3.2/24 2001:db8::2/64",            // inside a quoted command, behind a bridge
		"edge:eth1":    "10.5.0.1/30", "spine:eth3": "10.5.0.2/30", // of frr.conf, and its neighbour
		"lone1:eth1": "", "client1:eth2": "", // no replaced node is there
	} {
		node, face, _ := strings.Cut(end, ":")
		var got []string
		for _, a := range s.Node(node).Interface(face).Addresses {
			if a.Addr().Is4() || want == "" || strings.Contains(want, a.String()) {
				got = append(got, a.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %s", end, got, want)
		}
	}
	if a := s.Node("leaf2").Interface("eth2").Addresses; len(a) != 2 || a[0].Masked().String() != "192.168.3.0/24" {
		t.Errorf("leaf2:eth2 has %v", a)
	}
	if exec := top.Nodes["client1"].Exec; exec[0] != "ip addr replace 192.168.1.2/24 dev eth1" ||
		exec[1] != "ip route replace default via 192.168.1.254" {
		t.Errorf("client1 runs %q", exec)
	}
	if g := top.Nodes["client1"].Gateway; !slices.Equal(g, topology.Strings{"none"}) {
		t.Errorf("client1 has a route of its own and gets another: %v", g)
	}
	if g := top.Nodes["client2"].Gateway; len(g) > 0 || len(s.Node("client2").Routes) == 0 {
		t.Errorf("client2 has no default route: gateway %v, routes %v", g, s.Node("client2").Routes)
	}
	if g := top.Nodes["lone1"].Gateway; len(g) == 0 {
		t.Error("lone1 is beside no router of ours and gets a gateway")
	}
}

func TestWhatIsLeftOutComesOnceAndByWeight(t *testing.T) {
	_, found := clabOf(t, fabric, allFRR())
	var got []string
	for _, d := range found {
		if d.LeftOut {
			d.Warning, d.File = false, "fabric.clab.yml"
			got = append(got, d.String())
		} else if len(got) > 0 {
			t.Errorf("%s comes after what is left out", d)
		}
	}
	want := []string{
		"fabric.clab.yml:8:19: kind nokia_srlinux of nodes leaf1 and leaf2 (a router with FRR is in its place)",
		"fabric.clab.yml:8:34: startup-config of nodes leaf1 and leaf2 (addresses and routing are Pergola's)",
		"fabric.clab.yml:9:61: exec of node leaf2 (these are commands for the vendor's image)",
		"fabric.clab.yml:10:19: kind arista_ceos of node spine (a router with FRR is in its place)",
		"fabric.clab.yml:23:17: kind keysight_ixia-c-one of node gen (a host is in its place)",
		"fabric.clab.yml:10:45: binds of node spine (it is for the vendor's image)",
		"fabric.clab.yml:5:66: license, type of 2 nodes (the network is the same without)",
	}
	slices.Sort(want[2:5])
	slices.Sort(got[2:5])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKindsAreReplacedAsTheTableSays(t *testing.T) {
	table, found := ParseKinds("kinds.yaml", []byte("kinds: {arista_ceos: bird, nokia_srlinux: switch, all: host}"))
	if table == nil {
		t.Fatal(found)
	}
	text := strings.Replace(fabric, "ipv4: [10.1.0.0/31, 10.1.0.1/31]", "ipv4: [10.1.0.2/24, 10.1.0.1/24]", 1)
	top, left := clabOf(t, text, ClabOptions{Dir: fabricDir, Kinds: table, Routing: []slice.Protocol{slice.RIP}})
	if !strings.Contains(left.Error(), "addresses of links of node leaf2 (a switch has none)") {
		t.Errorf("addresses of a switch are not said to be left out:\n%s", left)
	}
	if n := top.Nodes["spine"]; n.Daemon != slice.BIRD || n.Routing[0] != "rip" ||
		top.Nodes["leaf1"].Kind != slice.Switch {
		t.Errorf("spine %+v, leaf1 %+v", n, top.Nodes["leaf1"])
	}
	_, bad := ParseKinds("kinds.yaml", []byte("kinds:\n  arista_ceos: fr\n"))
	if want := `kinds.yaml:2:16: kind arista_ceos cannot become "fr" (did you mean "frr"?)`; bad.Error() != want {
		t.Errorf("got %s, want %s", bad, want)
	}
	for kind, want := range map[string]string{"linux": "", "bridge": "", "nokia_srlinux": "frr", "k8s-kind": "host",
		"nokia_srlinx": ""} {
		if got := (KindTable{AllKinds: AsFRR}).find(kind); got != want {
			t.Errorf("all replaces %s by %q, want %q", kind, got, want)
		}
	}
}

func TestBGPAloneMakesEachRouterAnAS(t *testing.T) {
	opt := allFRR()
	opt.Routing = []slice.Protocol{slice.BGP}
	top, _ := clabOf(t, fabric, opt)
	if top.Nodes["leaf1"].AS == top.Nodes["leaf2"].AS {
		t.Error("leaf1 and leaf2 are one AS")
	}
	resolved(t, top)
}

// A chassis of several containers is one router; its cables are that router's.
func TestCardsOfAChassisAreOneNode(t *testing.T) {
	const chassis = `
topology:
  kinds: {nokia_srsim: {image: srsim}}
  nodes:
    a-1: {kind: nokia_srsim, network-mode: "container:a"}
    a: {kind: nokia_srsim}
    b: {kind: nokia_srsim}
  links:
  - endpoints: ["a-1:1/1/c1/1", "b:1/1/c1/1"]
  - endpoints: ["a-1:1/1/c2/1", "a:1/1/c3/1"]
`
	top, found := clabOf(t, chassis, allFRR())
	if len(top.Nodes) != 2 || len(top.Links) != 1 || top.Links[0].Ends[0] != "a:e1-1-c1-1" {
		t.Errorf("nodes %v, links %v", top.Nodes, top.Links)
	}
	if text := found.Error(); !strings.Contains(text, "links from a node to itself of node") {
		t.Error(text)
	}
	resolved(t, top)
	circle := "topology: {nodes: {a: {kind: ceos, network-mode: 'container:b'}, b: {kind: ceos, network-mode: " +
		"'container:a'}, c: {kind: ceos}}, links: [{endpoints: ['a:eth1', 'c:eth1']}]}"
	if _, found := Clab("x.clab.yml", []byte(circle), allFRR()); found.Err() == nil {
		t.Error("two nodes that are parts of each other are valid")
	}
}

func TestNameIsReadWhateverElseIsWrong(t *testing.T) {
	name, found := ClabName("x.clab.yml", []byte("name: ${LAB:=mine}\n"+
		"topology: {nodes: {a: {kind: nokia_srlinux}}}"),
		ClabOptions{})
	if name != "mine" || found.Err() != nil {
		t.Errorf("%q, %v", name, found)
	}
}
