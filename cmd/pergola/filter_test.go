package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestFiltersOfProgramNodesAreChanged(t *testing.T) {
	newWorld(t)
	object, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "control", "programs", "testdata", "post.o"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	topology := "name: lab\nnodes:\n  a:\n  p: {program: post.o}\nlinks: [[a, p]]\n"
	for name, content := range map[string][]byte{
		"post.o": object, "lab.yaml": []byte(topology), "none.txt": []byte("# nothing\n"),
		"filters.txt": []byte("# two\ndestination=10.0.0.0/8 -> send 1\n\nany -> drop # the rest\n"),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pergola(t, "up").want(t, 0, "", "up")
	pergola(t, "filter", "ls", "p").want(t, 0, "", "lab/p has no filters")
	pergola(t, "filter", "add", "p", "destination=10.9.0.0/16 -> punt", "--file", "filters.txt").want(t, 0, "",
		"lab/p: 3 filters added")
	pergola(t, "filter", "ls", "p").want(t, 0, `^TABLE +PRIORITY +MATCH +RESULT +HITS\n`+
		`1 +7 +destination=10.9.0.0/16 +punt +0\n1 +7 +destination=10.0.0.0/8 +send 1 +10\n`+
		`1 +7 +any +drop +20\n$`, "")
	pergola(t, "filter", "rm", "lab/p", "any").want(t, 0, "", "lab/p: 1 filter removed")
	pergola(t, "filter", "rm", "p", "any").want(t, 1, "", "there is no filter any")
	pergola(t, "filter", "replace", "p", "filters.txt").want(t, 0, "", "lab/p has 2 filters")
	pergola(t, "filter", "ls", "p", "--json").want(t, 0,
		`(?s)"name": "destination".*"match": "any",.*"hits": 10`, "")
	pergola(t, "filter", "replace", "p", "none.txt").want(t, 0, "", "lab/p has 0 filters")

	pergola(t, "filter", "ls", "a").want(t, 1, "", "a is a host: only nodes of kind program have filters")
	pergola(t, "filter", "add", "a", "any -> drop").want(t, 1, "", "only nodes of kind program have filters")
	pergola(t, "filter", "replace", "a", "none.txt").want(t, 1, "", "only nodes of kind program have filters")
	pergola(t, "filter", "ls", "pp").want(t, 1, "", "did you mean p")
	pergola(t, "filter", "add", "p").want(t, 2, "", "FILTER is missing")
	pergola(t, "filter", "add", "p", "--file", "nowhere.txt").want(t, 1, "", "read filters: open nowhere.txt")
	pergola(t, "filter", "replace", "p").want(t, 2, "", "FILE is missing")
	pergola(t, "filter", "del", "p", "any").want(t, 2, "", "has no command")
}
