package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestErrorsSayWhereAndWhatInstead has files with errors, and all that is said about each.
func TestErrorsSayWhereAndWhatInstead(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"empty":         {"", "t.yaml:1:1: the file is empty (write at least nodes: and links:)"},
		"comment alone": {"# nothing\n", "t.yaml:1:1: the file is empty (write at least nodes: and links:)"},
		"scalar":        {"hello\n", `t.yaml:1:1: a topology is a map, this is "hello" (write nodes: and links:)`},
		"list":          {"- a\n", "t.yaml:1:1: a topology is a map, this is a list (write nodes: and links:)"},
		"tab": {"nodes:\n\ta:\n", "t.yaml:2:1: not YAML: found character '\t' that cannot start any token " +
			"(YAML indents by spaces, not by tabs)"},
		"not UTF-8": {"nodes: [a]\n# caf\xe9\n", "t.yaml:2:6: byte 0xe9 is not UTF-8 (save the file as UTF-8 text)"},
		"control":   {"nodes: [a\x00]\n", "t.yaml:1:10: control character 0x00 (save the file as UTF-8 text)"},
		"open bracket": {"nodes: [a\nlinks: []\n",
			"t.yaml:2:6: not YAML: did not find expected ',' or ']' (the [ in line 1 is not closed)"},
		"two documents": {"nodes: [a]\n---\nnodes: [b]\n",
			"t.yaml:3:1: the file holds 2 YAML documents (one network, one file)"},
		"program": {"nodes:\n  a: {kind: host, program: x.o}\n  b: {kind: program}\n" +
			"  c: {kind: router, filters: f}\n  d: {program: x.o, daemon: frr, gateway: none}\n" +
			"  e: {program: x.o, filters: [{filter: any}, {filter: any -> drop, source: f}]}\n" +
			"  f: {program: {path: x.o}}\n",
			"t.yaml:2:28: a host has no program (only a node of kind: program has it)\n" +
				`t.yaml:3:3: "b" is of kind program, and names no program (write program: x.c, or ` +
				"x.o)\n" +
				"t.yaml:4:30: a router has no filters (only a node of kind: program has it)\n" +
				"t.yaml:5:29: a program has no daemon\nt.yaml:5:43: a program has no gateway\n" +
				`t.yaml:6:31: "any" is no filter (write such as any -> punt, or the path of a ` +
				"file)\n" +
				"t.yaml:6:46: filter and source both say what is looked up (keep one of them)"},
		"no nodes": {"name: x\n", "t.yaml:1:1: the topology has no nodes (write nodes: [a, b])"},
		"containerlab": {"topology:\n  nodes: {a: }\n",
			"t.yaml:1:1: unknown key \"topology\" (a containerlab file? Try pergola import)"},
		"unknown key": {"nodes:\n  a: {deamon: frr}\n", `t.yaml:2:7: unknown key "deamon" (did you mean "daemon"?)`},
		"duplicate key": {"nodes:\n  a: {cpu: 1}\n  a:\n",
			`t.yaml:3:3: key "a" is written twice (it stands in line 2 already)`},
		"duplicate name": {"nodes: [a, b, a]\n", `t.yaml:1:15: node "a" is written twice`},
		"case": {"nodes: [Denver, denver]\n",
			`t.yaml:1:17: nodes "Denver" and "denver" differ in case alone (host names do not tell them ` +
				`apart)`},
		"wrong type": {"nodes:\n  a: {cpu: lots, env: [x]}\n",
			"t.yaml:2:12: cpu is a number, not \"lots\"\nt.yaml:2:23: env is a map, not a list"},
		"periods of the processor": {"nodes:\n  a: {cpu_period: 10ms}\n  b: {cpu: 0.5, cpu_period: 2s}\n" +
			"  c: {cpu: 0.05, cpu_period: 10ms}\n  d: {cpu: 1, cpu_period: soon}\n",
			"t.yaml:2:19: the period of a limit of cpu, and there is no limit (write cpu:, too: " +
				"cores, such as 0.5)\n" +
				"t.yaml:3:29: period 2s is out of range: 1ms to 1s\n" +
				"t.yaml:4:30: 0.05 of a core in 10ms is less than the kernel can give in a turn, 1ms " +
				"(take a longer period, or more of cpu)\n" +
				"t.yaml:5:27: cpu_period: \"soon\" is not a duration: write a number and a unit, " +
				"such as 10ms or 1.5s"},
		"node is a list": {"nodes:\n  a: [b]\n", "t.yaml:2:6: a is a map, not a list"},
		"node name": {"nodes:\n  new york:\n",
			`t.yaml:2:3: "new york" is not a name of a node (letters, digits, - and _; first and last a ` +
				`letter or digit)`},
		"long name": {"nodes: [" + strings.Repeat("a", 64) + "]\n",
			`t.yaml:1:9: node name "aaaaaaaaaaaaaaaaaaaa"… has 64 characters: at most 63`},
		"dangling end": {"nodes: [denver, paris]\nlinks:\n  - [denvr, paris]\n",
			`t.yaml:3:6: no node is called "denvr" (did you mean "denver"?)`},
		"end not declared": {"nodes: [a]\nlinks:\n  - [a, zurich]\n",
			`t.yaml:3:9: no node is called "zurich" (add it under nodes:)`},
		"dangling member": {"groups:\n  core:\n    members: [a, bb]\nnodes: [a]\n",
			`t.yaml:3:18: no node is called "bb" (add it under nodes:)`},
		"dangling group": {"groups: {core: {}}\nnodes: {a: {group: cor}}\n",
			`t.yaml:2:20: no group is called "cor" (did you mean "core"?)`},
		"link to itself": {"nodes: [a]\nlinks:\n  - [a, a]\n", `t.yaml:3:9: the link joins "a" to itself`},
		"one end": {"nodes: [a]\nlinks:\n  - [a]\n",
			"t.yaml:3:5: a link joins two nodes or more, this one 1 (write [a, b])"},
		"interface twice": {"nodes: [a, b]\nlinks:\n  - [a:eth1, b]\n  - [a:eth1, b]\n",
			"t.yaml:4:6: interface a:eth1 is used twice, first in links[0]"},
		"interface name": {"nodes: [a, b]\nlinks:\n  - [a:averyveryverylong, b]\n" +
			"  - [a:lo, b]\n  - ['a:', b]\n",
			"t.yaml:3:6: interface name \"averyveryverylong\" has 17 bytes: at most 15\n" +
				"t.yaml:4:6: interface name \"lo\" has a meaning of its own in Linux\n" +
				"t.yaml:5:6: the interface has no name (write a, or a:eth1)"},
		"interface": {"nodes: {a: {interfaces: {eth2: {cost: 5}}}, b: }\nlinks: [[a, b]]\n",
			`t.yaml:1:26: no link ends at a:eth2 (did you mean "eth1"?)`},
		"link name twice": {"nodes: [a, b]\nlinks:\n  - {name: x, ends: [a, b]}\n  - {name: x, ends: [a, b]}\n",
			`t.yaml:4:12: link name "x" is taken by links[0]`},
		"units": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], rate: 10Mpps, delay: 10, loss: 101%, mtu: 9}\n",
			"t.yaml:3:26: rate: \"10Mpps\" is not a rate: write a number and a " +
				"unit, such as 10Mbit or 1G\n" +
				"t.yaml:3:41: delay: \"10\" lacks a unit: write 10ms or 10s\n" +
				"t.yaml:3:51: loss: percentage 101% is out of range: 0% to 100%\n" +
				"t.yaml:3:62: mtu 9 is out of range: 68 to 65535"},
		"negative": {"nodes: {a: {cpu: -1, memory: -5, pids: -3}, b: }\nlinks:\n" +
			"  - {ends: [a, b], delay: -5ms, rate: -1, queue: -1, cost: -1}\n",
			"t.yaml:1:18: cpu -1 is out of range: 0 to 1024\n" +
				"t.yaml:1:30: memory: \"-5\" is not an amount of memory: write " +
				"such as 64MiB or 1GiB\n" +
				"t.yaml:1:40: pids -3 is out of range: 0 to 4194304\n" +
				"t.yaml:3:27: delay: duration -5ms is negative\n" +
				"t.yaml:3:39: rate: \"-1\" is not a rate: write a number and a " +
				"unit, such as 10Mbit or 1G\n" +
				"t.yaml:3:50: queue -1 is out of range: 0 to 1000000\n" +
				"t.yaml:3:60: cost -1 is out of range: 0 to 65535"},
		"bytes": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], rate: 10MB}\n  - {ends: [a, b], rate: 10Mb}\n",
			"t.yaml:3:26: rate: \"10MB\" may be bytes: a rate is in bits, so write 10Mbit"},
		"absurd": {"nodes: {a: {memory: 900PiB}, b: }\nlinks:\n  - {ends: [a, b], rate: 100Tbit, delay: 5h}\n" +
			"  - {ends: [a, b], jitter: 5ms}\n",
			"t.yaml:1:21: memory: memory 900PiB is out of range: 1MiB to 16TiB\n" +
				"t.yaml:3:26: rate: rate 100Tbit is out of range: 8bit to 1Tbit, or 0 for no limit\n" +
				"t.yaml:3:42: delay 5h is out of range: at most 1h0m0s\n" +
				"t.yaml:4:28: jitter 5ms is greater than the delay, 0s"},
		"huge number": {"nodes: {a: {as: 5000000000}}\n", `t.yaml:1:17: as is a whole number, not "5000000000"`},
		"enum": {"nodes: {a: {kind: ruter}, b: {routing: [ospf, eigrp]}}\n",
			"t.yaml:1:19: unknown kind \"ruter\" (did you mean \"router\"?)\n" +
				"t.yaml:1:47: unknown routing \"eigrp\" (known: ospf, isis, bgp, rip, static, none)"},
		"host with daemon": {"nodes: {a: {kind: host, daemon: frr}}\n",
			"t.yaml:1:33: a host has no daemon (write kind: router, or leave kind out)"},
		"fastpath": {"defaults: {node: {fastpath: offf}}\nnodes: {a: {daemon: frr, fastpath: false}}\n",
			"t.yaml:1:29: unknown fastpath \"offf\" (did you mean \"off\"?)\n" +
				"t.yaml:2:36: unknown fastpath \"false\" (known: on, off)"},
		"fastpath key": {"nodes: {a: {daemon: frr, fast_path: off}}\n",
			`t.yaml:1:26: unknown key "fast_path" (did you mean "fastpath"?)`},
		"fastpath of host": {"nodes: {a: {kind: host, fastpath: off}}\n",
			"t.yaml:1:35: a host has no fastpath (write kind: router, or leave kind out)"},
		"volumes of Compose": {"nodes: {a: {volumes: [data:/data]}}\nvolumes: {data: {}}\n",
			`t.yaml:2:1: unknown key "volumes" (write volumes: in the nodes that use them; ` +
				"a volume is made when it is first used)"},
		"switch with cpu": {"nodes: {a: {kind: switch, cpu: 1}}\n", "t.yaml:1:32: a switch has no cpu"},
		"placement": {"placement: sprad\nnodes: {a: {reschedule: allways, host: h 2, host_label: {rack: a}}, " +
			"b: {host_labels: {rack: }}}\nlinks:\n  - {ends: [a, b], tunnel: vxlam, dscp: cpy}\n",
			"t.yaml:1:12: unknown placement \"sprad\" (did you mean \"spread\"?)\n" +
				"t.yaml:2:25: unknown reschedule \"allways\" (did you mean \"always\"?)\n" +
				"t.yaml:2:40: \"h 2\" is not a name of a host (write a name that " +
				"pergola host ls shows)\n" +
				"t.yaml:2:45: unknown key \"host_label\" (did you mean \"host_labels\"?)\n" +
				"t.yaml:2:87: a label of a host has a name and a value (write such as rack: a)\n" +
				"t.yaml:4:28: unknown tunnel \"vxlam\" (did you mean \"vxlan\"?)\n" +
				"t.yaml:4:41: unknown dscp \"cpy\" (did you mean \"copy\"?)"},
		"pinned": {"nodes: {a: {host: h2, reschedule: always}, s: {kind: switch, host: h2}, u: {kind: " +
			"uplink, reschedule: always}}\n",
			"t.yaml:1:35: \"a\" runs on host h2 alone, so it cannot start elsewhere (leave out one of " +
				"them; host_labels leave a choice)\nt.yaml:1:68: a switch has no host\n" +
				"t.yaml:1:103: an uplink has no reschedule"},
		"switch tunnels": {"nodes: {a: , b: , s: {kind: switch}}\nlinks:\n  - {ends: [a, s], tunnel: vxlan}\n" +
			"  - [b, s]\n",
			"t.yaml:4:5: links of switch \"s\" differ in tunnel, dscp or storm_control, but between two " +
				"hosts it has one tunnel (write the same in all of them, or in defaults: {link: ...})"},
		"storm control": {"nodes: [a, b, c]\nlinks:\n  - {ends: [a, b, c], storm_control: 10Mbit}\n" +
			"  - {ends: [a, b, c], storm_control: 0}\n",
			"t.yaml:3:38: storm_control: \"10Mbit\" is no number of frames a second: write such as " +
				"500pps, 20kpps, or off\n" +
				"t.yaml:4:38: storm_control: 0 is out of range: 1pps to 10Mpps, or off"},
		"storm of two": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], storm_control: 100}\n" +
			"  - {ends: [a, b], storm-control: 1}\n",
			"t.yaml:3:35: the link joins two nodes: storm control is for LANs, and links of switches " +
				"(leave it out)\n" +
				"t.yaml:4:20: unknown key \"storm-control\" (write storm_control: 10kpps)"},
		"vni": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], vni: 7}\n",
			"t.yaml:3:20: unknown key \"vni\" (write tunnel: vxlan; Pergola chooses the VNI)"},
		"address twice": {"nodes: [a, b]\nlinks:\n" +
			"  - {ends: [a, b], addresses: {a: 10.0.0.1/24, b: 10.0.0.1/24}}\n",
			"t.yaml:3:51: address 10.0.0.1 is taken by a:eth1 on the same network"},
		"mask": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], addresses: {a: 10.0.0.1/24, b: 10.0.0.2/16}}\n",
			"t.yaml:3:51: prefix length /16 differs from /24, which a:eth1 has on the same " +
				"network (write 10.0.0.2/24)"},
		"outside": {"nodes: [a, b]\nlinks:\n" +
			"  - {ends: [a, b], subnet: 10.0.0.0/24, addresses: {b: 10.0.1.2/24}}\n",
			"t.yaml:3:56: address 10.0.1.2/24 is outside 10.0.0.0/24, which the link " +
				"has on the same network"},
		"no length": {"nodes: {a: {interfaces: {eth1: {addresses: 10.0.0.1}}}, b: }\nlinks: [[a, b]]\n",
			`t.yaml:1:44: address "10.0.0.1" has no prefix length (write such as 10.0.0.1/24)`},
		"broadcast": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], addresses: {a: 10.0.0.255/24}}\n",
			"t.yaml:3:35: 10.0.0.255/24 is the network or broadcast address of its network, " +
				"not one of an interface"},
		"full network": {"nodes: [a, b, c]\nlinks:\n  - {ends: [a, b, c], subnet: 10.0.0.0/30}\n",
			"t.yaml:3:5: network 10.0.0.0/30 has no address left for c:eth1 (write " +
				"a shorter prefix length)"},
		"small mtu": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], mtu: 1000}\n",
			"t.yaml:3:25: mtu 1000 is too small for IPv6 on a:eth1: at least 1280 (write ipv6: false in " +
				"this link, or a greater mtu)\n" +
				"t.yaml:3:25: mtu 1000 is too small for IPv6 on b:eth1: at least 1280 (write ipv6: " +
				"false in this link, or a greater mtu)"},
		"switch loop": {"nodes: {s: {kind: switch}, t: {kind: switch}}\nlinks:\n  - [s, t]\n  - [s, t]\n",
			`t.yaml:4:9: switch "t" closes a loop of switches, in which frames would circle forever ` +
				`(take one of its links away)`},
		"isis with bird": {"nodes: {a: {daemon: bird, routing: isis}}\n",
			`t.yaml:1:36: BIRD has no IS-IS, which "a" is to speak (write daemon: frr, or routing: ospf)`},
		"bgp without as": {"nodes: {a: {routing: bgp}}\n",
			`t.yaml:1:22: "a" is to speak BGP and has no AS number (write as: 65001)`},
		"bgp without igp": {"nodes:\n  a: {routing: bgp, as: 1}\n  b: {routing: [ospf, bgp], as: 1}\n" +
			"links: [[a, b]]\n",
			`t.yaml:2:16: "a" shares AS 1 with other routers and speaks no interior protocol: sessions ` +
				`inside an AS run between loopbacks, which need one (write routing: [ospf, bgp])`},
		"areas": {"nodes: {a: {area: 1}, b: {area: 2}}\ndefaults: {node: {kind: router}}\nlinks:\n  - [a, b]\n",
			"t.yaml:4:5: a:eth1 is in area 0.0.0.1 and b:eth1 in area 0.0.0.2: they will not become " +
				"neighbors (write area: in the link)"},
		"timers": {"nodes: {a: {routing: ospf, hello: 2s}, b: {routing: ospf}}\nlinks:\n  - [a, b]\n",
			`t.yaml:3:5: OSPF timers of "a" (hello 2s, dead 20s, fast false) and "b" (hello 1s, dead ` +
				`10s, fast false) differ: they will not become neighbors (write them in defaults: ` +
				`or in a group)`},
		"sysctl": {"nodes: {a: {sysctls: {kernel.panic: 1, net.ipv4.ip_forward: 1}}}\n",
			`t.yaml:1:37: sysctl "kernel.panic" does not belong to a node (net.*, kernel.msg*, ` +
				`kernel.shm*, kernel.sem and fs.mqueue.* can be set)`},
		"sysctl path": {"nodes: {a: {sysctls: {net.//.kernel.core_pattern: x}}}\n",
			`t.yaml:1:51: sysctl "net.//.kernel.core_pattern" does not belong to a node (net.*, ` +
				`kernel.msg*, kernel.shm*, kernel.sem and fs.mqueue.* can be set)`},
		"file": {"nodes: {a: {files: {etc/x: y, /proc/x: y, /a/../b: y}}}\n",
			"t.yaml:1:28: \"etc/x\" is not an absolute path (write such as /etc/motd)\n" +
				"t.yaml:1:40: \"/proc/x\" is the kernel's\n" +
				"t.yaml:1:52: \"/a/../b\" is not a plain path of a file (write /b)"},
		"image and rootfs": {"nodes: {a: {image: alpine, rootfs: x.tar}}\n",
			"t.yaml:1:36: image and rootfs both name a root file system (keep one of them)"},
		"gateway": {"nodes: {a: {gateway: 192.0.2.1}, r: {routing: none}}\nlinks: [[a, r]]\n",
			`t.yaml:1:22: gateway 192.0.2.1 is on none of the networks of "a"`},
		"route": {"nodes: {a: {routes: [10.0.0.1/8 via 10.1.1.1, 10.0.0.0/8, 10.0.0.0/8 at x]}}\n",
			"t.yaml:1:22: destination 10.0.0.1/8 has bits set beyond its length (write 10.0.0.0/8)\n" +
				"t.yaml:1:47: the route to 10.0.0.0/8 goes nowhere (write via or " +
				"interface, or blackhole: true)\n" +
				"t.yaml:1:59: unknown word \"at\" in a route (write 10.0.0.0/8 via 10.1.1.1 dev eth1)"},
		"check": {"nodes: [a, b]\nchecks:\n  - ping: [a, bb]\n  - {ping: [a, b], exec: ls}\n" +
			"  - {exec: ls, node: a, output: '('}\n",
			"t.yaml:3:15: no node is called \"bb\" (did you mean \"b\"?)\n" +
				"t.yaml:4:5: a check has one of ping, path and exec, this one has 2 (write " +
				"such as ping: [a, b])\n" +
				"t.yaml:5:33: output is not a regular expression: error parsing regexp: missing " +
				"closing ): `(` (RE2 syntax)"},
		"unknown end": {"nodes: [a, b]\nlinks:\n  - {ends: [a, b], from: {c: {delay: 1ms}}}\n",
			`t.yaml:3:27: "c" is not an end of this link (known: a, b)`},
		"alias": {"nodes: {a: *x}\n", "t.yaml:1:12: alias without an anchor"},
		"uplink": {"nodes: {a: , u: {kind: uplink}}\nlinks: [[a, u]]\n",
			"t.yaml:2:13: the interface of an uplink appears on the machine itself: it " +
				"needs a name (write u:NAME)"},
		"pool": {"nodes: {a: {daemon: frr}, b: {daemon: frr}}\n" +
			"addressing: {ipv6: false, loopbacks: 10.0.0.1/32, links: 10.9.0.1/24}\n",
			"t.yaml:1:27: no IPv4 loopback is left for \"b\" (write larger pools under addressing:)\n" +
				"t.yaml:2:58: 10.9.0.1/24 has bits set beyond its length (write 10.9.0.0/24)"},
		"all at once": {"name: x y\nnodes:\n  a: {kind: ruter}\n  b: {memroy: 1}\nlinks:\n" +
			"  - [a, c]\n  - [b, b]\n" +
			"  - {ends: [a, b], dealy: 1ms}\n",
			"t.yaml:1:7: \"x y\" is not a name of a network (letters, digits, - and _; first and " +
				"last a letter or digit)\n" +
				"t.yaml:3:13: unknown kind \"ruter\" (did you mean \"router\"?)\n" +
				"t.yaml:4:7: unknown key \"memroy\" (did you mean \"memory\"?)\n" +
				"t.yaml:6:9: no node is called \"c\" (add it under nodes:)\n" +
				"t.yaml:7:9: the link joins \"b\" to itself\n" +
				"t.yaml:8:20: unknown key \"dealy\" (did you mean \"delay\"?)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := Parse("t.yaml", []byte(c.file))
			var got []string
			for _, d := range found {
				d.Text = "" // the caret is tested by itself
				got = append(got, d.String())
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("of\n%s(-want +got)\n%s", c.file, diff)
			}
		})
	}
}

func TestErrorShowsTheLine(t *testing.T) {
	_, found := Parse("lab.yaml", []byte("nodes: [denver]\nlinks:\n  - [denver, denvr]\n"))
	want := "lab.yaml:3:14: no node is called \"denvr\" (did you mean \"denver\"?)\n" +
		"      - [denver, denvr]\n" +
		"                 ^"
	if diff := cmp.Diff(want, found.Error()); diff != "" {
		t.Error(diff)
	}
}
