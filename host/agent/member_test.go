package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func TestASilentStoreIsToldOfOnceAndOnceMoreWhenItAnswers(t *testing.T) {
	var log bytes.Buffer
	c := contact{log: slog.New(slog.NewTextHandler(&log, nil))}
	silence := errors.New("no answer within 10s")
	for _, err := range []error{
		nil, context.Canceled, fmt.Errorf("lab: %w", store.ErrNotFound), // nothing is wrong
		silence, silence, context.Canceled, silence,
		fmt.Errorf("lab: %w", store.ErrDeleting), nil,
	} {
		c.note(err)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "does not answer") || !strings.Contains(log.String(), "answers again") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestOnlyNewsOfAHostIsNews(t *testing.T) {
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
		if sameHost(h, now) != c.same {
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
	all := []hosts.Underlay{at("eth0", "192.0.2.1/24"), at("eth1", "198.51.100.1/24", "2001:db8::1/64"), at("wg0", "203.0.113.1/24")}
	address := netip.MustParseAddr("198.51.100.1")
	for name, c := range map[string]struct {
		member Cluster
		want   []string
	}{
		"the one with the address":  {Cluster{Address: address}, []string{"eth1"}},
		"it comes first":            {Cluster{Address: address, Interfaces: []string{"eth0", "eth1"}}, []string{"eth1", "eth0"}},
		"one that is not there":     {Cluster{Address: address, Interfaces: []string{"eth9", "eth1"}}, []string{"eth1", "eth9"}},
		"nobody has the address":    {Cluster{Address: netip.MustParseAddr("192.0.2.77")}, []string{noUnderlay}},
		"as IPv4 mapped into IPv6":  {Cluster{Address: netip.MustParseAddr("::ffff:198.51.100.1")}, []string{"eth1"}},
		"an address of IPv6 itself": {Cluster{Address: netip.MustParseAddr("2001:db8::1")}, []string{"eth1"}},
	} {
		var got []string
		for _, u := range underlaysOf(&c.member, all) {
			got = append(got, u.Name)
			if missing := !strings.HasPrefix(u.XDP, "native"); missing != (u.Name == "eth9" || u.Name == noUnderlay) {
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
		if have := isBound(&Cluster{Interfaces: c.named}, c.found); have != c.want {
			t.Errorf("%s: bound %v", name, have)
		}
	}
}

func TestPacketsThatAreKeptBackAreToldOfOnce(t *testing.T) {
	bus := events.NewBus(8)
	a := &Agent{cfg: Config{Events: bus, Log: slog.New(slog.DiscardHandler)}}
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
		a.noteStrays(&h, c.count, start.Add(time.Duration(c.after)*time.Second))
		if have := h.Trouble; (have != "") != c.want || c.want && !strings.Contains(have, "by another interface than wg0") {
			t.Errorf("after %d s, %d packets: %q", c.after, c.count, have)
		}
	}
	var told []string
	for _, e := range bus.Recent(0) {
		told = append(told, e.Message)
	}
	if len(told) != 3 || !strings.Contains(told[0], "host h1: packets of tunnels are kept back") || !strings.Contains(told[1], "any more") {
		t.Errorf("told: %q", told)
	}
}

// Another host starts a node that was here when this one reports the generation in which it was moved.
func TestAGenerationIsReportedWhenWhatWasMovedAwayIsGone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	s.Generation = 5
	w := plan.Input{Spec: s}
	a := &Agent{cfg: Config{Host: "A"}, fast: newFastPath(slog.New(slog.DiscardHandler))}
	want, _ := plan.New(placeOf("A"), []plan.Input{w})
	seen := newSight()
	r := &report{status: slice.Status{Generation: 4}}
	seen.slivers[sliver.ID{Slice: 7, Node: "h2"}] = sliver.Observed{State: sliver.Running}
	if got := a.statusLocked(&w, want, seen, r); got.Generation != 4 {
		t.Errorf("h2 is still here: generation %d, want 4", got.Generation)
	}
	clear(seen.slivers)
	got := a.statusLocked(&w, want, seen, r)
	if _, tells := got.Nodes["h2"]; got.Generation != 5 || tells || len(got.Nodes) != 1 || len(got.Links) != 1 {
		t.Errorf("h2 is gone: %+v", got)
	}
}

// An agent that is started without a store knows by its mark alone what the fence ends: no process of the node may run before the mark is there.
func TestANewSliverBearsTheMarkOfTheFence(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "A"})
	key := reconcile.Key{Kind: plan.KindSliver, Slice: 7, Name: "h1"}
	before, _ := plan.New(placeOf("A"), []plan.Input{{Spec: s}})
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	after, _ := plan.New(placeOf("A"), []plan.Input{{Spec: s}})
	was, is := before.Detail(key).(plan.Sliver), after.Detail(key).(plan.Sliver)
	if was.Notes[plan.FenceNote] != "" || is.Notes[plan.FenceNote] == "" {
		t.Errorf("marks %v, then %v", was.Notes, is.Notes)
	}
	if was.Digest != is.Digest {
		t.Error("another policy makes the sliver anew")
	}
}

func placeOf(host string) plan.Place {
	peers := maps.Clone(plantest.Hosts)
	delete(peers, host)
	return plan.Place{Host: host, Joined: host != "A", Address: plantest.Hosts[host], Peers: peers}
}
