package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// anySlice draws a small slice: few names and values, so that two of them have much in common.
func anySlice(t *rapid.T, label string) *slice.Slice {
	s := &slice.Slice{Name: "net", Attribution: rapid.SampledFrom([]string{"", "CC"}).Draw(t, label+" attribution")}
	names := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID).Draw(t,
		label+" nodes")
	slices.Sort(names)
	for _, name := range names {
		n := slice.Node{Name: name,
			Kind: rapid.SampledFrom([]slice.Kind{slice.Router, slice.Host, slice.Switch}).Draw(t,
				label+name)}
		n.Memory = rapid.SampledFrom([]int64{0, 1 << 20}).Draw(t, label+name+" memory")
		if rapid.Bool().Draw(t, label+name+" file") {
			n.Files = []slice.File{{Path: "/etc/motd",
				Data: []byte(rapid.SampledFrom([]string{"x", strings.Repeat("y", 100)}).Draw(t,
					label+name+" data"))}}
		}
		if rapid.Bool().Draw(t, label+name+" label") {
			n.Labels = map[string]string{"role": "core"}
		}
		s.Nodes = append(s.Nodes, n)
	}
	if len(names) > 1 {
		l := slice.Link{Name: "wire", Ends: []slice.End{{Node: names[0], Interface: "eth1"},
			{Node: names[1], Interface: "eth1"}}}
		l.Ends[0].Shape.Delay = rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(t, label+" delay")
		s.Links = append(s.Links, l)
	}
	return s
}

// patched carries a plan out on names: what is there after it.
func patched(before []string, changes []api.Change) []string {
	after := slices.Clone(before)
	for _, c := range changes {
		at := slices.Index(after, c.Name)
		switch {
		case c.Op == api.Create && at < 0:
			after = append(after, c.Name)
		case c.Op == api.Remove && at >= 0:
			after = slices.Delete(after, at, at+1)
		case c.Op == api.Update && at >= 0 && len(c.Fields) > 0:
		default:
			return []string{fmt.Sprintf("impossible change %+v", c)}
		}
	}
	slices.Sort(after)
	return after
}

func nodeNames(s *slice.Slice) []string {
	names := []string{}
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func TestDiffLeadsFromOneToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anySlice(t, "a"), anySlice(t, "b")
		before, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		p := Diff(a, b)
		if got := patched(nodeNames(a), p.Nodes); !slices.Equal(got, nodeNames(b)) {
			t.Errorf("the plan leads to nodes %v, want %v: %+v", got, nodeNames(b), p)
		}
		for _, n := range b.Nodes {
			was := a.Node(n.Name)
			listed := slices.ContainsFunc(p.Nodes, func(c api.Change) bool { return c.Name == n.Name })
			if was != nil && listed == reflect.DeepEqual(*was, n) {
				t.Errorf("node %s: in the plan %v, but it changed %v", n.Name, listed, !listed)
			}
		}
		if p.Empty() != reflect.DeepEqual(a, b) {
			t.Errorf("plan %+v is empty %v", p, p.Empty())
		}
		if after, _ := json.Marshal(a); string(after) != string(before) {
			t.Error("Diff changed its input")
		}
		backwards(t, p, Diff(b, a))
	})
}

// backwards checks that the plan back undoes the plan there.
func backwards(t *rapid.T, there, back api.Plan) {
	opposite := map[api.Op]api.Op{api.Create: api.Remove, api.Remove: api.Create, api.Update: api.Update}
	if len(there.Nodes) != len(back.Nodes) {
		t.Fatalf("there %+v, back %+v", there.Nodes, back.Nodes)
	}
	for i, c := range there.Nodes {
		b := back.Nodes[i]
		if b.Name != c.Name || b.Op != opposite[c.Op] || b.Restarts != c.Restarts ||
			len(b.Fields) != len(c.Fields) {
			t.Errorf("there %+v, back %+v", c, b)
			continue
		}
		for j, f := range c.Fields {
			if b.Fields[j] != (api.Field{Name: f.Name, Old: f.New, New: f.Old}) {
				t.Errorf("there %+v, back %+v", f, b.Fields[j])
			}
		}
	}
}

func TestDiffShowsFieldsByName(t *testing.T) {
	a := &slice.Slice{Name: "net",
		Nodes: []slice.Node{
			{Name: "a", Kind: slice.Router, Routing: &slice.Routing{Daemon: slice.FRR},
				Interfaces: []slice.Interface{{Name: "eth1", MTU: 1500}}},
			{Name: "b", Kind: slice.Host, Memory: 1 << 20},
		},
		Links: []slice.Link{{Name: "wire", Ends: []slice.End{{Node: "a", Interface: "eth1"},
			{Node: "b", Interface: "eth1"}}}},
	}
	b := &slice.Slice{Name: "net",
		Nodes: []slice.Node{
			{Name: "a", Kind: slice.Router, Routing: &slice.Routing{Daemon: slice.FRR},
				Interfaces: []slice.Interface{{Name: "eth1", MTU: 9000}}},
			{Name: "b", Kind: slice.Host, Memory: 2 << 20},
			{Name: "c", Kind: slice.Switch},
		},
		Links: []slice.Link{{Name: "wire", Ends: []slice.End{{Node: "a", Interface: "eth1",
			Shape: slice.Shape{Rate: 1e7, Delay: 5 * time.Millisecond}}, {Node: "b", Interface: "eth1"}}}},
	}
	want := api.Plan{Slice: "net", Op: api.Update,
		Nodes: []api.Change{
			{Name: "a", Op: api.Update, Fields: []api.Field{{Name: "interfaces.eth1.mtu", Old: "1500", New: "9000"}}},
			{Name: "b", Op: api.Update, Restarts: true, Fields: []api.Field{{Name: "memory", Old: "1048576", New: "2097152"}}},
			{Name: "c", Op: api.Create},
		},
		Links: []api.Change{{Name: "wire", Op: api.Update, Fields: []api.Field{
			{Name: "ends.a:eth1.shape.delay", New: "5ms"}, {Name: "ends.a:eth1.shape.rate", New: "10Mbit"}}}},
	}
	if diff := cmp.Diff(want, Diff(a, b)); diff != "" {
		t.Error(diff)
	}
	if got := Diff(a, b).Summary(); got != "1 node to create, 2 nodes to update, 1 link to update" {
		t.Errorf("summary %q", got)
	}
	if p := Diff(nil, a); p.Op != api.Create || len(p.Nodes) != 2 || p.Empty() {
		t.Errorf("from nothing: %+v", p)
	}
	if p := Diff(a, nil); p.Op != api.Remove || p.Nodes[0].Op != api.Remove || len(p.Links) != 1 {
		t.Errorf("to nothing: %+v", p)
	}
}

func TestWhatIsInFilesIsShownForPeople(t *testing.T) {
	node := func(motd, conf string) *slice.Slice {
		return &slice.Slice{Name: "net", Nodes: []slice.Node{{Name: "a",
			Files:   []slice.File{{Path: "/etc/motd", Data: []byte(motd)}},
			Routing: &slice.Routing{Config: map[string][]byte{"frr.conf": []byte(conf)}}}}}
	}
	got := Diff(node("hello", "router ospf\n"), node("goodbye", strings.Repeat("!\n", 1000)))
	want := []api.Field{{Name: "files./etc/motd.data", Old: `"hello"`, New: `"goodbye"`},
		{Name: "routing.config.frr.conf", Old: "12 bytes", New: "2000 bytes"}}
	if len(got.Nodes) != 1 || !slices.Equal(got.Nodes[0].Fields, want) {
		t.Errorf("the plan is %+v, want %+v", got.Nodes, want)
	}
}

func TestWhatTheStoreGivesBackDoesNotRestartNodes(t *testing.T) {
	empty := slice.Node{
		Name: "r1", Kind: slice.Router, Command: []string{}, Env: map[string]string{}, Files: []slice.File{},
		Interfaces: []slice.Interface{{Name: "eth1", MTU: 1500}},
	}
	data, err := json.Marshal(&slice.Slice{Name: "net", Nodes: []slice.Node{empty}})
	if err != nil {
		t.Fatal(err)
	}
	var stored slice.Slice
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	empty.Interfaces = []slice.Interface{{Name: "eth1", MTU: 1400}}
	p := Diff(&stored, &slice.Slice{Name: "net", Nodes: []slice.Node{empty}})
	if len(p.Nodes) != 1 || p.Nodes[0].Op != api.Update || p.Nodes[0].Restarts {
		t.Errorf("plan %+v, want r1 to change and not to restart", p.Nodes)
	}
}

func TestKernelParametersThatAreTakenOutAreWarnedOf(t *testing.T) {
	node := func(memory int64, sysctls map[string]string) *slice.Slice {
		return &slice.Slice{Name: "net",
			Nodes: []slice.Node{{Name: "a", Kind: slice.Host, Memory: memory, Sysctls: sysctls}}}
	}
	both := map[string]string{"net.ipv4.ip_default_ttl": "9", "kernel.msgmax": "9000"}
	for _, c := range []struct {
		name string
		next *slice.Slice
		want []string
	}{
		{"another value", node(0, map[string]string{"net.ipv4.ip_default_ttl": "10", "kernel.msgmax": "9000"}), nil},
		{"taken out", node(0, map[string]string{"kernel.msgmax": "9000"}),
			[]string{"a keeps net.ipv4.ip_default_ttl = 9 until it is started anew: `pergola restart a`"}},
		{"taken out of a node that starts anew", node(1<<20, nil), nil},
		{"one that starts the node anew", node(0, nil), nil},
	} {
		if got := Diff(node(0, both), c.next).Warnings; !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
