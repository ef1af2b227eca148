package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

func TestLSPsAreChangedWhileTheNetworkRuns(t *testing.T) {
	const file = `name: lab
nodes: {a: {routing: ospf}, b: {routing: ospf}, c: {routing: ospf}}
links: [[a, b], [b, c]]
lsps: [{name: file, path: [a, b], to: 10.9.0.0/24}, {name: gold, path: [b, c], bandwidth: 1Mbit}]
`
	f := &fake{hosts: machines(1)}
	c, s, _ := member(t, f, InCluster(f, "h1"))
	mustApply(t, c, file)
	rate := func(r unit.Rate) *unit.Rate { return &r }
	add := func(l topology.LSP) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.AddLSP(ctx, "lab", l); return err }
	}
	set := func(lsp string, p api.LSPPatch) func(context.Context) error {
		return func(ctx context.Context) error { return c.SetLSP(ctx, "lab", lsp, p) }
	}
	reroute := func(lsp string) func(context.Context) error {
		return func(ctx context.Context) error { return c.RerouteLSP(ctx, "lab", lsp) }
	}
	remove := func(lsp string) func(context.Context) error {
		return func(ctx context.Context) error { return c.RemoveLSP(ctx, "lab", lsp) }
	}
	twice := topology.LSP{Name: "x", Path: []string{"a", "c"}, Bandwidth: "1Mbit"}
	hand := topology.LSP{Path: []string{"a", "c"}, Bandwidth: "5Mbit"}
	double := api.LSPPatch{Bandwidth: rate(2_000_000)}
	for _, tt := range []struct {
		name   string
		do     func(context.Context) error
		reason Reason // -1: it is done
		text   string
		check  func(*slice.Slice) bool
	}{
		{"add", add(hand), -1, "", func(s *slice.Slice) bool {
			l := s.LSP("a--c")
			return l.ByHand && l.ID == 3 && l.Signal.Bandwidth == 5_000_000 && l.Signal.Number == 1
		}},
		{"add again", add(hand), Conflict, `there is an LSP "a--c" already`, nil},
		{"add for the same packets", add(twice), Invalid, `packets from "a" to`, nil},
		{"add by no router", add(topology.LSP{Path: []string{"a", "d"}}), Invalid, `no node is called "d"`, nil},
		{"set", set("a--c", api.LSPPatch{Bandwidth: rate(8_000_000)}), -1, "", func(s *slice.Slice) bool {
			l := s.LSP("a--c")
			return l.ByHand && l.Signal.Bandwidth == 8_000_000 && l.Signal.Number == 2
		}},
		{"set one of the file", set("gold", double), -1, "", func(s *slice.Slice) bool {
			l := s.LSP("gold")
			return !l.ByHand && l.Signal.Bandwidth == 2_000_000 && l.Signal.Number == 2
		}},
		{"set a static one", set("file", api.LSPPatch{Bandwidth: rate(1)}), Invalid, "is a static one", nil},
		{"set none", set("golf", api.LSPPatch{}), NotFound, `no LSP "golf"`, nil},
		{"reroute", reroute("a--c"), -1, "", func(s *slice.Slice) bool {
			return s.LSP("a--c").Signal.Number == 3 && s.LSP("gold").Signal.Number == 2
		}},
		{"reroute a static one", reroute("file"), Invalid, "is a static one", nil},
		{"remove one of the file", remove("file"), Invalid, "is one of the topology", nil},
		{"remove none", remove("d"), NotFound, `no LSP "d"`, nil},
		{"remove", remove("a--c"), -1, "", func(s *slice.Slice) bool { return len(s.LSPs) == 2 }},
	} {
		err := tt.do(t.Context())
		if reasonOf(err) != tt.reason || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
		spec, _, err := s.Slice(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		if tt.check != nil && !tt.check(spec) {
			t.Errorf("%s: %+v", tt.name, spec.LSPs)
		}
	}
	// What the file says holds again when it is applied.
	mustApply(t, c, file)
	spec, _, err := s.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.LSP("gold").Signal; got.Bandwidth != 1_000_000 || got.Number != 3 {
		t.Errorf("after the file: %+v", got)
	}
}
