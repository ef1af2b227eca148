package member

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/hosts"
)

func TestASmallChangeOfLoadIsNoNews(t *testing.T) {
	h := hosts.Host{Name: "A", Cores: 8, Load: 1, Labels: map[string]string{"rack": "a"}}
	for name, c := range map[string]struct {
		change func(*hosts.Host)
		same   bool
	}{
		"nothing":         {func(*hosts.Host) {}, true},
		"a little load":   {func(h *hosts.Host) { h.Load = 1.5 }, true},
		"much load":       {func(h *hosts.Host) { h.Load = 4 }, false},
		"another address": {func(h *hosts.Host) { h.Address = netip.MustParseAddr("192.0.2.9") }, false},
		"another label":   {func(h *hosts.Host) { h.Labels = map[string]string{"rack": "b"} }, false},
	} {
		now := h
		c.change(&now)
		if same(h, now) != c.same {
			t.Errorf("%s: same is %v", name, !c.same)
		}
	}
}

func TestUnderlaysAreThoseOfTheMembership(t *testing.T) {
	at := func(name string, prefixes ...string) hosts.Underlay {
		u := hosts.Underlay{Name: name, XDP: "native"}
		for _, p := range prefixes {
			u.Addresses = append(u.Addresses, netip.MustParsePrefix(p))
		}
		return u
	}
	all := []hosts.Underlay{
		at("eth0", "192.0.2.1/24"), at("eth1", "198.51.100.1/24", "2001:db8::1/64"),
		at("wg0", "203.0.113.1/24"),
	}
	address := netip.MustParseAddr("198.51.100.1")
	for name, c := range map[string]struct {
		member hosts.Membership
		want   []string
	}{
		"the one with the address": {hosts.Membership{Address: address}, []string{"eth1"}},
		"it comes first": {
			hosts.Membership{Address: address, Interfaces: []string{"eth0", "eth1"}},
			[]string{"eth1", "eth0"},
		},
		"one that is not there": {
			hosts.Membership{Address: address, Interfaces: []string{"eth9", "eth1"}},
			[]string{"eth1", "eth9"},
		},
		"nobody has the address": {hosts.Membership{Address: netip.MustParseAddr("192.0.2.77")}, []string{noUnderlay}},
		"as IPv4 mapped into IPv6": {
			hosts.Membership{Address: netip.MustParseAddr("::ffff:198.51.100.1")}, []string{"eth1"},
		},
		"an address of IPv6 itself": {hosts.Membership{Address: netip.MustParseAddr("2001:db8::1")}, []string{"eth1"}},
	} {
		var got []string
		for _, u := range underlaysOf(&c.member, all) {
			got = append(got, u.Name)
			missing := !strings.HasPrefix(u.XDP, "native")
			if missing != (u.Name == "eth9" || u.Name == noUnderlay) {
				t.Errorf("%s: %s: XDP is %q", name, u.Name, u.XDP)
			}
		}
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What a VPN would have encrypted leaves by nothing else; on machines with several network cards, the routes are right.
func TestPacketsLeaveByWhatRootNamedOrByTheVPN(t *testing.T) {
	of := func(name, kind string) hosts.Underlay { return hosts.Underlay{Name: name, Kind: kind} }
	for name, c := range map[string]struct {
		named []string
		found []hosts.Underlay
		want  bool
	}{
		"a network card":         {nil, []hosts.Underlay{of("eth0", "")}, false},
		"several in one":         {nil, []hosts.Underlay{of("bond0", "bond")}, false},
		"of no network card":     {nil, []hosts.Underlay{of("dummy0", "dummy")}, false},
		"a VLAN":                 {nil, []hosts.Underlay{of("eth0.7", "vlan")}, false},
		"a switch's port":        {nil, []hosts.Underlay{of("lan1", "dsa")}, false},
		"a container's":          {nil, []hosts.Underlay{of("eth0", "netkit")}, false},
		"WireGuard":              {nil, []hosts.Underlay{of("wg0", "wireguard")}, true},
		"OpenVPN":                {nil, []hosts.Underlay{of("tap0", "tun")}, true},
		"MACsec":                 {nil, []hosts.Underlay{of("macsec0", "macsec")}, true},
		"what nobody knows":      {nil, []hosts.Underlay{of("new0", "new")}, true},
		"beside a network card":  {nil, []hosts.Underlay{of("eth0", ""), of("wg0", "wireguard")}, true},
		"named":                  {[]string{"eth0", "eth1"}, []hosts.Underlay{of("eth0", ""), of("eth1", "")}, true},
		"named, and absent":      {[]string{"wg0"}, []hosts.Underlay{of("wg0", "")}, true},
		"nobody has the address": {nil, []hosts.Underlay{of(noUnderlay, "")}, false},
	} {
		if have := isBound(&hosts.Membership{Interfaces: c.named}, c.found); have != c.want {
			t.Errorf("%s: bound %v", name, have)
		}
	}
}

func TestPacketsThatAreKeptBackAreReportedOnce(t *testing.T) {
	bus := events.NewBus(8)
	watch := strays{events: bus, log: slog.New(slog.DiscardHandler)}
	start := time.Now()
	for _, c := range []struct {
		after int // seconds
		count uint64
		want  bool
	}{
		{0, 7, false}, // of an earlier process's time
		{3, 7, false}, {6, 8, true}, {9, 30, true}, {12, 30, true}, {38, 30, true}, {39, 30, false}, {42, 30, false},
		{45, 2, false}, // the data path was made anew
		{48, 3, true},
	} {
		h := hosts.Host{Name: "h1", Underlays: []hosts.Underlay{{Name: "wg0"}}}
		watch.describe(&h, c.count, start.Add(time.Duration(c.after)*time.Second))
		if have := h.Trouble; (have != "") != c.want ||
			c.want && !strings.Contains(have, "by another interface than wg0") {
			t.Errorf("after %d s, %d packets: %q", c.after, c.count, have)
		}
	}
	var reported []string
	for _, e := range bus.Recent(0) {
		reported = append(reported, e.Message)
	}
	if len(reported) != 3 || !strings.Contains(reported[0], "host h1: packets of tunnels are kept back") ||
		!strings.Contains(reported[1], "any more") {
		t.Errorf("reported: %q", reported)
	}
}

// The card that slices share is the interface that has the host's address, as admission has it.
func TestTheRateOfTheUnderlayIsThatOfTheInterfaceWithTheAddress(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	all := []hosts.Underlay{
		{Name: "eth0", Rate: 10e9, Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24")}},
		{Name: "eth1", Rate: 1e9, Addresses: []netip.Prefix{netip.PrefixFrom(address, 24)}},
	}
	cluster := &hosts.Membership{Address: address, Interfaces: []string{"eth0", "eth1"}}
	u := NewUnderlay(cluster, func() ([]hosts.Underlay, error) { return all, nil }, slog.New(slog.DiscardHandler))
	u.Open(t.Context(), &opens{})
	if have := u.Rate(); have != 1e9 {
		t.Errorf("the rate is %d", have)
	}
	all = nil
	u.reopen.Store(true)
	u.Open(t.Context(), &opens{})
	if have := u.Rate(); have != 0 {
		t.Errorf("without interfaces, the rate is %d", have)
	}
}
