package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// story is what somebody does to the router's kernel, and where frames then go.
type story []step

type step struct {
	do    string   // shell
	leads []string // address, where to: "192.0.2.1 10.0.0.2@100"
}

func (s story) run(l *lab) {
	l.Helper()
	l.synced()
	for _, step := range s {
		l.script(step.do)
		for _, w := range step.leads {
			addr, want, _ := strings.Cut(w, " ")
			l.leads(addr, want)
		}
		l.synced()
		for _, w := range step.leads { // and still does, after what the kernel does not announce was found
			addr, want, _ := strings.Cut(w, " ")
			l.leads(addr, want)
		}
		if l.Failed() {
			l.Fatalf("after %s", step.do)
		}
	}
}

func TestKindsOfRoutes(t *testing.T) {
	for title, s := range map[string]story{
		"connected": {{"true", []string{"10.0.1.7 link@101", "10.0.1.1 local", "10.0.1.255 local",
			"127.0.0.1 local", "198.51.100.1 nowhere",
			"2001:db8:2::9 link@102", "2001:db8:2::1 local", "2001:db8:2:: local", "ff02::1 local",
			"::1 local", "2001:db8:9::1 nowhere"}}},
		"add, replace, delete": {
			{"ip route add 192.0.2.0/24 via 10.0.0.2", []string{"192.0.2.1 10.0.0.2@100"}},
			{"ip route replace 192.0.2.0/24 via 10.0.1.2", []string{"192.0.2.1 10.0.1.2@101"}},
			{"ip route del 192.0.2.0/24", []string{"192.0.2.1 nowhere"}},
			{"ip -6 route add 2001:db8:100::/40 via 2001:db8:0::2", []string{"2001:db8:100::1 2001:db8::2@100"}},
			{"ip -6 route replace 2001:db8:100::/40 via 2001:db8:1::2", []string{"2001:db8:100::1 2001:db8:1::2@101"}},
			{"ip -6 route del 2001:db8:100::/40", []string{"2001:db8:100::1 nowhere"}},
		},
		"default": {{"ip route add default via 10.0.2.9; ip -6 route add default via 2001:db8:2::9",
			[]string{"8.8.8.8 10.0.2.9@102", "2600::1 2001:db8:2::9@102", "10.0.1.7 link@101"}}},
		"metrics": {
			{"ip route add 192.0.2.0/24 via 10.0.0.2 metric 20; ip route add 192.0.2.0/24 via 10.0.1.2 metric 10", []string{"192.0.2.1 10.0.1.2@101"}},
			{"ip route del 192.0.2.0/24 metric 10", []string{"192.0.2.1 10.0.0.2@100"}},
			{"ip -6 route add 2001:db8:a::/48 via 2001:db8:0::2 metric 20; ip -6 route add 2001:db8:a::/48 via 2001:db8:1::2 metric 10", []string{"2001:db8:a::1 2001:db8:1::2@101"}},
			{"ip -6 route del 2001:db8:a::/48 metric 10", []string{"2001:db8:a::1 2001:db8::2@100"}},
		},
		"equal cost": {
			{"ip route add 192.0.2.0/24 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2 weight 1", []string{"192.0.2.1 10.0.0.2@100*192 10.0.1.2@101*64"}},
			{"ip -6 route add 2001:db8:a::/48 nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2", []string{"2001:db8:a::1 2001:db8::2@100*128 2001:db8:1::2@101*128"}},
			{"ip -6 route append 2001:db8:a::/48 via 2001:db8:2::2", []string{"2001:db8:a::1 2001:db8::2@100*86 2001:db8:1::2@101*85 2001:db8:2::2@102*85"}},
			{"ip -6 route del 2001:db8:a::/48 via 2001:db8:1::2", []string{"2001:db8:a::1 2001:db8::2@100*128 2001:db8:2::2@102*128"}},
			{"ip -6 route del 2001:db8:a::/48 via 2001:db8:0::2", []string{"2001:db8:a::1 2001:db8:2::2@102"}},
			{"ip -6 route replace 2001:db8:a::/48 nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2", []string{"2001:db8:a::1 2001:db8::2@100*128 2001:db8:1::2@101*128"}},
			{"ip -6 route del 2001:db8:a::/48", []string{"2001:db8:a::1 nowhere"}},
		},
		"refused": {{"ip route add blackhole 192.0.2.0/25; ip route add unreachable 192.0.2.128/26; " +
			"ip route add prohibit 192.0.2.192/26; ip -6 route add blackhole 2001:db8:a::/48",
			[]string{"192.0.2.1 reject", "192.0.2.129 reject", "192.0.2.193 reject",
				"2001:db8:a::1 reject"}}},
		"of another family": {{"ip route add 192.0.2.0/24 via inet6 2001:db8:1::2 dev eth1", []string{"192.0.2.1 2001:db8:1::2@101"}}},
		"on link": {{"ip route add 192.0.2.0/24 dev eth1; " +
			"ip route add 198.51.100.0/24 via 203.0.113.9 dev eth2 onlink; " +
			"ip -6 route add 2001:db8:a::/48 dev eth1",
			[]string{"192.0.2.1 link@101", "198.51.100.1 203.0.113.9@102", "2001:db8:a::1 link@101"}}},
		"not mirrored": {{`ip route add throw 192.0.2.0/26
			ip route add 192.0.2.64/26 via 10.0.0.2 mtu 1300
			ip route add 192.0.2.128/26 via 10.0.0.2 mtu lock 1300
			ip route add 192.0.2.192/26 via 10.0.0.2 realm 5
			ip route add 198.51.100.0/24 tos 0x10 via 10.0.0.2
			ip -6 route add 2001:db8:a::/48 via 2001:db8::2 mtu 1300
			ip route add 198.18.0.0/24 via 10.0.0.2 mtu lock 0
			ip -6 route add 2001:db8:d::/48 via 2001:db8::2 expires 300
			ip route add table default 203.0.113.0/24 via 10.0.0.2
			ip route add table 77 203.0.112.0/24 via 10.0.0.2
			ip -6 route add 2001:db8:b::/48 from 2001:db8:c::/48 via 2001:db8::2`,
			[]string{"192.0.2.1 other", "192.0.2.65 other", "192.0.2.129 other", "192.0.2.193 other",
				"198.51.100.1 other", "2001:db8:a::1 other", "203.0.113.1 other", "203.0.112.1 nowhere",
				"2001:db8:b::1 other",
				"198.18.0.1 other", "2001:db8:d::1 other"}}},
		"harmless attributes": {{"ip route add 192.0.2.0/24 via 10.0.0.2 src 10.0.1.1 advmss 500 hoplimit 3 " +
			"proto bird; ip -6 route add 2001:db8:a::/48 via 2001:db8::2 pref high",
			[]string{"192.0.2.1 10.0.0.2@100", "2001:db8:a::1 2001:db8::2@100"}}},
		"same metric": {
			{"ip route add 192.0.2.0/24 via 10.0.0.2; ip route append 192.0.2.0/24 via 10.0.1.2", []string{"192.0.2.1 other"}},
			{"ip route del 192.0.2.0/24 via 10.0.0.2", []string{"192.0.2.1 10.0.1.2@101"}},
			{"ip route prepend 192.0.2.0/24 via 10.0.2.2", []string{"192.0.2.1 other"}},
			{"ip route replace 192.0.2.0/24 via 10.0.0.2", []string{"192.0.2.1 other"}},
			{"ip route flush 192.0.2.0/24", []string{"192.0.2.1 nowhere"}},
		},
		"local shadows main in IPv6": {
			{"ip -6 route add local 2001:db8:a::/48 dev lo; ip -6 route add 2001:db8:a:b::/64 via 2001:db8::2", []string{"2001:db8:a:b::1 local", "2001:db8:a::1 local"}},
			{"ip -6 route del local 2001:db8:a::/48 dev lo", []string{"2001:db8:a:b::1 2001:db8::2@100", "2001:db8:a::1 nowhere"}},
		},
		"for some sources, whatever the metrics": {
			{"ip -6 route add 2001:db8:a::/48 via 2001:db8::2 metric 100; ip -6 route add 2001:db8:a:b::/64 via 2001:db8::2", []string{"2001:db8:a::1 2001:db8::2@100"}},
			{"ip -6 route add 2001:db8:a::/48 from 2001:db8:c::/48 via 2001:db8:1::2 metric 1024", []string{"2001:db8:a::1 other", "2001:db8:a:b::1 2001:db8::2@100"}},
			{"ip -6 route del 2001:db8:a::/48 from 2001:db8:c::/48", []string{"2001:db8:a::1 2001:db8::2@100"}},
			{"ip -6 route add local 2001:db8:a::/48 from 2001:db8:c::/48 dev lo; ip -6 route add local 2001:db8:a::/48 dev lo metric 1", []string{"2001:db8:a:b::1 other"}},
		},
		"a dummy's, and a tunnel's": {{"ip link add br7 type bridge; ip link set br7 up; ip route add 192.0.2.0/24 dev br7", []string{"192.0.2.1 link@0"}}},
	} {
		t.Run(title, func(t *testing.T) { s.run(newLab(t)) })
	}
}

func TestNextHopObjects(t *testing.T) {
	objects := story{
		{"ip nexthop add id 1 via 10.0.0.2 dev eth0; ip nexthop add id 2 via 10.0.1.2 dev eth1; ip nexthop add id 3 via 10.0.2.2 dev eth2", nil},
		{"ip nexthop add id 10 group 1/2; ip route add 192.0.2.0/24 nhid 10; " +
			"ip route add 198.51.100.0/24 nhid 1",
			[]string{"192.0.2.1 10.0.0.2@100*128 10.0.1.2@101*128", "198.51.100.1 10.0.0.2@100"}},
	}
	for title, s := range map[string]story{
		"replace":         {{"ip nexthop replace id 1 via 10.0.2.9 dev eth2", []string{"198.51.100.1 10.0.2.9@102", "192.0.2.1 10.0.1.2@101*128 10.0.2.9@102*128"}}},
		"replace a group": {{"ip nexthop replace id 10 group 2,1/3,3", []string{"192.0.2.1 10.0.1.2@101*64 10.0.2.2@102*192"}}},
		"delete":          {{"ip nexthop del id 1", []string{"198.51.100.1 nowhere"}}},
		"blackhole":       {{"ip nexthop add id 20 blackhole; ip route add 203.0.113.0/24 nhid 20", []string{"203.0.113.1 reject"}}},
		"resilient":       {{"ip nexthop add id 21 group 1/2 type resilient buckets 8; ip route add 203.0.113.0/24 nhid 21", []string{"203.0.113.1 other"}}},
		"IPv6": {{`ip nexthop add id 31 via 2001:db8::2 dev eth0
			ip nexthop add id 32 via 2001:db8:1::2 dev eth1
			ip nexthop add id 33 group 31/32
			ip -6 route add 2001:db8:a::/48 nhid 33`,
			[]string{"2001:db8:a::1 2001:db8::2@100*128 2001:db8:1::2@101*128"}},
			{"ip nexthop replace id 31 via 2001:db8:2::2 dev eth2", []string{"2001:db8:a::1 2001:db8:1::2@101*128 2001:db8:2::2@102*128"}},
			{"ip nexthop del id 32", []string{"2001:db8:a::1 2001:db8:2::2@102"}},
			{"ip nexthop del id 31", []string{"2001:db8:a::1 nowhere"}}},
		"link down": {{"ip link set eth0 down", []string{"198.51.100.1 nowhere", "192.0.2.1 10.0.1.2@101"}}},
	} {
		for _, compatible := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, compat %d", title, compatible), func(t *testing.T) {
				l := newLab(t)
				l.script(fmt.Sprintf("sysctl -qw net.ipv4.nexthop_compat_mode=%d", compatible))
				slices.Concat(objects, s).run(l)
			})
		}
	}
}

// A weight of more than 256, as newer kernels have it, does not fit into the messages of routes: they wrap it.
func TestLargeWeights(t *testing.T) {
	testkit.KernelAtLeast(t, 6, 12)
	for _, compatible := range []int{0, 1} {
		t.Run(fmt.Sprintf("compat %d", compatible), func(t *testing.T) {
			l := newLab(t)
			l.synced()
			l.script(fmt.Sprintf(`sysctl -qw net.ipv4.nexthop_compat_mode=%d
				ip nexthop add id 1 via 10.0.0.2 dev eth0
			ip nexthop add id 2 via 10.0.1.2 dev eth1`, compatible))
			if err := l.addGroup(10, member{1, 300}, member{2, 100}); err != nil {
				t.Fatal(err)
			}
			l.script("ip route add 192.0.2.0/24 nhid 10")
			l.leads("192.0.2.1", "10.0.0.2@100*192 10.0.1.2@101*64")
			l.synced()
		})
	}
}
