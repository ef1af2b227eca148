package slice

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// placed makes a slice: nodes of "name@host", switches of "name", links of ends; a link's name is its number.
func placed(nodes, switches []string, links ...[]string) *Slice {
	s := &Slice{}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, Node{Name: n[:1], Kind: Host, Host: n[2:]})
	}
	for _, n := range switches {
		s.Nodes = append(s.Nodes, Node{Name: n, Kind: Switch})
	}
	for i, ends := range links {
		l := Link{Name: string(rune('0' + i)), LAN: len(ends) > 2}
		for _, e := range ends {
			l.Ends = append(l.Ends, End{Node: e, Interface: "eth" + l.Name})
		}
		s.Links = append(s.Links, l)
	}
	return s
}

func TestSpan(t *testing.T) {
	for _, tt := range []struct {
		name            string
		s               *Slice
		links, switches map[string][]string
		ends            map[string]string
	}{
		{"cable", placed([]string{"a@h1", "b@h2", "c@h1"}, nil, []string{"a", "b"}, []string{"a", "c"}),
			map[string][]string{"0": {"h1", "h2"}, "1": {"h1"}}, map[string][]string{},
			map[string]string{"a:eth0": "h1", "b:eth0": "h2"}},
		{"lan", placed([]string{"a@h3", "b@h1", "c@h3"}, nil, []string{"a", "b", "c"}),
			map[string][]string{"0": {"h1", "h3"}}, map[string][]string{}, nil},
		{"switch", placed([]string{"a@h1", "b@h2"}, []string{"s"}, []string{"a", "s"}, []string{"s", "b"}),
			map[string][]string{"0": {"h1"}, "1": {"h2"}}, map[string][]string{"s": {"h1", "h2"}},
			map[string]string{"s:eth0": "h1", "s:eth1": "h2"}},
		{"two switches", placed([]string{"a@h2", "b@h3"}, []string{"s", "t"}, []string{"a", "s"}, []string{"s", "t"},
			[]string{"t", "b"}),
			map[string][]string{"0": {"h2"}, "1": {"h2"}, "2": {"h3"}},
			map[string][]string{"s": {"h2"}, "t": {"h2", "h3"}},
			map[string]string{"s:eth1": "h2", "t:eth1": "h2"}},
		{"switches without nodes", placed([]string{"a@h2", "b@h3"}, []string{"s", "t", "u", "v"}, []string{"t", "u"},
			[]string{"a", "s"}, []string{"s", "t"}, []string{"u", "v"}, []string{"v", "b"}),
			map[string][]string{"0": {"h2"}, "1": {"h2"}, "2": {"h2"}, "3": {"h3"}, "4": {"h3"}},
			map[string][]string{"s": {"h2"}, "t": {"h2"}, "u": {"h2", "h3"}, "v": {"h3"}}, nil},
		{"lan with a switch", placed([]string{"a@h2", "b@h3", "c@h1"}, []string{"s"}, []string{"a", "b", "s"},
			[]string{"s", "c"}),
			map[string][]string{"0": {"h1", "h2", "h3"}, "1": {"h1"}}, map[string][]string{"s": {"h1"}},
			map[string]string{"s:eth0": "h1"}},
		{"not placed", placed([]string{"a@", "b@"}, []string{"s"}, []string{"a", "b"}, []string{"a", "s"}),
			map[string][]string{"0": {""}, "1": {""}}, map[string][]string{"s": {""}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			span := tt.s.Span()
			if diff := cmp.Diff(tt.links, span.links) + cmp.Diff(tt.switches, span.switches); diff != "" {
				t.Error(diff)
			}
			for _, l := range tt.s.Links {
				for _, e := range l.Ends {
					if want, named := tt.ends[e.String()]; named && span.Host(e) != want {
						t.Errorf("%s is on %q, want %q", e, span.Host(e), want)
					}
				}
			}
		})
	}
}

func TestSegmentsJoinAllThatSwitchesJoin(t *testing.T) {
	s := placed([]string{"a@", "b@", "c@", "d@"}, []string{"s", "t", "u"},
		[]string{"a", "s"}, []string{"b", "t"}, []string{"c", "d"}, []string{"s", "t"}, []string{"u", "c"})
	var got []string
	for _, seg := range s.Segments() {
		names := ""
		for _, l := range seg.Links {
			names += l.Name
		}
		for _, n := range seg.Switches {
			names += n.Name
		}
		runes := []rune(names)
		slices.Sort(runes)
		got = append(got, string(runes))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"013st", "2", "4u"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestANodeAwaitsHostsThatMayRunIt(t *testing.T) {
	n := Node{Left: map[string]int64{"h1": 4, "h2": 5}}
	for want, generations := range map[string]map[string]int64{
		"":   {"h1": 4, "h2": 7},
		"h1": {"h1": 3, "h2": 5},
		"h2": {"h2": 0},
	} {
		got := n.Awaits(func(host string) (int64, bool) { g, exists := generations[host]; return g, exists })
		if got != want {
			t.Errorf("%v: awaits %q, want %q", generations, got, want)
		}
	}
}

func TestKeysOfDifferentTunnelsDiffer(t *testing.T) {
	if k := (Tunnel{Number: MaxTunnels}).Key(MaxID); k != MaxTunnelKey {
		t.Errorf("largest key %d, want %d", k, MaxTunnelKey)
	}
	if (Tunnel{}).Key(7) != 0 || (Tunnel{Number: 1}).Key(1) == (Tunnel{Number: 1}).Key(2) {
		t.Error("keys are not told apart")
	}
}
