package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/lab/testkit"
)

// TestTheMachinesOwnNetworkIsNotChanged looks at what leak checks do not see: sysctls, firewall rules, routes, policy
// rules and interfaces of other programs on the machine itself. They are the same while networks run, and afterwards.
func TestTheMachinesOwnNetworkIsNotChanged(t *testing.T) {
	testkit.Root(t)
	s := newServer(t, pergola(t))
	foreign(t)
	before := settings(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.mustSucceed(t, "up", filepath.Join(testkit.ModuleRoot(t), "examples", "campus.yaml"))
	if diff := cmp.Diff(before, settings(t)); diff != "" {
		t.Errorf("while a network runs (-before +now):\n%s", diff)
	}
	s.mustSucceed(t, "down", "--all")
	if diff := cmp.Diff(before, settings(t)); diff != "" {
		t.Errorf("when it has gone (-before +now):\n%s", diff)
	}
}

// foreign makes interfaces of other programs in the machine's own namespace, with names as Pergola gives them, and one
// with an alias that begins as its marks do.
func foreign(t *testing.T) {
	t.Helper()
	for _, words := range []string{
		"link add s1p1 type veth peer name s1p2", "link add s1b1 type bridge", "link set s1p2 master s1b1",
		"link set s1p1 alias pergola", "link set s1p1 up",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip",
			strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", words, err, out)
		}
		if added, is := strings.CutPrefix(words, "link add "); is {
			name, _, _ := strings.Cut(added, " ")
			t.Cleanup(func() {
				if out, err := exec.Command("ip", "link", "del", name).CombinedOutput(); err != nil {
					t.Errorf("delete %s: %v\n%s", name, err, out)
				}
			})
		}
	}
}

// countdown is what is left of the life of a route that a router advertised.
var countdown = regexp.MustCompile(` expires -?\d+sec`)

// settings are those of this network namespace: sysctls by their path, and what tools list.
func settings(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("/proc/sys/net", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() || e.Name() == "nf_conntrack_count" { // changes by itself
			return nil
		}
		if text, err := os.ReadFile(path); err == nil { // some can only be written
			all[path] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]string{
		{"nft", "list", "ruleset"}, {"ip", "-o", "link"}, {"ip", "rule"}, {"ip", "-6", "rule"}, {"ip", "route", "show", "table", "all"},
	} {
		out, err := exec.CommandContext(t.Context(), list[0], list[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", list, err)
		}
		all[strings.Join(list, " ")] = countdown.ReplaceAllString(string(out), "")
	}
	if len(all) < 100 {
		t.Fatalf("only %d settings were found", len(all))
	}
	return all
}
