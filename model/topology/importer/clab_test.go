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

const routerBinds = `
      binds:
      - "__clabNodeName__/frr.conf:/etc/frr/frr.conf"
      - "own/motd:/etc/motd:ro"
      - "/var/log:/host/log:ro"
      - "scripts:/scripts"
`

// campus uses most of what a containerlab file can say.
const campus = `
name: campus
prefix: ""
mgmt: {network: custom, ipv4-subnet: 172.100.0.0/16}
topology:
  defaults:
    env: {A: defaults, B: defaults}
    exec: [echo defaults]
    labels: {site: main}
  kinds:
    linux:
      image: alpine:3
      env: {B: kind, C: kind}
      exec: [echo kind]
      memory: 256Mb
  groups:
    routers:
      kind: linux
      image: quay.io/frrouting/frr:10.5.1
      env: {C: group, D: group}
      exec: [echo group]
      cpu: 0.5
      binds: ["common/daemons:/etc/frr/daemons", "motd:/etc/motd"]
  nodes:
    r1: &router
      group: routers` + routerBinds + `      env: {D: node}
      sysctls: {net.ipv6.conf.all.forwarding: 1}
      exec: ["ip addr add 10.0.0.1/24 dev eth1"]
      ports: ["80:80"]
    r2:
      <<: *router
      env: {D: merged}
    PC1:
      kind: linux
      restart-policy: "no"
      cmd: sleep infinity
      exec: ["apk add curl", "ash -c 'echo $$HOME'", "ip addr add 10.0.0.2/24 dev eth1"]
    web:
      kind: linux
      image: nginx:1.27
      entrypoint: /entry.sh --flag
      cmd: "serve 'two words' \"$${X}\""
      binds: ["run.sh:/run.sh"]
    br-1: {kind: bridge}
    out: {kind: host, exec: ["ip link set dev enp0s3 up"]}
  links:
    - endpoints: ["r1:eth1", "PC1:eth1"]
    - endpoints: [r1:eth2, r2:eth2]
      mtu: 1400
      vars: {x: 1}
    - endpoints: ["r2:eth1", "br-1:p1"]
    - endpoints: ["web:eth1", "br-1:p2"]
      ipv4: ["192.0.2.1/24", ""]
    - type: veth
      endpoints:
        - {node: r1, interface: eth3, mac: "02:00:00:00:00:01", ipv4: 10.9.0.1/30, ipv6: "2001:db8::1/64"}
        - {node: r2, interface: eth3}
    - endpoints: ["r1:eth4", "host:r1-eth4"]
    - type: host
      endpoint: {node: r2, interface: eth4}
      host-interface: r2-eth4
    - endpoints: ["PC1:eth2", "out:pc1-eth2"]
    - type: dummy
      endpoint: {node: PC1, interface: dum0}
`

var campusDir = fstest.MapFS{
	"r1/frr.conf": {}, "r2/frr.conf": {}, "common/daemons": {}, "motd": {}, "own/motd": {},
	"scripts/a.sh": {}, "run.sh": {Mode: 0o755},
}

func clabOf(t *testing.T, data string, opt ClabOptions) (*topology.Topology, topology.Diagnostics) {
	t.Helper()
	top, found := Clab("lab.clab.yml", []byte(data), opt)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return top, found
}

func TestClabInheritsAsContainerlabDoes(t *testing.T) {
	top, _ := clabOf(t, campus, ClabOptions{Dir: campusDir})
	r1, r2, pc := top.Nodes["r1"], top.Nodes["r2"], top.Nodes["PC1"]
	if diff := cmp.Diff(map[string]string{"A": "defaults", "B": "kind", "C": "group", "D": "node"},
		r1.Env); diff != "" {
		t.Errorf("r1: env %s", diff)
	}
	if r2.Env["D"] != "merged" || r2.Sysctls["net.ipv6.conf.all.forwarding"] != "1" {
		t.Errorf("r2: the merge key does not work: %v %v", r2.Env, r2.Sysctls)
	}
	wantExec := topology.Strings{"ip link set dev 'eth3' address 02:00:00:00:00:01", "echo defaults", "echo kind",
		"echo group", "ip addr add 10.0.0.1/24 dev eth1"}
	if diff := cmp.Diff(wantExec, r1.Exec); diff != "" {
		t.Errorf("r1: exec %s", diff)
	}
	wantExec = topology.Strings{"ip link add 'dum0' type dummy && ip link set 'dum0' up", "echo defaults",
		"echo kind", "sh -c 'echo $HOME'", "ip addr add 10.0.0.2/24 dev eth1"}
	if diff := cmp.Diff(wantExec, pc.Exec); diff != "" {
		t.Errorf("PC1: exec %s", diff)
	}
	if r1.CPU != 0.5 || r1.Memory != "256Mb" || r1.Labels["site"] != "main" || pc.Restart != slice.RestartNever {
		t.Errorf("cpu %v, memory %v, labels %v, restart %v", r1.CPU, r1.Memory, r1.Labels, pc.Restart)
	}
}

func TestClabMapsImagesBindsAndProcesses(t *testing.T) {
	top, _ := clabOf(t, campus, ClabOptions{Dir: campusDir})
	r1, pc, web := top.Nodes["r1"], top.Nodes["PC1"], top.Nodes["web"]
	wantConfig := map[string]*topology.Source{"frr.conf": {Path: "r1/frr.conf"},
		"daemons": {Path: "common/daemons"}}
	if diff := cmp.Diff(wantConfig, r1.Config); diff != "" || r1.Kind != slice.Router || r1.Daemon != slice.FRR ||
		r1.Image != "" {
		t.Errorf("r1 is %s %s %q with config %s", r1.Kind, r1.Daemon, r1.Image, diff)
	}
	if diff := cmp.Diff(map[string]topology.File{"/etc/motd": {Source: &topology.Source{Path: "own/motd"}}},
		r1.Files); diff != "" {
		t.Errorf("r1: files %s", diff)
	}
	if diff := cmp.Diff(topology.Strings{"/var/log:/host/log:ro", "scripts:/scripts"}, r1.Binds); diff != "" {
		t.Errorf("r1: binds %s", diff)
	}
	if pc.Kind != slice.Host || pc.Image != "" || pc.Cmd != nil || pc.Sysctls["net.ipv4.ip_forward"] != "1" ||
		pc.Gateway[0] != "none" {
		t.Errorf("PC1: %+v", pc)
	}
	if diff := cmp.Diff(topology.Command{"/entry.sh", "--flag", "serve", "two words", "${X}"},
		web.Cmd); diff != "" || web.Image != "nginx:1.27" {
		t.Errorf("web: image %s, cmd %s", web.Image, diff)
	}
	if web.Files["/run.sh"].Mode != "0755" {
		t.Errorf("web: files %v", web.Files)
	}
}

func TestClabWiresAsContainerlabDoes(t *testing.T) {
	top, _ := clabOf(t, campus, ClabOptions{Dir: campusDir})
	if top.Nodes["br-1"].Kind != slice.Switch || top.Nodes["out"].Kind != slice.Uplink ||
		top.Nodes["host"].Kind != slice.Uplink {
		t.Errorf("kinds: %v", top.Nodes)
	}
	if *top.Addressing.IPv4 || *top.Addressing.IPv6 || top.Defaults.Link.MTU != 9500 {
		t.Errorf("addressing %+v, link defaults %+v", top.Addressing, top.Defaults.Link)
	}
	var ends [][]topology.End
	for _, l := range top.Links {
		ends = append(ends, l.Ends)
	}
	want := [][]topology.End{{"r1:eth1", "PC1:eth1"}, {"r1:eth2", "r2:eth2"}, {"r2:eth1", "br-1:p1"},
		{"web:eth1", "br-1:p2"}, {"r1:eth3", "r2:eth3"},
		{"r1:eth4", "host:r1-eth4"}, {"r2:eth4", "host:r2-eth4"}, {"PC1:eth2", "out:pc1-eth2"},
		{"r1:eth0", "mgmt"}, {"r2:eth0", "mgmt"}, {"PC1:eth0", "mgmt"}, {"web:eth0", "mgmt"}}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("links %s", diff)
	}
	if top.Links[1].MTU != 1400 || !slices.Equal(top.Links[4].Addresses["r1:eth3"],
		[]string{"10.9.0.1/30", "2001:db8::1/64"}) ||
		!slices.Equal(top.Links[3].Addresses["web:eth1"], []string{"192.0.2.1/24"}) {
		t.Errorf("mtu %d, addresses %v %v", top.Links[1].MTU, top.Links[4].Addresses, top.Links[3].Addresses)
	}
}

func TestClabWarnsOnceOfWhatItLeavesOut(t *testing.T) {
	_, found := clabOf(t, campus, ClabOptions{Dir: campusDir})
	var got []string
	for _, d := range found {
		if !d.Warning || d.Line == 0 || d.Column == 0 || d.File != "lab.clab.yml" {
			t.Errorf("%+v", d)
		}
		got = append(got, d.Message)
	}
	want := []string{"prefix, vars of links",
		"image alpine:3 is replaced by the machine's own programs",
		"image quay.io/frrouting/frr:10.5.1 is replaced by the machine's own programs",
		"ports of nodes r1 and r2",
		`"apk add curl" is left out: the node has the machine's own programs`, "exec of node out"}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClabResolvesWithoutAddressesOfItsOwn(t *testing.T) {
	text := strings.NewReplacer("\"common/daemons:/etc/frr/daemons\", \"motd:/etc/motd\"", "",
		routerBinds, "\n",
		`binds: ["run.sh:/run.sh"]`, "").Replace(campus)
	top, _ := clabOf(t, text, ClabOptions{})
	s, found := topology.Resolve(top, nil)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes {
		if len(n.Loopbacks) > 0 || len(n.Routes) > 0 {
			t.Errorf("%s has loopbacks %v and routes %v", n.Name, n.Loopbacks, n.Routes)
		}
		for _, i := range n.Interfaces {
			if len(i.Addresses) > 0 && n.Name+i.Name != "r1eth3" && n.Name+i.Name != "webeth1" &&
				!i.Management {
				t.Errorf("%s:%s has addresses %v", n.Name, i.Name, i.Addresses)
			}
		}
		if n.Routing.Speaks(slice.OSPF) || n.Routing.Speaks(slice.BGP) {
			t.Errorf("%s runs %v", n.Name, n.Routing.Protocols)
		}
	}
	if r := s.Node("r1").Routing; r == nil || r.Daemon != slice.FRR {
		t.Errorf("r1 does not start FRR: %+v", r)
	}
}

func TestClabBindsAWholeConfigurationDirectory(t *testing.T) {
	dir := fstest.MapFS{"r1/frr.conf": {}, "r1/daemons": {}, "r1/sub/x": {}}
	top, _ := clabOf(t, "topology: {nodes: {r1: {kind: linux, image: frrouting/frr, binds: ['./r1:/etc/frr']}}}",
		ClabOptions{Dir: dir})
	want := map[string]*topology.Source{"frr.conf": {Path: "r1/frr.conf"}, "daemons": {Path: "r1/daemons"}}
	if diff := cmp.Diff(want, top.Nodes["r1"].Config); diff != "" || top.Name != "lab" {
		t.Errorf("%s: %s", top.Name, diff)
	}
}

func TestClabReplacesVariables(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"TAG": "1.2", "EMPTY": ""}[name]
		return v, ok
	}
	for in, want := range map[string]string{"$TAG": "1.2", "${TAG}x": "1.2x", "${NO:-d}": "d", "${NO:=d}": "d",
		"${NO-}": "", "${TAG:+x}": "x", "${NO:+x}": "", "${EMPTY+x}": "x", "${EMPTY:+x}": "",
		"${EMPTY:-d}": "d", "${EMPTY-d}": "",
		"$NO ${NO}": "$NO ${NO}", "$$TAG": "$TAG", "5$": "5$", "${TAG:-d}": "1.2"} {
		if got := string(expandVariables([]byte(in), env)); got != want {
			t.Errorf("%s gives %q, want %q", in, got, want)
		}
	}
}

func TestBadClabIsReportedWithItsPlace(t *testing.T) {
	nodes := "topology:\n  nodes:\n    a: {kind: linux, image: alpine}\n    b: {kind: linux, image: alpine}\n"
	for name, test := range map[string]struct {
		data         string
		line, column int
		want         string
	}{
		"empty":       {"", 1, 1, "empty"},
		"not YAML":    {"a: [1", 1, 4, "not YAML"},
		"template":    {"topology:\n{{ if .x }}\n  nodes:\n    a:\n{{ end }}\n", 0, 0, "no topology"},
		"a list":      {"- a", 1, 1, "is a list"},
		"no topology": {"name: x\n", 1, 1, "no topology"},
		"no nodes":    {"topology:\n  links: []\n", 2, 3, "no nodes"},
		"no kind":     {"topology:\n  nodes:\n    a: {image: x}\n", 3, 5, "has no kind"},
		"unsupported kind": {"topology:\n  nodes:\n    a:\n      kind: nokia_sros\n", 4, 13,
			"node a is of kind nokia_sros, whose image does not run here"},
		"kind of containers": {"topology:\n  nodes:\n    a:\n      kind: nokia_srlinux\n", 4, 13,
			"node a is of kind nokia_srlinux: say what is in its place"},
		"no image":     {"topology:\n  nodes:\n    a: {kind: linux}\n", 3, 5, "has no image"},
		"node twice":   {nodes + "    a: {kind: bridge}\n", 5, 5, `key "a" is written twice`},
		"unknown node": {nodes + "  links:\n    - endpoints: ['a:eth1', 'c:eth1']\n", 6, 29, `no node is called "c"`},
		"interface twice": {nodes + "  links:\n    - endpoints: ['a:eth1', 'b:eth1']\n" +
			"    - endpoints: ['a:eth1', 'b:eth2']\n", 7, 19, "used by two links"},
		"three ends":   {nodes + "  links:\n    - endpoints: ['a:eth1', 'b:eth1', 'b:eth2']\n", 6, 18, "two endpoints"},
		"no interface": {nodes + "  links:\n    - endpoints: ['a', 'b:eth1']\n", 6, 19, "names no interface"},
		"vxlan without remote": {nodes + "  links:\n    - {type: vxlan, endpoint: {node: a, interface: eth1}" +
			", vni: 7}\n", 6, 7, "is not an address"},
		"vxlan without port": {nodes + "  links:\n    - {type: vxlan, endpoint: {node: a, interface: eth1}, " +
			"vni: 7, remote: 172.20.20.3}\n", 6, 7, "dst-port"},
		"address outside of the management network": {"topology:\n  nodes:\n" +
			"    a: {kind: linux, image: alpine, mgmt-ipv4: 192.0.2.1}\n", 3, 48,
			"is not in 172.20.20.0/24"},
		"address of management taken": {"topology:\n  nodes:\n    a: &a {kind: linux, image: alpine, " +
			"mgmt-ipv4: 172.20.20.2}\n    b: *a\n", 3, 51, "is taken"},
		"unknown type": {nodes + "  links:\n    - {type: wormhole, endpoint: {node: a, interface: eth1}}\n", 6,
			14, "unknown type"},
		"address": {nodes + "  links:\n    - {type: veth, endpoints: [{node: a, interface: eth1, ipv4: " +
			"10.0.0.1}, {node: b, interface: eth1}]}\n", 6, 65, "not an address"},
		"network-mode": {"topology:\n  nodes:\n    a: {kind: linux, image: alpine, network-mode: " +
			"'container:b'}\n",
			3, 51, "network-mode"},
		"bind": {"topology:\n  nodes:\n    a: {kind: linux, image: alpine, binds: [x]}\n", 3, 45,
			"not complete"},
		"memory": {"topology:\n  nodes:\n    a: {kind: linux, image: alpine, memory: much}\n", 3, 45, "memory"},
		"cpu":    {"topology:\n  nodes:\n    a: {kind: linux, image: alpine, cpu: NaN}\n", 3, 42, "not a number"},
		"bombs": {"a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n" +
			"c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n" +
			"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n" +
			"e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n" +
			"f: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n", 0, 0,
			"expand to too much"},
		"an alias of itself": {"a: &a [*a]\n", 0, 0, "nest too deep"},
		"brackets":           {strings.Repeat("[", 100_000), 1, 101, "nested deeper than 100 levels"},
		"misspelt kind": {"topology:\n  nodes:\n    a:\n      kind: nokia_srlinx\n", 4, 13,
			`node a: kind "nokia_srlinx" is not known`},
		"misspelt key of a node": {nodes + "    c: {kind: linux, image: alpine, exce: [x]}\n", 5, 37,
			`a node has no "exce"`},
		"misspelt key of a link": {nodes + "  links:\n    - endpoint: ['a:eth1', 'b:eth1']\n", 6, 17,
			"endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			top, found := Clab("bad.clab.yml", []byte(test.data), ClabOptions{})
			errs := slices.DeleteFunc(found, func(d topology.Diagnostic) bool { return d.Warning })
			if top != nil || len(errs) == 0 {
				t.Fatalf("topology %v, diagnostics %v", top, found)
			}
			d := errs[0]
			if d.Line == 0 || !strings.Contains(d.Message, test.want) || test.line != 0 &&
				(d.Line != test.line || d.Column != test.column) {
				t.Errorf("got %s\nwant %d:%d %s", errs, test.line, test.column, test.want)
			}
		})
	}
}

func TestUnsupportedKindIsReportedOnce(t *testing.T) {
	_, found := Clab("x.clab.yml", []byte("topology:\n  defaults: {kind: arista_ceos}\n"+
		"  nodes: {a: {}, b: {}, c: {}}\n"), ClabOptions{})
	want := `x.clab.yml:2:20: nodes a, b and c are of kind arista_ceos: say what is in its place ` +
		`(pergola up --kind arista_ceos=frr x.clab.yml, or with the vendor's image --kind arista_ceos=image)`
	if len(found) != 1 || found[0].String() != want {
		t.Errorf("got %v\nwant %s", found, want)
	}
}

func FuzzClab(f *testing.F) {
	f.Add([]byte(campus))
	f.Add([]byte("topology: {nodes: {a: {kind: bridge}, 'b.c': {kind: host}}, links: " +
		"[{endpoints: ['a:x', 'b.c:y']}]}"))
	f.Add([]byte(vendors))
	f.Add([]byte(managed))
	f.Fuzz(func(t *testing.T, data []byte) {
		Clab("f.clab.yml", data, ClabOptions{Kinds: KindTable{AllKinds: AsFRR}}) // does not panic
		Clab("f.clab.yml", data, ClabOptions{Kinds: KindTable{AllKinds: AsImage}})
		top, found := Clab("f.clab.yml", data, ClabOptions{Dir: campusDir})
		if (top == nil) != (found.Err() != nil) {
			t.Fatalf("topology %v with %v", top, found)
		}
		if top != nil {
			if s, found := topology.Resolve(top, nil); (s == nil) != (found.Err() != nil) {
				t.Fatalf("slice %v with %v", s, found)
			}
		}
	})
}
