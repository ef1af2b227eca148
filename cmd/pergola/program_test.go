package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/capture"
	"github.com/pergola-net/pergola/lab/testkit"
)

// example is a source of examples/programs in a folder of the test's own, where commands may write beside it.
func example(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no clang, which compiles programs")
		}
		t.Skip("there is no clang, which compiles programs")
	}
	text, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "examples", "programs", name))
	if err != nil {
		t.Fatal(err)
	}
	return written(t, name, string(text))
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// frames is a capture of one frame with a label, and of one without.
func frames(t *testing.T) string {
	t.Helper()
	frame := func(kind ...byte) capture.Frame {
		data := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, kind...)
		return capture.Frame{Data: append(data, make([]byte, 60-len(data))...), Time: time.Unix(1, 0)}
	}
	path := filepath.Join(t.TempDir(), "frames.pcap")
	if err := capture.Write(path, []capture.Frame{
		frame(0x88, 0x47, 0x00, 0x06, 0x41, 9), // label 100, TTL 9
		frame(0x88, 0xb5),
	}); err != nil {
		t.Fatal(err)
	}
	return path
}

func (o outcome) says(t *testing.T, status int, parts ...string) {
	t.Helper()
	if o.status != status {
		t.Errorf("status is %d, want %d:\n%s", o.status, status, o)
	}
	for _, p := range parts {
		if !strings.Contains(o.out+o.errs, p) {
			t.Errorf("%q is not said:\n%s", p, o)
		}
	}
}

func TestProgramBuildMakesAnObject(t *testing.T) {
	source := example(t, "mpls.c")
	pergola(t, "program", "build", source).says(t, 0, "mpls.o: ", "5 counters", "a key of 2 fields")
	out := filepath.Join(t.TempDir(), "x.o")
	o := pergola(t, "program", "build", source, "-o", out, "--json", "--", "-DUNUSED=1")
	o.says(t, 0)
	var built struct {
		File         string
		Instructions int
	}
	if err := json.Unmarshal([]byte(o.out), &built); err != nil || built.File != out || built.Instructions < 50 {
		t.Errorf("%v: %s", err, o)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
}

func TestProgramBuildSaysWhatIsWrong(t *testing.T) {
	good := example(t, "mpls.c")
	const head = "#include <pergola/program.h>\n"
	for name, c := range map[string]struct {
		args   []string
		status int
		wants  []string
	}{
		"no source":      {[]string{}, 2, []string{"FILE.c"}},
		"missing":        {[]string{"/nowhere/x.c"}, 1, []string{"/nowhere/x.c"}},
		"object":         {[]string{"x.o"}, 2, []string{"x.o is no C file"}},
		"flag before --": {[]string{good, "O3"}, 2, []string{"stand behind --"}},
		"filters":        {[]string{good, "--filters", "x"}, 2, []string{"--filters is for --user"}},
		"no C": {[]string{written(t, "x.c", head+"PERGOLA_PARSE(packet) { return nothing; }\n")}, 1,
			[]string{"x.c:2", "nothing", "the compiler refuses it"}},
		"forbidden": {[]string{written(t, "x.c", head+"static long (*const f)(int, int) = (void *)23;\n"+
			"PERGOLA_PARSE(packet)\n{\n\treturn f(1, 2);\n}\n")}, 1,
			[]string{"x.c:5: parse: calls bpf_redirect", "packet->output"}},
		"no parse":  {[]string{written(t, "x.c", head)}, 1, []string{"has no parse stage", "PERGOLA_PARSE"}},
		"no header": {[]string{written(t, "x.c", "int x;\n")}, 1, []string{"include pergola/program.h"}},
	} {
		t.Run(name, func(t *testing.T) {
			pergola(t, append([]string{"program", "build"}, c.args...)...).says(t, c.status, c.wants...)
		})
	}
	if _, err := os.Stat(strings.TrimSuffix(good, ".c") + ".o"); err == nil {
		t.Error("an object was written")
	}
}

func TestProgramBuildForUserSpace(t *testing.T) {
	source := example(t, "mpls.c")
	filters := written(t, "filters.txt", "label=100 -> send 2\n")
	pergola(t, "program", "build", "--user", source, "--filters", filters).says(t, 0)
	executable := strings.TrimSuffix(source, ".c")
	for _, path := range []string{executable, executable + ".filters"} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	wrong := written(t, "filters.txt", "lable=100 -> send 2\n")
	pergola(t, "program", "build", "--user", source, "--filters", wrong).says(t, 1, "line 1", "did you mean label?")
}

func TestProgramHeadersAreWritten(t *testing.T) {
	dir := t.TempDir()
	pergola(t, "program", "headers", dir).says(t, 0, filepath.Join(dir, "pergola"))
	if _, err := os.Stat(filepath.Join(dir, "pergola", "program.h")); err != nil {
		t.Error(err)
	}
	pergola(t, "program", "headers", dir).says(t, 1, "no pergola/ in it")
}

func TestProgramTestShowsWhatBecomesOfFrames(t *testing.T) {
	testkit.Root(t)
	source, captured := example(t, "mpls.c"), frames(t)
	filters := written(t, "filters.txt", "# swap\npriority 1 label=100 -> "+
		"send 2 args 02:00:00:00:00:03,02:00:00:00:00:02,00,000000,000000c8\n")
	out := filepath.Join(t.TempDir(), "out.pcap")
	for _, hook := range []string{"xdp", "tc"} {
		pergola(t, "program", "test", source, "--frame", captured, "--filters", filters, "--hook", hook,
			"--filter", "any -> drop", "--write", out).says(t, 0,
			"frame 1: 60 bytes by interface 1", "key     label=100", "filter  2 (table 0): send 2",
			"send    by interface 2, 60 bytes", "frame 2:", "punt    reason", "swapped 1",
			"hits: filter 2 1")
		if sent, err := capture.Frames(out); err != nil || len(sent) != 1 {
			t.Errorf("%s: %d frames were written: %v", hook, len(sent), err)
		}
	}
	o := pergola(t, "program", "test", source, "--frame", captured, "--filters", filters, "--json")
	o.says(t, 0)
	var all struct {
		Frames []struct {
			Filter  int
			Verdict string
		}
		Counters map[string]int
		Hits     []int
	}
	err := json.Unmarshal([]byte(o.out), &all)
	if err != nil || len(all.Frames) != 2 || all.Frames[0].Filter != 1 || all.Frames[1].Verdict != "punt" ||
		all.Counters["swapped"] != 1 || len(all.Hits) != 1 || all.Hits[0] != 1 {
		t.Errorf("%v: %s", err, o)
	}
}

func TestProgramTestSaysWhatIsWrong(t *testing.T) {
	source, captured := example(t, "mpls.c"), frames(t)
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no frames":     {nil, 2, "--frame FILE is missing"},
		"missing":       {[]string{"--frame", "/nowhere/x.pcap"}, 1, "/nowhere/x.pcap"},
		"no capture":    {[]string{"--frame", source}, 1, "is no capture"},
		"hook":          {[]string{"--frame", captured, "--hook", "nic"}, 2, "--hook is xdp or tc"},
		"filter":        {[]string{"--frame", captured, "--filter", "label=1"}, 2, "there is no ->"},
		"field":         {[]string{"--frame", captured, "--filter", "lable=1 -> drop"}, 2, "did you mean label?"},
		"table":         {[]string{"--frame", captured, "--filter", "table 8 any -> drop"}, 2, "there is no table 8"},
		"length":        {[]string{"--frame", captured, "--filter", "label=hex:00 -> drop"}, 2, "4 bytes"},
		"filters":       {[]string{"--frame", captured, "--filters", "/nowhere/x.txt"}, 1, "/nowhere/x.txt"},
		"interfaces":    {[]string{"--frame", captured, "--interfaces", "0"}, 2, "--interfaces"},
		"outer address": {[]string{"--frame", captured, "--outer", "here"}, 2, "--outer"},
	} {
		t.Run(name, func(t *testing.T) {
			pergola(t, append([]string{"program", "test", source}, c.args...)...).says(t, c.status, c.want)
		})
	}
	pergola(t, "program", "test", captured, "--frame", captured).says(t, 1, "is no object file",
		"pergola program build")
}

func TestProgramTestRefusesFiltersThatCannotBe(t *testing.T) {
	testkit.Root(t)
	source, captured := example(t, "mpls.c"), frames(t)
	pergola(t, "program", "test", source, "--frame", captured, "--filter", "label=1 -> drop", "--filter",
		"label=1 -> punt").says(t, 1, "filter 2", "there is a filter with this key, mask and priority")
	pergola(t, "program", "test", source, "--frame", captured, "--filter",
		"key=000000000000000000/0000000000000000ff -> drop").says(t, 1, "filter 1", "wrong length",
		"has 8 bytes")
}

func TestProgramProfileShowsEachStage(t *testing.T) {
	testkit.Root(t)
	source, captured := example(t, "mpls.c"), frames(t)
	pergola(t, "program", "profile", source, "--frame", captured, "--filter", "label=100 -> send 2").says(t, 0,
		"STAGE", "load", "parse", "lookup", "format", "store", "total", "2 frames measured")
}
