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

// vendors has one node of each kind that starts from its vendor's image.
const vendors = `
name: vendors
topology:
  nodes:
    srl: {kind: nokia_srlinux, image: ghcr.io/nokia/srlinux, startup-config: srl.cli, license: srl.key}
    srljson: {kind: srl, image: ghcr.io/nokia/srlinux, startup-config: srl.json, env: {A: b}}
    ceos: {kind: ceos, image: "ceos:4.32.0F", env: {INTFTYPE: et}}
    crpd: {kind: crpd, image: crpd, startup-config: crpd.conf}
    xrd: {kind: cisco_xrd, image: xrd, startup-config: "hostname {{ "{{ .ShortName }}" }}\nend\n"}
    sonic: {kind: sonic-vs, image: sonic, startup-config: x.json, exec: [show version]}
    vyos: {kind: vyosnetworks_vyos, image: vyos, startup-config: "https://example.com/x"}
  links:
  - endpoints: ["srl:ethernet-1/1", "xrd:Gi0-0-0-0"]
  - endpoints: ["ceos:eth1", "xrd:Gi0-0-0-1"]
  - endpoints: ["srl:e1-2", "crpd:eth1"]
`

var vendorsDir = fstest.MapFS{"srl.cli": {Data: []byte("set / system name x\n")},
	"srl.json": {Data: []byte(`{"a": 1}`)}}

func allImages() ClabOptions {
	return ClabOptions{Dir: vendorsDir, Kinds: KindTable{AllKinds: AsImage}}
}

func TestVendorsImagesStartAsContainerlabStartsThem(t *testing.T) {
	top, found := clabOf(t, vendors, allImages())
	srl, ceos, xrd, sonic := top.Nodes["srl"], top.Nodes["ceos"], top.Nodes["xrd"], top.Nodes["sonic"]
	if srl.Image != "ghcr.io/nokia/srlinux" || srl.User != "0:0" || srl.Env["SRLINUX"] != "1" ||
		!slices.Equal(srl.Args, []string{"sudo", "-E", "bash", "-c",
			"touch /.dockerenv && /opt/srlinux/bin/sr_linux"}) ||
		srl.Sysctls["net.ipv4.ip_forward"] != "0" || len(srl.Cmd) > 0 || srl.Kind != slice.Host {
		t.Errorf("srl: %+v", srl)
	}
	if got := srl.Files[srlCLI].Content; got != "set / system name x\ncommit save\n" {
		t.Errorf("srl: commands %q", got)
	}
	if len(srl.Exec) != 1 || !strings.HasSuffix(srl.Exec[0], "sr_cli -ed <"+srlCLI) ||
		srl.Files["/opt/srlinux/etc/license.key"].Source.Path != "srl.key" {
		t.Errorf("srl: exec %q, files %v", srl.Exec, srl.Files)
	}
	json := top.Nodes["srljson"]
	if json.Files["/etc/opt/srlinux/config.json"].Content != `{"a": 1}` || len(json.Exec) > 0 ||
		json.Env["A"] != "b" {
		t.Errorf("srljson: files %v, exec %q, env %v", json.Files, json.Exec, json.Env)
	}
	if len(ceos.Cmd) != 9 || ceos.Cmd[0] != "/sbin/init" ||
		!slices.Contains(ceos.Cmd, "systemd.setenv=INTFTYPE=et") || ceos.Env["INTFTYPE"] != "et" ||
		ceos.Env["CEOS"] != "1" {
		t.Errorf("ceos: cmd %q, env %v", ceos.Cmd, ceos.Env)
	}
	if got := ceos.Files["/mnt/flash/startup-config"].Content; !strings.HasPrefix(got, "hostname ceos\n") {
		t.Errorf("ceos: %q", got)
	}
	if want := "linux:Gi0-0-0-0,xr_name=Gi0/0/0/0;linux:Gi0-0-0-1,xr_name=Gi0/0/0/1;"; xrd.Env["XR_INTERFACES"] !=
		want || xrd.Files["/etc/xrd/first-boot.cfg"].Content != "hostname xrd\nend\n" {
		t.Errorf("xrd: env %v, files %v", xrd.Env, xrd.Files)
	}
	if len(sonic.Exec) != 2 || !strings.Contains(sonic.Exec[0], "supervisorctl start bgpd") ||
		sonic.Exec[1] != "show version" || len(sonic.Cmd)+len(sonic.Args) > 0 {
		t.Errorf("sonic: %+v", sonic)
	}
	// A file that is not beside the topology is looked for by whoever reads files.
	if f := top.Nodes["crpd"].Files["/config/juniper.conf"]; f.Source == nil {
		t.Errorf("crpd: %+v", f)
	}
	var got []string
	for _, l := range top.Links {
		got = append(got, string(l.Ends[0]), string(l.Ends[1]))
	}
	want := []string{"srl:e1-1", "xrd:Gi0-0-0-0", "ceos:eth1", "xrd:Gi0-0-0-1", "srl:e1-2", "crpd:eth1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text := found.Error()
	for _, want := range []string{"startup-config of node vyos (nothing is fetched",
		"startup-config of node sonic (containers of kind sonic-vs read none)", "privileges of kind srl"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	resolved(t, top)
}

// An image that is no container stays an error, whatever all kinds become.
func TestImagesOfMachinesDoNotStart(t *testing.T) {
	for kind, opt := range map[string]ClabOptions{"nokia_sros": allImages(),
		"cisco_n9kv": {Kinds: KindTable{"cisco_n9kv": AsImage}}} {
		_, found := Clab("x.clab.yml", []byte("topology: {nodes: {a: {kind: "+kind+", image: x}}}"), opt)
		if found.Err() == nil || !strings.Contains(found.Error(), kind) {
			t.Errorf("%s: %v", kind, found)
		}
	}
}

func TestProcessesAreThoseOfDocker(t *testing.T) {
	const lab = `
topology:
  kinds: {linux: {image: "example/x:1"}}
  nodes:
    plain: {kind: linux}
    args: {kind: linux, cmd: "serve --all", user: "nobody:nogroup"}
    both: {kind: linux, entrypoint: /entry, cmd: serve}
    ours: {kind: linux, image: alpine, cmd: sleep infinity}
    shell: {kind: linux, image: alpine, cmd: 'sh -c "date & sh"'}
`
	top, _ := clabOf(t, lab, ClabOptions{Local: func(image string) string { return "docker-daemon:" + image }})
	plain, args, both := top.Nodes["plain"], top.Nodes["args"], top.Nodes["both"]
	ours, shell := top.Nodes["ours"], top.Nodes["shell"]
	if plain.Image != "docker-daemon:example/x:1" || plain.Stdin == nil || len(plain.Cmd)+len(plain.Args) > 0 {
		t.Errorf("plain: %+v", plain)
	}
	if !slices.Equal(args.Args, []string{"serve", "--all"}) || len(args.Cmd) > 0 || args.User != "nobody:nogroup" {
		t.Errorf("args: %+v", args)
	}
	if !slices.Equal(both.Cmd, []string{"/entry", "serve"}) || len(both.Args) > 0 {
		t.Errorf("both: %+v", both)
	}
	if ours.Image != "" || ours.Stdin != nil || len(ours.Cmd) > 0 {
		t.Errorf("ours: %+v", ours)
	}
	if shell.Stdin == nil || !*shell.Stdin || !slices.Equal(shell.Cmd, []string{"sh", "-c", "date & sh"}) {
		t.Errorf("shell: %+v", shell)
	}
}

// A /29 has six addresses, of which the machine has one. The last one of all is the broadcast address.
func TestNodesBeyondTheManagementNetworkHaveNoAddressInIt(t *testing.T) {
	top, found := clabOf(t, "mgmt: {ipv4-subnet: 192.0.2.0/29}\ntopology:\n  kinds: {linux: {image: alpine}}\n"+
		"  nodes: {a: , b: , c: , d: , e: , f: }\n  defaults: {kind: linux}\n", ClabOptions{})
	s := resolved(t, top)
	for node, want := range map[string]string{"a": "192.0.2.2/29", "e": "192.0.2.6/29", "f": ""} {
		got := ""
		for _, p := range s.Node(node).Interface("eth0").Addresses {
			if p.Addr().Is4() {
				got = p.String()
			}
		}
		if got != want {
			t.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	if text := found.Error(); !strings.Contains(text, "addresses in 192.0.2.0/29 of node f (all are taken") {
		t.Errorf("it says:\n%s", text)
	}
}

const managed = `
mgmt: {network: custom, ipv4-subnet: 172.20.25.0/24, mtu: 1400, bridge: br-x}
topology:
  kinds: {linux: {image: alpine}}
  nodes:
    a: {kind: linux, mgmt-ipv4: 172.20.25.22}
    b: {kind: linux}
    c: {kind: linux, network-mode: none}
    br: {kind: bridge, exec: [x], mgmt-ipv4: 172.20.25.9}
    h: {kind: host, memory: 1G}
    r: {kind: ceos, mgmt-ipv4: 172.20.25.23}
  links:
  - endpoints: ["b:eth1", "mgmt-net:b-mgmt"]
  - {type: vxlan, endpoint: {node: a, interface: vx0, mac: "02:00:00:00:00:04"}, remote: 172.20.25.2, vni: 100,
     dst-port: 14788}
  - {type: vxlan-stitch, endpoint: {node: b, interface: vx0}, remote: 192.0.2.9, vni: 7, dst-port: 4789}
  - {type: macvlan, endpoint: {node: b, interface: mac0}, host-interface: ens3}
`

func TestTheManagementNetworkIsASwitch(t *testing.T) {
	opt := allFRR()
	top, found := clabOf(t, managed, opt)
	s := resolved(t, top)
	if s.Node("mgmt").Kind != slice.Switch {
		t.Errorf("mgmt: %+v", s.Node("mgmt"))
	}
	for end, want := range map[string]string{"a:eth0": "172.20.25.22/24", "b:eth0": "172.20.25.2/24"} {
		node, face, _ := strings.Cut(end, ":")
		i := s.Node(node).Interface(face)
		if i == nil || !i.Management || len(i.Addresses) != 2 || i.Addresses[0].String() != want ||
			i.MTU != 1400 {
			t.Errorf("%s: %+v, want %s", end, i, want)
		}
		if _, ok := s.Node(node).Address(false); ok {
			t.Errorf("the name of %s means its address in the management network", node)
		}
		if p, ok := s.Node(node).ManagementAddress(false); !ok || p.String()+"/24" != want {
			t.Errorf("%s: management address %v", node, p)
		}
	}
	if i := s.Node("b").Interface("eth1"); i == nil || !i.Management || len(i.Addresses) > 0 {
		t.Errorf("b:eth1 %+v", i)
	}
	for _, node := range []string{"c", "r"} {
		if i := s.Node(node).Interface("eth0"); i != nil {
			t.Errorf("%s:eth0 %+v", node, i)
		}
	}
	want := "ip link add 'vx0' type vxlan id 100 remote 172.20.25.2 dstport 14788 && " +
		"ip link set dev 'vx0' address 02:00:00:00:00:04 && ip link set dev 'vx0' up"
	if got := top.Nodes["a"].Exec; len(got) != 1 || got[0] != want {
		t.Errorf("a: exec %q", got)
	}
	text := found.Error()
	for _, want := range []string{"remote of links of type vxlan-stitch of node b (192.0.2.9 is no address",
		"links of type macvlan of node b", "exec of node br", "mgmt-ipv4 of node br", "memory of node h",
		"mgmt-ipv4 of node r (a router of ours"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	if strings.Contains(text, "remote of links of type vxlan of") {
		t.Error(text)
	}
}

func TestWithoutAWordOfItThereIsNoManagementNetwork(t *testing.T) {
	top, _ := clabOf(t, "topology: {nodes: {a: {kind: linux, image: alpine}, mgmt: {kind: linux, image: alpine}}}",
		ClabOptions{})
	if len(top.Links) > 0 || len(top.Nodes) != 2 {
		t.Errorf("%+v", top)
	}
	top, _ = clabOf(t, "mgmt: {network: x}\ntopology: {nodes: {mgmt: {kind: linux, image: alpine}}}", ClabOptions{})
	if top.Nodes["mgmt-2"].Kind != slice.Switch {
		t.Errorf("%+v", top.Nodes)
	}
}

func TestNodesShareANetworkAndHoldBridges(t *testing.T) {
	const lab = `
topology:
  kinds: {linux: {image: alpine}}
  nodes:
    "br|bp": {kind: bridge, network-mode: "container:bp"}
    guest: {kind: linux, network-mode: "container:bp", exec: [echo guest]}
    bp: {kind: linux, exec: [echo bp]}
    c: {kind: linux}
  links:
  - endpoints: ["c:eth1", "br|bp:c1"]
  - endpoints: ["c:eth2", "guest:eth7"]
`
	top, _ := clabOf(t, lab, ClabOptions{})
	want := topology.Strings{"ip link add name 'br' type bridge && ip link set dev 'br' up",
		"ip link set dev 'c1' master 'br'", "echo bp", "echo guest"}
	if diff := cmp.Diff(want, top.Nodes["bp"].Exec); diff != "" || len(top.Nodes) != 2 {
		t.Errorf("%d nodes, %s", len(top.Nodes), diff)
	}
	if top.Links[0].Ends[1] != "bp:c1" || top.Links[1].Ends[1] != "bp:eth7" {
		t.Errorf("links %v", top.Links)
	}
	for nodes, want := range map[string]string{
		"a: {image: x/y, network-mode: 'container:b'}, b: {image: x/y}": "different images",
		"a: {image: alpine, network-mode: 'container:a'}":               "names no other node",
		"'a|b': {kind: bridge}, c: {image: alpine}":                     "runs nothing",
	} {
		text := "topology: {defaults: {kind: linux}, nodes: {" + nodes + "}}"
		_, found := Clab("x.clab.yml", []byte(text), ClabOptions{})
		if found.Err() == nil || !strings.Contains(found.Error(), want) {
			t.Errorf("%s: %v, want %s", text, found, want)
		}
	}
}

// Empty entries of lists do not shift the places of those behind them.
func TestPlacesInListsWithEmptyEntries(t *testing.T) {
	const lab = "topology:\n  nodes:\n    a:\n      kind: linux\n      image: alpine\n      ports:\n" +
		"      -\n      - 80:8080\n      env-files:\n      -\n      - nowhere\n      exec:\n      -\n" +
		"      - apk add x\n"
	_, found := clabOf(t, lab, ClabOptions{Root: true})
	places := map[string]int{"ports": 8, "env-files": 11, `"apk add x"`: 14}
	for _, d := range found {
		for what, line := range places {
			if strings.HasPrefix(d.Message, what) {
				if d.Line != line || d.Column != 9 {
					t.Errorf("%s is at %d:%d, want %d:9", what, d.Line, d.Column, line)
				}
				delete(places, what)
			}
		}
	}
	if len(places) > 0 {
		t.Errorf("%v are not reported: %v", places, found)
	}
}

func TestKeysOfBridgesAndHostsAreNamed(t *testing.T) {
	_, found := Clab("x.clab.yml", []byte("topology:\n  defaults: {image: alpine, exec: [x]}\n  nodes:\n"+
		"    br: {kind: bridge, exce: [x]}\n    h: {kind: host, labls: {}}\n"), ClabOptions{})
	text := found.Error()
	for _, want := range []string{`x.clab.yml:4:24: a node has no "exce"`,
		`x.clab.yml:5:21: a node has no "labls"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	if strings.Contains(text, ":2:") {
		t.Errorf("what the defaults say is for other nodes:\n%s", text)
	}
}

// What is wrong in a text that a template gave is at a line of that text, and says so.
func TestFaultsOfFilledTemplatesSaySo(t *testing.T) {
	_, found := Clab("x.clab.gotmpl", []byte("name: {{ \"x\" }}\ntopology:\n  nodes:\n"+
		"    a: {kind: linx}\n    b: {}\n"), ClabOptions{})
	const note = "lines are those of the template filled in"
	if found.Err() == nil || !strings.Contains(found[0].Hint, note) || strings.Count(found.Error(), note) != 1 {
		t.Errorf("%v", found)
	}
}

// What is good in containerlab's eyes and not in Pergola's is reported at its place, by the file's own keys.
func TestFaultsOfTheNetworkAreAtTheirPlace(t *testing.T) {
	const before = "topology:\n  defaults: {kind: linux, image: alpine}\n  nodes:\n    b: {}\n    a:\n"
	for text, want := range map[string]string{
		before + "      sysctls: {kernel.x: 1}\n": "x.clab.yml:6:16: sysctls of node a: sysctl",
		before + "      image: Bad\n":             `x.clab.yml:6:14: image of node a: "Bad" is not an image`,
		before + "      env: {\"a=b\": c}\n":      "x.clab.yml:6:12: env of node a: ",
		before + "      cpu: 1\n  links:\n  - endpoints: [\"a:eth1\", \"b:a-name-of-16-chars\"]\n": "" +
			"x.clab.yml:8:5: a link: interface name",
	} {
		_, found := Clab("x.clab.yml", []byte(text), ClabOptions{})
		if err := found.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestLongNamesOfTheMachinesInterfacesAreShortened(t *testing.T) {
	top, _ := clabOf(t, "topology: {nodes: {a: {kind: linux, image: alpine}}, links: [{endpoints: "+
		"['a:eth1', 'host:some_very_long_node_name_l1_eth1']}, {endpoints: ['a:eth2', "+
		"'host:some_very_long_node_name_l1_eth2']}]}", ClabOptions{})
	one, two := top.Links[0].Ends[1].Interface(), top.Links[1].Ends[1].Interface()
	if len(one) != maxFace || len(two) != maxFace || one == two || !strings.HasPrefix(one, "some_very_") {
		t.Errorf("%s and %s", one, two)
	}
}

func TestOnlyTheInstallationOfALineIsLeftOut(t *testing.T) {
	const lab = "topology: {nodes: {a: {kind: linux, image: alpine, " +
		"exec: [\"ash -c 'apk add iproute2 -q && ip link'\"]}}}"
	top, found := clabOf(t, lab, ClabOptions{})
	if got := top.Nodes["a"].Exec; len(got) != 1 || got[0] != "sh -c 'ip link'" {
		t.Errorf("exec %q", got)
	}
	if want := `"apk add iproute2 -q" is left out`; !strings.Contains(found.Error(), want) {
		t.Errorf("%v, want %s", found, want)
	}
	top, _ = clabOf(t, strings.Replace(lab, "image: alpine", "image: x/y", 1), ClabOptions{})
	if got := top.Nodes["a"].Exec[0]; !strings.Contains(got, "apk add") {
		t.Errorf("an image of its own installs: %q", got)
	}
}
