package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/model/slice"
)

// fourRouters are a row of four, with two links between the last two.
const fourRouters = `name: lab
nodes:
  pe1: {routing: ospf}
  p1: {routing: ospf}
  p2: {routing: ospf}
  pe2: {routing: ospf}
  pc: {}
  off: {routing: ospf, fastpath: off}
links:
  - [pe1, p1]
  - [p1, p2]
  - [p2, pe2]
  - [p2, pe2]
  - [p1, off]
  - [pe1, pc]
`

func TestLSPsGetLabels(t *testing.T) {
	const file = fourRouters + `lsps:
  - path: [pe1, p1, "p2:eth3", pe2]
  - {name: back, path: ["pe2:eth1", p2, p1, pe1], to: [10.9.1.7/24, 10.8.0.0/16], last_label: own, ttl: pipe}
  - {name: short, path: [p1, p2], last_label: explicit-null, to: 10.7.0.0/16}
  - {name: next, path: [p2, p1]}
`
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(file)), nil)
	prefix := netip.MustParsePrefix
	want := []slice.LSP{
		{Name: "back", ID: 1, TTL: slice.Pipe, To: []netip.Prefix{prefix("10.8.0.0/16"), prefix("10.9.1.0/24")},
			Hops: []slice.Hop{
				{Node: "pe2", Out: "eth1"}, {Node: "p2", In: "eth2", Out: "eth1", Label: 16},
				{Node: "p1", In: "eth2", Out: "eth1", Label: 16}, {Node: "pe1", In: "eth1", Label: 16},
			}},
		{Name: "next", ID: 2, To: s.Node("p1").Loopbacks, ToEgress: true, Hops: []slice.Hop{
			{Node: "p2", Out: "eth1"}, {Node: "p1", In: "eth2", Label: 17},
		}},
		{Name: "pe1--pe2", ID: 3, To: s.Node("pe2").Loopbacks, ToEgress: true, Hops: []slice.Hop{
			{Node: "pe1", Out: "eth1"}, {Node: "p1", In: "eth1", Out: "eth2", Label: 18},
			{Node: "p2", In: "eth1", Out: "eth3", Label: 17}, {Node: "pe2", In: "eth2", Label: slice.ImplicitNull},
		}},
		{Name: "short", ID: 4, To: []netip.Prefix{prefix("10.7.0.0/16")}, Hops: []slice.Hop{
			{Node: "p1", Out: "eth2"}, {Node: "p2", In: "eth1", Label: slice.ExplicitNull},
		}},
	}
	compare := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(want, s.LSPs, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	checkDescription(t, s)

	// What stays has the labels that it had.
	later := strings.Replace(file, "  - {name: back", "  - {name: added, path: [p1, p2, p1x]}\n  - {name: back", 1)
	later = strings.Replace(later, "[p1, p2, p1x]", "[p1, \"p2:eth2\", pe2]", 1)
	later = strings.Replace(later, "to: 10.7.0.0/16", "to: 10.6.0.0/16", 1)
	later = strings.Replace(later, "  - {name: next, path: [p2, p1]}\n", "", 1)
	again := mustResolve(t, mustParse(t, "lab.yaml", []byte(later)), s)
	if diff := cmp.Diff(want[2], *again.LSP("pe1--pe2"), compare); diff != "" {
		t.Errorf("-before +later:\n%s", diff)
	}
	// A host that has not read this version yet still sends by the number that became free.
	if added := again.LSP("added"); added.ID != 5 || added.Hops[1].Label != 18 {
		t.Errorf("the LSP that was added is %+v", added)
	}
}

func TestFaultsOfLSPsAreNamed(t *testing.T) {
	for lsp, want := range map[string]string{
		`{path: [pe1]}`:                       "a path has two routers at least, this one has 1",
		`{path: [pe1, p3]}`:                   `no node is called "p3"`,
		`{path: [pe1, pc]}`:                   `"pc" is a host: labels are for routers`,
		`{path: [p1, off]}`:                   `"off" is not on the fast path`,
		`{path: [pe1, p2]}`:                   `no link joins "pe1" and "p2"`,
		`{path: [p1, p2, pe2]}`:               `2 links join "p2" and "pe2"`,
		`{path: [p1, "p2:eth7", pe2]}`:        `"p2" has no interface "eth7"`,
		`{path: [p1, "p2:eth1", pe2]}`:        `p2:eth1 does not lead to "pe2"`,
		`{path: [pe1, p1, pe1]}`:              `the path comes to "pe1" twice`,
		`{path: [pe1, "p1:eth1"]}`:            `packets leave the path at "p1"`,
		`{path: [pe1, p1], to: here}`:         `"here" is no prefix`,
		`{path: [pe1, p1], ttl: short}`:       `unknown ttl "short"`,
		`{path: [pe1, p1], last_label: none}`: `unknown last_label "none"`,
		`{name: a b, path: [pe1, p1]}`:        `"a b" is not a name of a label-switched path`,

		`{path: [pe1, pe2], bandwidth: 5x}`:    `bandwidth: "5x" is not a rate`,
		`{path: [pe1, p1], signalling: ldp}`:   `unknown signalling "ldp"`,
		`{path: [pe1, p1], setup_priority: 4}`: "a static LSP has no setup_priority",

		`{path: [pe1, p1], bandwidth: 5Mbit, signalling: static}`: "a static LSP has no bandwidth",
		`{path: [pe1, p1], signalling: rsvp, setup_priority: 8}`:  "priority 8 is out of range",

		`{path: [pe1, p1], signalling: rsvp, last_label: implicit-null}`: "a label of the last router's own",

		`{path: [pe1, p1], signalling: rsvp, setup_priority: 3, holding_priority: 4}`: "from each other",

		`{path: [pe1, p1], match: [{}]}`:                           "the rule names nothing",
		`{path: [pe1, p1], match: [{proto: icmp, port: 5}]}`:       "icmp has no ports",
		`{path: [pe1, p1], match: [{proto: xyz}]}`:                 `"xyz" is no protocol of IP`,
		`{path: [pe1, p1], to: 10.0.0.0/8, match: [{proto: tcp}]}`: "an LSP is for prefixes, or for packets",

		`{path: [pe1, p1], match: [{proto: tcp}], last_label: explicit-null}`: "and rules may be for both",

		`{path: [pe1, p1], match: [` + strings.Repeat("{dscp: 1}, ", 64) + `{dscp: 2}]}`: `65 rules for LSPs`,

		`{path: [p1, p2], last_label: implicit-null}`: "implicit-null leaves no label at all",

		`{path: [p1, p2], to: [10.0.0.0/8, "::/0"], last_label: explicit-null}`: "explicit null is another",

		"{path: [pe1, p1]}\n  - {path: [pe1, p1], to: 10.0.0.0/8}": `two LSPs are called "pe1--p1"`,
		"{path: [pe1, p1]}\n  - {name: b, path: [pe1, p1]}":        `have two LSPs, "pe1--p1" and "b"`,
	} {
		top, found := Parse("lab.yaml", []byte(fourRouters+"lsps:\n  - "+lsp+"\n"))
		if found == nil {
			t.Errorf("%s: %v is no fault", lsp, top.LSPs)
		} else if !strings.Contains(found.Error(), want) {
			t.Errorf("%s: no %q in\n%s", lsp, want, found.Error())
		}
	}
}

// Errors are not counted without end; what comes after the last one that is, is wrong all the same.
func TestManyFaultsOfLSPs(t *testing.T) {
	file := fourRouters + "lsps:\n" + strings.Repeat("  - {path: [pe1, pc]}\n", 1100)
	if _, found := Parse("lab.yaml", []byte(file)); found == nil {
		t.Error("no fault")
	}
}

func TestLSPsAreForPacketsThatMatch(t *testing.T) {
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(fourRouters+`lsps:
  - {name: voice, path: [pe1, p1], match: [{dscp: EF}]}
  - {name: video, path: [pe1, pe2], bandwidth: 5Mbit, match: [{proto: udp, dport: 5000-5010}, {src: 10.9.0.1}]}
`)), nil)
	ef := 46
	want := map[string][]slice.Match{
		"voice": {{DSCP: &ef}},
		"video": {{Protocol: 17, DstPort: slice.Ports{First: 5000, Last: 5010}},
			{Src: netip.MustParsePrefix("10.9.0.1/32")}},
	}
	for name, match := range want {
		l := s.LSP(name)
		if diff := cmp.Diff(match, l.Match, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if len(l.To) > 0 || l.ToEgress {
			t.Errorf("%s is for %v, too", name, l.To)
		}
	}
	checkDescription(t, s)
}

func TestSignalledLSPsHaveNumbersInPlaceOfLabels(t *testing.T) {
	const file = fourRouters + `lsps:
  - {name: gold, path: [pe1, "p2:eth3", pe2], bandwidth: 50Mbit, setup_priority: 3, holding_priority: 1}
  - {name: plain, path: [p1, p2], signalling: rsvp}
  - {name: static, path: [p2, p1]}
`
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(file)), nil)
	compare := cmpopts.EquateComparable(netip.Prefix{})
	want := slice.LSP{Name: "gold", ID: 1, To: s.Node("pe2").Loopbacks, ToEgress: true,
		Hops:   []slice.Hop{{Node: "pe1"}, {Node: "p2", Out: "eth3"}, {Node: "pe2", In: "eth2"}},
		Signal: &slice.Signal{Number: 1, Bandwidth: 50_000_000, Setup: 3, Holding: 1}}
	if diff := cmp.Diff(want, *s.LSP("gold"), compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := *s.LSP("plain").Signal; got != (slice.Signal{Number: 1, Setup: 7, Holding: 7}) {
		t.Errorf("without a bandwidth: %+v", got)
	}
	checkDescription(t, s)

	// Another bandwidth is another number; the rest keeps its own.
	later := mustResolve(t, mustParse(t, "lab.yaml", []byte(strings.Replace(file, "50Mbit", "60Mbit", 1))), s)
	if got := later.LSP("gold"); got.ID != 1 || got.Signal.Number != 2 || later.LSP("plain").Signal.Number != 1 {
		t.Errorf("changed: %+v, %+v", got.Signal, later.LSP("plain").Signal)
	}
}

func TestLSPsThatWereAddedByHandStay(t *testing.T) {
	running := mustResolve(t, mustParse(t, "lab.yaml", []byte(fourRouters)), nil)
	added := *running
	hand := LSP{Name: "hand", Path: Strings{"pe1", "pe2"}, Bandwidth: "5Mbit"}
	if found := SetLSPs(&added, running, []LSP{hand}, map[string]bool{"hand": true}); len(found) > 0 {
		t.Fatal(found)
	}
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(fourRouters)), &added)
	if got := s.LSP("hand"); got == nil || !got.ByHand || got.Signal.Bandwidth != 5_000_000 {
		t.Errorf("after a newer version: %+v", got)
	}
	const named = fourRouters + "lsps: [{name: hand, path: [p1, p2]}]\n"
	if got := mustResolve(t, mustParse(t, "lab.yaml", []byte(named)), &added).LSP("hand"); got.ByHand {
		t.Errorf("the file has it now, and it is still the one of before: %+v", got)
	}
	without := strings.Replace(fourRouters, "  pe2: {routing: ospf}\n", "", 1)
	without = strings.ReplaceAll(without, "  - [p2, pe2]\n", "")
	_, found := Resolve(mustParse(t, "lab.yaml", []byte(without)), &added)
	const want = "an LSP that was added by hand no longer fits: no node is"
	if found == nil || !strings.Contains(found.Error(), want) {
		t.Errorf("without one of its ends: %v", found)
	}
}

// A host that has not read the new version yet sends by the labels of the one before.
func TestALabelThatIsFreedIsNotGivenAtOnce(t *testing.T) {
	label := func(name, to string, prev *slice.Slice) *slice.Slice {
		file := fourRouters + "lsps: [{path: [pe1, p1, 'p2:eth2', pe2], name: " + name + ", to: " + to + "}]\n"
		return mustResolve(t, mustParse(t, "lab.yaml", []byte(file)), prev)
	}
	first := label("first", "10.7.0.0/16", nil)
	second := label("second", "10.8.0.0/16", first)
	third := label("third", "10.9.0.0/16", second)
	for i, want := range []uint32{16, 17, 16} {
		s := []*slice.Slice{first, second, third}[i]
		if got := s.LSPs[0].Hops[1].Label; got != want {
			t.Errorf("version %d has label %d, want %d", i+1, got, want)
		}
	}
}

func TestALabelThatIsFreedIsGivenWhereThereIsNoOther(t *testing.T) {
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(fourRouters)), nil)
	var all []LSP
	for i := range slice.LastStatic - slice.FirstLabel + 1 {
		all = append(all, LSP{Name: fmt.Sprint("l", i), Path: Strings{"pe1", "p1"}, Last: "own",
			To: Strings{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff)}})
	}
	full, next := *s, *s
	if found := SetLSPs(&full, s, all, nil); len(found) > 0 {
		t.Fatal(found)
	}
	all[0].Name = "other"
	if found := SetLSPs(&next, &full, all, nil); len(found) > 0 {
		t.Fatal(found)
	}
	if got, was := next.LSP("other").Hops[1].Label, full.LSP("l0").Hops[1].Label; got != was {
		t.Errorf("it has label %d, and %d is free", got, was)
	}
}

func TestAnLSPWithoutPrefixesFollowsTheLoopbacksOfItsEgress(t *testing.T) {
	running := mustResolve(t, mustParse(t, "lab.yaml", []byte(fourRouters)), nil)
	added := *running
	all := []LSP{{Name: "hand", Path: Strings{"pe1", "pe2"}, Bandwidth: "5Mbit"},
		{Name: "named", Path: Strings{"pe1", "pe2"}, Bandwidth: "5Mbit", To: Strings{"10.7.0.0/16"}}}
	if found := SetLSPs(&added, running, all, map[string]bool{"hand": true, "named": true}); len(found) > 0 {
		t.Fatal(found)
	}
	const before = "pe2: {routing: ospf"
	later := strings.Replace(fourRouters, before, before+", loopbacks: 192.0.2.77/32", 1)
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(later)), &added)
	loopbacks := s.Node("pe2").Loopbacks
	if got := s.LSP("hand").To; !slices.Equal(got, loopbacks) || slices.Equal(got, added.LSP("hand").To) {
		t.Errorf("packets to %v go by it, and the egress has %v", got, loopbacks)
	}
	if got := s.LSP("named").To; len(got) != 1 || got[0] != netip.MustParsePrefix("10.7.0.0/16") {
		t.Errorf("packets to %v go by the one whose prefix is named", got)
	}
}
