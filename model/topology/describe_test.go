package topology

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/slice"
)

// sameSlice compares all but what a slice has of its own history, and the names of files.
var sameSlice = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
	cmpopts.IgnoreFields(slice.Interface{}, "Port", "Claim"),
	cmpopts.IgnoreFields(slice.PacketProgram{}, "Name"),
	cmpopts.IgnoreFields(slice.Node{}, "Claims", "BoundPorts", "Host", "Left"),
}

// checkDescription wants the description of a slice, written and read again, to resolve to that slice.
func checkDescription(t interface{ Fatalf(string, ...any) }, s *slice.Slice) {
	described, found := Describe(s)
	if len(found) > 0 {
		t.Fatalf("describe: %s", found.Error())
	}
	text, err := Marshal(described)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	files := map[string]*Source{}
	for _, f := range described.Sources() {
		if filepath.IsAbs(f.Path) || strings.HasPrefix(filepath.Clean(f.Path), "..") {
			t.Fatalf("the file %s is not beside the topology", f.Path)
		}
		if other := files[f.Path]; other != nil && string(other.Data) != string(f.Data) {
			t.Fatalf("two files are to be %s", f.Path)
		}
		files[f.Path] = f
	}
	read, found := Parse("saved.yaml", text)
	if len(found) > 0 {
		t.Fatalf("read:\n%s\n%s", found.Error(), text)
	}
	for _, f := range read.Sources() {
		if files[f.Path] == nil {
			t.Fatalf("the topology names %s, of which there is no data:\n%s", f.Path, text)
		}
		f.Data, f.SHA256 = files[f.Path].Data, files[f.Path].SHA256
	}
	again := mustResolve(t, read, nil)
	if diff := cmp.Diff(s, again, sameSlice); diff != "" {
		t.Fatalf("the description is of another slice:\n%s\n%s", diff, text)
	}
}

func TestDescriptionOfAnyNetworkResolvesToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		large := network(t)
		s := mustResolve(t, large, nil)
		checkDescription(t, s)
		// with a history: addresses and names are not those that a new network has
		checkDescription(t, mustResolve(t, without(t, large), s))
	})
}

func TestDescriptionsOfExamplesResolveToThem(t *testing.T) {
	var all []string
	for _, pattern := range []string{"testdata/resolve/*.yaml", "../../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("find %s: %v, %v", pattern, files, err)
		}
		all = append(all, files...)
	}
	for _, file := range all {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			top := mustParse(t, file, data)
			sendSources(top)
			for _, f := range top.Sources() {
				if strings.Contains(f.Where, "filters") {
					f.Data = []byte("any -> drop # and no more\n")
				}
			}
			checkDescription(t, mustResolve(t, top, nil))
		})
	}
}

// A description is for people: it leaves out what resolving decides in the same way.
func TestDescriptionIsShort(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte("name: lab\nnodes: {a: {routing: ospf}, b: {daemon: bird}, h: }\n"+
		"links: [[a, b], {ends: [b, h], rate: 10Mbit}]\nchecks: [{ping: [h, a]}]\n"))
	described, found := Describe(mustResolve(t, top, nil))
	if len(found) > 0 {
		t.Fatal(found.Error())
	}
	text, err := Marshal(described)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"gateway", "passive", "addressing", "router_id", "name: a", "from:", "restart"} {
		if strings.Contains(string(text), word) {
			t.Errorf("it has %q:\n%s", word, text)
		}
	}
}
