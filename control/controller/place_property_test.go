package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// anyTopology draws a file: few nodes, so that two of them have much in common.
func anyTopology(t *rapid.T) string {
	var b strings.Builder
	draw := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	fmt.Fprintf(&b, "name: lab\nplacement: %s\ndefaults: {link: {tunnel: %s}}\nnodes:\n",
		draw("placement", "spread", "pack"), draw("tunnel", "egre", "vxlan"))
	nodes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 2, 6,
		rapid.ID).Draw(t, "nodes")
	for _, n := range nodes {
		fmt.Fprintf(&b, "  %s: {cpu: 0.5%s}\n", n, draw("where", "", "", ", reschedule: always",
			", reschedule: always", ", host_labels: {rack: r1}",
			", host_labels: {rack: r2}, reschedule: always", ", host: h1", ", host: h2",
			", binds: '/srv:/srv'", ", outside: true", ", outside: true, reschedule: always",
			", ports: tcp/8080"))
	}
	b.WriteString("  s: {kind: switch}\n  t: {kind: switch}\nlinks:\n")
	count := rapid.IntRange(0, 6).Draw(t, "links")
	for i := range count {
		ends := rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 1, min(3, len(nodes)),
			rapid.ID).Draw(t, "ends")
		if len(ends) == 1 {
			ends = append(ends, draw("switch", "s", "t"))
		}
		fmt.Fprintf(&b, "  - {name: l%d, ends: [%s]%s}\n", i, strings.Join(ends, ", "),
			draw("mtu", "", "", "", "", "", "", ", mtu: 1300", ", mtu: 9000"))
	}
	if rapid.Bool().Draw(t, "trunk") {
		b.WriteString("  - {name: trunk, ends: [s, t]}\n")
	}
	if count == 0 {
		b.WriteString("  - {name: only, ends: [" + nodes[0] + ", " + nodes[1] + "]}\n")
	}
	return b.String()
}

// fate draws what becomes of hosts.
func fate(t *rapid.T, all []store.HostState) {
	for i := range all {
		h := &all[i]
		h.Alive = rapid.IntRange(0, 4).Draw(t, "lost") > 0
		h.Policy.Cordoned = rapid.IntRange(0, 4).Draw(t, "cordoned") == 0
		h.Policy.Draining = rapid.IntRange(0, 4).Draw(t, "draining") == 0
		h.Labels = map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}
		h.Allows.Outside = rapid.Bool().Draw(t, "outside")
		h.Allows.Ports = rapid.SampledFrom([][]hosts.Ports{nil, {{First: 8000, Last: 8999}}}).Draw(t, "ports")
		h.Underlays[0].MTU = rapid.SampledFrom([]int{1400, 1500, 9000}).Draw(t, "path")
	}
}

// needless lists moves for which there was no need.
func needless(p *placing) (list []string) {
	for node, from := range p.moves {
		n, h := p.next.Node(node), p.byName[from]
		pinned := n.Placement.Host != "" && n.Placement.Host != from
		if h == nil || pinned || h.Policy.Draining || p.free(n) {
			continue
		}
		if len(p.missing(n, h)) > 0 || len(n.Ports) > 0 { // another node may have the port there
			continue
		}
		if rack := n.Placement.Labels["rack"]; p.background || rack == "" ||
			h.Policy.LabelsOver(h.Labels)["rack"] == rack {
			list = append(list, fmt.Sprintf("%s from %s to %s", node, from, n.Host))
		}
	}
	return list
}

// misplaced lists nodes that are where they may not be.
func misplaced(p *placing) (list []string) {
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		if n.Kind == slice.Switch {
			if n.Host != "" {
				list = append(list, n.Name+" is a switch with a host")
			}
			continue
		}
		h, stays := p.byName[n.Host], p.was[n.Name] != nil && p.was[n.Name].Host == n.Host
		switch {
		case n.Host == "":
			list = append(list, n.Name+" has no host")
		case stays:
		case h == nil, !h.Alive, h.Policy.Cordoned, h.Policy.Draining:
			list = append(list, n.Name+" came to "+n.Host+", which takes none")
		case n.Placement.Host != "" && n.Placement.Host != n.Host, n.Placement.Labels["rack"] != "" &&
			n.Placement.Labels["rack"] != h.Labels["rack"]:
			list = append(list, n.Name+" came to "+n.Host+", where it may not be")
		}
		if h != nil && n.Placement.Host == "" && !p.stuck[n.Name] && (!stays || !p.background) {
			holds := slices.DeleteFunc(p.missing(n, h), slice.Hold.OfOneMachine)
			if len(holds) > 0 {
				list = append(
					list,
					fmt.Sprintf("%s is on %s, which does not allow %v", n.Name, n.Host, holds),
				)
			}
		}
		if from, moved := p.moves[n.Name]; moved && p.byName[from] != nil && !p.free(n) &&
			n.Left[from] != p.generation {
			list = append(list, fmt.Sprintf("%s does not await %s: %v", n.Name, from, n.Left))
		}
	}
	return list
}

// mistunnelled lists what is wrong with tunnels and MTUs.
func mistunnelled(p *placing) (list []string) {
	span, all := p.next.Span(), tunnels(p.next)
	numbers := map[uint16]bool{}
	for what, t := range all {
		if numbers[t.Number] || t.Number > slice.MaxTunnels || t.Kind == "" {
			list = append(list, fmt.Sprintf("%s: %+v", what, t))
		}
		numbers[t.Number] = true
		if had, ok := tunnels(p.prev)[what]; ok && had.Number != t.Number {
			list = append(list, fmt.Sprintf("%s had number %d, has %d", what, had.Number, t.Number))
		}
	}
	for _, seg := range p.next.Segments() {
		least, wide := 65535, false
		for _, sw := range seg.Switches {
			spans := len(span.Switch(sw.Name)) > 1
			if (sw.Tunnel.Number != 0) != spans {
				list = append(list, fmt.Sprintf("switch %s on %v: %+v", sw.Name,
					span.Switch(sw.Name), sw.Tunnel))
			}
			wide = wide || spans
		}
		for _, l := range seg.Links {
			spans := len(span.Link(l.Name)) > 1
			if (l.Tunnel.Number != 0) != spans {
				list = append(list, fmt.Sprintf("link %s on %v: %+v", l.Name,
					span.Link(l.Name), l.Tunnel))
			}
			wide = wide || spans
			for _, host := range span.Link(l.Name) {
				if h := p.byName[host]; h != nil {
					least = min(least, h.Underlays[0].MTU-42)
				}
			}
		}
		mtus := map[int]bool{}
		for _, l := range seg.Links {
			for _, e := range l.Ends {
				i := p.next.Node(e.Node).Interface(e.Interface)
				if wide && i.MTU > least {
					list = append(list, fmt.Sprintf("%s has mtu %d, the path carries %d", e,
						i.MTU, least))
				}
				if !i.FixedMTU {
					mtus[i.MTU] = true
				}
			}
		}
		if len(mtus) > 1 || !wide && len(mtus) == 1 && !mtus[slice.DefaultMTU] {
			list = append(list, fmt.Sprintf("segment of %s has mtus %v", seg.Links[0].Name, mtus))
		}
	}
	return list
}

// A slice lives through what users, hosts and the leader do, in any order.
func TestNodesAreOnlyWhereTheyMayBeInRandomHistories(t *testing.T) {
	refusals, moves := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		hosts := machines(rapid.IntRange(1, 4).Draw(t, "hosts"))
		prev, reported := &slice.Slice{Name: "lab"}, map[string]int64{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			there := slices.Clone(hosts)
			if rapid.IntRange(0, 5).Draw(t, "remove a host") == 0 && len(there) > 1 {
				there = there[1:]
			}
			fate(t, there)
			for _, h := range there {
				if h.Alive {
					reported[h.Name] = prev.Generation
				}
			}
			p := &placing{prev: prev, hosts: there, generation: prev.Generation + 1,
				reported: maps.Clone(reported), lost: map[string]bool{}}
			if p.background = rapid.Bool().Draw(t, "leader"); p.background {
				p.next = copyForPlacing(prev)
				for _, h := range there {
					p.lost[h.Name] = !h.Alive
				}
			} else {
				p.next = resolved(t, anyTopology(t), prev)
			}
			before := hostsOf(prev)
			err := p.place()
			if !maps.Equal(before, hostsOf(prev)) {
				t.Fatal("the running version was changed")
			}
			var refusal *Refusal
			if errors.As(err, &refusal) {
				refusals++
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			moves += len(p.moves)
			if faults := slices.Concat(misplaced(p), mistunnelled(p), needless(p)); len(faults) > 0 {
				t.Fatalf("%s\n%v", strings.Join(faults, "\n"), hostsOf(p.next))
			}
			prev = p.next
			prev.Generation = p.generation
		}
	})
	t.Logf("%d refusals, %d moves", refusals, moves)
}
