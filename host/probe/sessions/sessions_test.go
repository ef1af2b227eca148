package sessions

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// frr.txt is what Script printed in a router of FRR 8.4 with OSPF, OSPFv3, IS-IS and BGP, on one link.
func TestSessionsOfFRR(t *testing.T) {
	v, err := Parse([]byte(read(t, "frr.txt")))
	want := View{Daemons: []string{"frr"}, Sessions: []Session{
		{"ospf", "eth1", "10.255.0.2", "Full/DR", true},
		{"ospf6", "eth1", "10.255.0.2", "Full", true},
		{"isis", "eth1", "r2", "Up", true},
		{"bgp", "", "10.0.12.2", "Established", true},
	}}
	if diff := cmp.Diff(want, v); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

func TestSessionsOfBIRD(t *testing.T) {
	v, err := Parse([]byte(read(t, "bird.txt")))
	want := View{
		Daemons: []string{"bird"},
		Sessions: []Session{
			{"bgp", "", "b1", "Idle", false},
			{"bgp", "", "b2", "Established", true},
			{"ospf", "eth1", "10.255.0.1", "Full/PtP", true},
			{"ospf", "eth2", "10.255.0.2", "ExStart/PtP", false},
		},
		Alone: []Session{{Protocol: "ospf"}},
	}
	if diff := cmp.Diff(want, v); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// vrf.txt is what Script printed in a router of FRR 8.4 with OSPF in two VRFs: a neighbour in each, and hosts.
func TestSessionsOfVRFs(t *testing.T) {
	v, err := Parse([]byte(read(t, "vrf.txt")))
	want := View{Daemons: []string{"frr"}, Sessions: []Session{
		{"ospf", "eth3", "10.0.2.1", "Full/-", true},
		{"ospf", "eth1", "10.0.2.1", "Full/-", true},
	}}
	if diff := cmp.Diff(want, v); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

func TestSessionsThatAreNotUpAreNamed(t *testing.T) {
	text := read(t, "frr.txt")
	for old, changed := range map[string]string{
		`"nbrState":"Full\/DR"`: `"nbrState":"Init\/DROther"`, `"state":"Full",`: `"state":"Init",`,
		`"state":"Established"`: `"state":"Active"`,
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("no %s", old)
		}
		text = strings.ReplaceAll(text, old, changed)
	}
	v, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all, open := v.Judge("r1", func(string) bool { return true })
	want := []string{
		"r1: ospf with 10.255.0.2 on eth1 is in state Init/DROther",
		"r1: ospf6 with 10.255.0.2 on eth1 is in state Init",
		"r1: bgp with 10.0.12.2 is in state Active",
	}
	if diff := cmp.Diff(want, open); all != 4 || diff != "" {
		t.Errorf("%d sessions, -want +got\n%s", all, diff)
	}
}

// Before a designated router is elected, which takes FRR 40 s by default, all neighbours of a LAN are in 2-Way.
func TestTwoWayStaysBetweenRoutersOfWhichNoneIsDesignated(t *testing.T) {
	text := read(t, "frr.txt")
	for old, changed := range map[string]string{
		`"nbrState":"Full\/DR"`: `"nbrState":"2-Way\/DROther"`, `"state":"Full",`: `"state":"Twoway",`,
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("no %s", old)
		}
		text = strings.ReplaceAll(text, old, changed)
	}
	two := []string{
		"r1: ospf with 10.255.0.2 on eth1 is in state 2-Way/DROther",
		"r1: ospf6 with 10.255.0.2 on eth1 is in state Twoway",
	}
	for own, want := range map[string][]string{"Waiting": two, "DR": two, "DROther": nil} {
		v, err := Parse([]byte(strings.NewReplacer(`"state":"Backup"`, `"state":"`+own+`"`,
			`"ospf6InterfaceState":"DR"`, `"ospf6InterfaceState":"`+own+`"`).Replace(text)))
		if err != nil {
			t.Fatal(err)
		}
		_, open := v.Judge("r1", func(string) bool { return true })
		if diff := cmp.Diff(want, open); diff != "" {
			t.Errorf("%s: -want +got\n%s", own, diff)
		}
	}
}

func TestNeighboursAreWaitedForWhereTheyAreExpected(t *testing.T) {
	text := read(t, "frr.txt")
	at := strings.Index(text, "== frr ospf interface")
	v, err := Parse([]byte("== frr ospf neighbor\n{\"neighbors\":{}}\n" + text[at:]))
	if err != nil {
		t.Fatal(err)
	}
	for _, expected := range []bool{false, true} {
		all, open := v.Judge("r1", func(iface string) bool { return expected && iface == "eth1" })
		var want []string
		sessions := 3
		if expected {
			want, sessions = []string{"r1: ospf has found no neighbour on eth1 yet"}, 4
		}
		if diff := cmp.Diff(want, open); all != sessions || diff != "" {
			t.Errorf("expected %v: %d sessions, -want +got\n%s", expected, all, diff)
		}
	}
}

func TestDaemonsThatDoNotAnswerHaveNoSessions(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		daemons []string
	}{
		"no daemon":          {"", nil},
		"nothing configured": {"== frr ospf neighbor\n% OSPF is not enabled in vrf default\n", []string{"frr"}},
		"starting":           {"== bird protocols\n== bird ospf neighbors\n", []string{"bird"}},
	} {
		v, err := Parse([]byte(c.text))
		if diff := cmp.Diff(View{Daemons: c.daemons}, v); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got\n%s", name, err, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"frr.txt", "bird.txt"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("== frr bgp summary\n{\"a\":[1]}\n== other\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { // a node can print anything: no panic
		v, err := Parse(text)
		if err == nil {
			v.Judge("a", func(string) bool { return true })
		}
	})
}
