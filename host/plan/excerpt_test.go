package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// What a server tells a host of a slice has to be enough for all that the host makes of it.
func TestAnExcerptIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawNetwork(t, 7)
		hosts := make(map[string]string)
		for _, n := range w.Spec.Nodes {
			hosts[n.Name] = rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "host")
		}
		w.Spec = plantest.Spread(w.Spec, hosts)
		comparesToExcerpts(t, w)
	})
}

func TestExcerptsOfTheExamplesAreEnough(t *testing.T) {
	for _, name := range []string{"bgp", "campus", "classes", "failures", "ipv6", "isis", "ospf-ring", "rsvp"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../examples", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			top, found := topology.Parse(name+".yaml", text)
			if len(found) > 0 {
				t.Fatal(found)
			}
			s, found := topology.Resolve(top, nil)
			if len(found) > 0 {
				t.Fatal(found)
			}
			s.ID, s.Generation = 7, 1
			hosts := make(map[string]string)
			for i, n := range s.Nodes {
				hosts[n.Name] = []string{"A", "B", "C"}[i%3]
			}
			comparesToExcerpts(t, Input{Spec: plantest.Spread(s, hosts)})
		})
	}
}

// comparesToExcerpts checks that hosts want the same by what they are told as by the whole slice.
func comparesToExcerpts(t interface {
	Fatal(...any)
	Errorf(string, ...any)
}, w Input) {
	w.Spec = sent(t, w.Spec) // as the store gives it
	for _, host := range []string{"B", "C"} {
		told := w
		told.Spec = sent(t, w.Spec.Outline())
		told.Spec.Join(sent(t, w.Spec.Excerpt(host)))
		whole, broken := New(placeOf(host), []Input{w})
		part, alsoBroken := New(placeOf(host), []Input{told})
		if len(broken)+len(alsoBroken) > 0 {
			t.Fatal(broken, alsoBroken)
		}
		if diff := cmp.Diff(whole.Resources, part.Resources); diff != "" {
			t.Errorf("host %s: %s", host, diff)
		}
	}
}

func sent(t interface{ Fatal(...any) }, s *slice.Slice) *slice.Slice {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	got := new(slice.Slice)
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// What is for one host alone is told to no other one.
func TestAnExcerptTellsNothingOfOtherHosts(t *testing.T) {
	const secret = "not for others"
	s := plantest.Slice(7, []string{"h1", "h2"}, []string{"p1", "h2"})
	for _, name := range []string{"h1", "p1"} {
		n := s.Node(name)
		n.Exec, n.Command, n.Args = []string{secret}, []string{secret}, []string{secret}
		n.Env, n.Sysctls = map[string]string{"A": secret}, map[string]string{"net.ipv4.x": secret}
		n.Files = []slice.File{{Path: "/" + secret, Data: []byte(secret)}}
		n.Binds, n.Rootfs = []slice.Bind{{Source: secret}}, slice.Rootfs{Ref: secret}
		n.Volumes, n.User = []slice.Volume{{Name: secret}}, secret
		n.Routing = &slice.Routing{Config: map[string][]byte{"frr.conf": []byte(secret)}}
		s.Checks = append(s.Checks, slice.Check{Name: name, Kind: slice.CheckExec, From: name, Command: secret,
			Output: secret})
	}
	plantest.SetProgram(s, "p1", secret)
	s = plantest.Spread(s, map[string]string{"h1": "A", "p1": "A", "h2": "B"})
	for host, allowed := range map[string]bool{"A": true, "B": false, "C": false} {
		told := s.Outline()
		told.Join(s.Excerpt(host))
		text, err := json.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		binary := `bm90IGZvciBvdGhlcnM` // the same in base 64
		has := strings.Contains(string(text), secret) || strings.Contains(string(text), binary)
		if has != allowed {
			t.Errorf("host %s is told: %v", host, has)
		}
	}
	if text, _ := json.Marshal(s); !strings.Contains(string(text), secret) {
		t.Error("the slice itself was changed")
	}
}
