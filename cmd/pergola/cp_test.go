package main

import (
	"os"
	"path/filepath"
	"testing"
)

// readFile gives the text of a file, and its mode.
func readFile(t *testing.T, path string) (string, os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), info.Mode()
}

func TestCp(t *testing.T) {
	inLab(t) // whose nodes have the file system of this machine
	pergola(t, "up").want(t, 0, "", "up")
	node := t.TempDir()
	if err := os.MkdirAll("conf/deep", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("conf/deep/run.sh", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	pergola(t, "cp", "conf/deep/run.sh", "a:"+node).want(t, 0, "", "")
	pergola(t, "cp", "conf/deep/run.sh", "lab/a:"+node+"/other").want(t, 0, "", "")
	pergola(t, "cp", "conf", "[ab]:"+node+"/new").want(t, 0, "", "")
	for _, name := range []string{"run.sh", "other", "new/deep/run.sh", "new/conf/deep/run.sh"} {
		if text, mode := readFile(t, filepath.Join(node, name)); text != "#!/bin/sh\n" || mode != 0o755 {
			t.Errorf("%s is %q, %v", name, text, mode)
		}
	}

	pergola(t, "cp", "b:"+node+"/new", "back").want(t, 0, "", "")
	pergola(t, "cp", "b:"+node+"/new/deep/run.sh", ".").want(t, 0, "", "")
	for _, name := range []string{"back/deep/run.sh", "run.sh"} {
		if text, mode := readFile(t, name); text != "#!/bin/sh\n" || mode != 0o755 {
			t.Errorf("%s is %q, %v", name, text, mode)
		}
	}
}

func TestCpSaysWhatIsWrong(t *testing.T) {
	inLab(t)
	pergola(t, "up").want(t, 0, "", "up")
	node := t.TempDir()
	if err := os.WriteFile("file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	pergola(t, "cp", "file", "./a:b").want(t, 2, "", "neither file nor ./a:b is in a node")
	pergola(t, "cp", "a:/x", "b:/x").want(t, 2, "", "both in nodes")
	pergola(t, "cp", "file", "a:").want(t, 2, "", "a: names no path in the node")
	pergola(t, "cp", "nosuch", "a:"+node).want(t, 1, "", "nosuch: no such file")
	pergola(t, "cp", "file", "a:"+node+"/nosuch/").want(t, 1, "", "the node has no directory .*/nosuch\n")
	pergola(t, "cp", "file", "a:"+node+"/nosuch/name").want(t, 1, "", "nosuch: Cannot open: No such file")
	pergola(t, "cp", "a:"+node+"/nosuch", ".").want(t, 1, "", "nosuch: Cannot stat: No such file")
	pergola(t, "cp", "a:"+node, "nosuch/name").want(t, 1, "", "open nosuch: file does not exist")
	pergola(t, "cp", "a:"+node, "nosuch/").want(t, 1, "", "there is no directory nosuch/")
	pergola(t, "cp", "[ab]:"+node, ".").want(t, 2, "", "matches 2 nodes: name one")
	pergola(t, "cp", "file", "sw:/").want(t, 1, "", "sw is a switch")
	pergola(t, "copy", "file", "a:/").want(t, 2, "", "did you mean `pergola cp`")
}
