package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestProgramNodesAreShownWithTheirCounters(t *testing.T) {
	newWorld(t)
	object, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "control", "programs", "testdata", "post.o"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	topology := "name: lab\nnodes:\n  a:\n  p: {program: post.o, filters: any -> send 1}\nlinks: [[a, p]]\n"
	for name, content := range map[string][]byte{"post.o": object, "lab.yaml": []byte(topology)} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "node", "ls").want(t, 0, `p +post.o +running`, "")
	pergola(t, "inspect").want(t, 0,
		`(?s)NODE +PROGRAM +STATE +VERIFIED +FILTERS +COUNTERS\np +post.o +running +250 +1 +passed \d+\n`, "")
	pergola(t, "inspect", "p").want(t, 0, `(?s)interfaces: 1 is eth1\n.*p +platform +frames +\d+`, "")
	pergola(t, "inspect", "a").want(t, 0, `^NODE`, "")
	pergola(t, "program", "counters").want(t, 0,
		`^NODE +BY +COUNTER +COUNT\np +program +malformed +0\np +program +passed +\d+\n`+
			`p +platform +frames +\d+\n$`, "")
	pergola(t, "program", "counters", "p", "--watch", "--every", "10ms").want(t, 0,
		`^NODE +BY +COUNTER +PER SECOND\np +program +malformed +0\np +program +passed +[0-9.]+`, "")
	pergola(t, "program", "counters", "a").want(t, 0, "", "no node of these has a packet program")
	pergola(t, "program", "counters", "--json").want(t, 0, `(?s)"program": "post.o".*"passed": \d+`, "")
	pergola(t, "program", "counters", "q").want(t, 1, "", `no`)
	pergola(t, "graph").want(t, 0, `◇`, "")

}
