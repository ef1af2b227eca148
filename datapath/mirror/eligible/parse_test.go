package eligible

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJudgeLinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		links []link
		want  []string
	}{
		{"nothing special", []link{{index: 1, name: "lo"}, {index: 2, name: "eth0", kind: "veth", lower: 2, elsewhere: true}}, nil},
		{"ports", []link{{index: 2, name: "eth0", master: 5}, {index: 5, name: "bond0", kind: "bond"}}, []string{"eth0 belongs to bond bond0"}},
		{"a master that nobody sees", []link{{index: 2, name: "eth0", master: 5}}, []string{"eth0 belongs to another interface"}},
		{"VRF", []link{{index: 2, name: "eth0", master: 5}, {index: 5, name: "red", kind: "vrf"}}, []string{"eth0 belongs to vrf red", "red is a VRF"}},
		{"ipvlan", []link{{index: 2, name: "eth0"}, {index: 5, name: "i", kind: "ipvlan", lower: 2}}, []string{"ipvlan i takes frames of eth0"}},
		{"macvlan of elsewhere", []link{{index: 2, name: "eth0"}, {index: 5, name: "m", kind: "macvlan", lower: 2, elsewhere: true}}, nil},
		{"VLAN: tagged frames are punted", []link{{index: 2, name: "eth0"}, {index: 5, name: "eth0.7", kind: "vlan", lower: 2}}, nil},
		{"XDP", []link{{index: 2, name: "eth0", xdp: true}}, []string{"XDP program on eth0"}},
	} {
		got := judgeLinks(c.links)
		if !slices.Equal(got.IPv4, c.want) || !slices.Equal(got.IPv6, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestChainsThatMatter(t *testing.T) {
	for _, c := range []struct {
		chain chain
		want  string // "": does not matter
	}{
		{chain{family: unix.NFPROTO_INET, table: "t", name: "c", kind: "filter", policy: 1, rules: 2}, ""},
		{chain{family: unix.NFPROTO_INET, table: "t", name: "c", kind: "filter", hooked: true, hook: unix.NF_INET_LOCAL_IN, rules: 2}, ""},
		{chain{family: unix.NFPROTO_INET, table: "t", name: "c", kind: "filter", hooked: true, hook: unix.NF_INET_FORWARD, policy: 1}, ""},
		{chain{family: unix.NFPROTO_INET, table: "t", name: "c", kind: "filter", hooked: true, hook: unix.NF_INET_FORWARD}, "inet t c (forward: 0 rules, policy drop)"},
		{chain{family: unix.NFPROTO_INET, table: "t", name: "c", kind: "filter", hooked: true, hook: nftInetIngress, policy: 1, rules: 1}, "inet t c (ingress: 1 rules)"},
		{chain{family: unix.NFPROTO_NETDEV, table: "t", name: "c", kind: "filter", hooked: true, hook: unix.NF_NETDEV_EGRESS, policy: 1, rules: 1}, "netdev t c (egress: 1 rules)"},
		{chain{family: unix.NFPROTO_IPV4, table: "t", name: "c", kind: "nat", hooked: true, hook: unix.NF_INET_PRE_ROUTING, policy: 1}, "ip t c (prerouting: 0 rules)"},
		{chain{family: unix.NFPROTO_IPV6, table: "t", name: "c", kind: "filter", hooked: true, hook: unix.NF_INET_POST_ROUTING, policy: 1, rules: 3}, "ip6 t c (postrouting: 3 rules)"},
	} {
		if !c.chain.matters() {
			if c.want != "" {
				t.Errorf("%v does not matter, want %q", c.chain, c.want)
			}
		} else if got := c.chain.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestOldTablesWithRules(t *testing.T) {
	x := xtablesFamilies[0]
	info := xtInfo{hooks: 1<<unix.NF_INET_FORWARD | 1<<unix.NF_INET_LOCAL_IN}
	info.underflow[unix.NF_INET_LOCAL_IN] = 500 // has rules, which do not matter
	if info.hasRules() {
		t.Error("rules of INPUT matter")
	}
	if got := x.reasons("filter", info, []byte{1, 2, 3}); len(got) != 1 ||
		!strings.Contains(got[0], "FORWARD: policy") {
		t.Errorf("entries that are no entries: %q", got)
	}
	info.begin[unix.NF_INET_FORWARD], info.underflow[unix.NF_INET_FORWARD] = 152, 304
	if got := x.reasons("filter", info, nil); !info.hasRules() || len(got) != 1 ||
		got[0] != "iptables table filter, chain FORWARD: rules" {
		t.Errorf("rules of FORWARD: %q", got)
	}
}

func TestFewReasonsForPeople(t *testing.T) {
	got := few([]string{"a", "a", "b\x1b[2J", "c", "d", "e", "f", "a"})
	if want := []string{"a", "b?[2J", "c", "d", "and 2 more like that"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzParsers: no bytes make a parser fail but with an error.
func FuzzParsers(f *testing.F) {
	f.Add(make([]byte, 200))
	f.Add([]byte{unix.AF_INET, 8, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0, 8, 0, 6, 0, 100, 0, 0, 0, 8, 0, 1, 0, 10, 0, 0,
		0})
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseRule(data)
		_, _ = parseLink(data)
		_, _ = parseQdisc(data)
		_, _ = parseForwarding(data)
		if c, err := parseChain(data); err == nil {
			_, _ = c.matters(), c.String()
		}
		_, _, _ = parseFlowtable(data)
		_, _ = parsePolicy(data)
		if s, err := parsePacketSocket(data); err == nil {
			_, _ = s.sees(unix.ETH_P_IP, transit4), s.sees(unix.ETH_P_IPV6, transit6)
		}
		if len(data) >= xtInfoSize {
			info := parseXtInfo(data)
			for _, x := range xtablesFamilies {
				_ = x.reasons("filter", info, data[xtInfoSize:])
			}
		}
	})
}
