package datapath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	// budget is how many instructions the verifier may look at. It gives up at a million; kernels differ by a
	// factor.
	budget = 30_000
	// tolerance is by how many percent a value may exceed the table.
	tolerance = 10
	// complexityFile is the table: by kernel, as "6.1", and program.
	complexityFile = "testdata/complexity.json"
)

// complexity is what a program costs the kernel that loads it.
type complexity struct {
	Instructions int `json:"instructions"` // after the verifier's rewriting
	Verified     int `json:"verified"`     // instructions that the verifier looked at
	Stack        int `json:"stack"`        // bytes, of all functions together
}

type complexityTable map[string]map[string]complexity

// This kernel's part of the table is renewed by `make complexity`. A kernel that is not in the table has the budget
// alone.
func TestVerifierComplexityStaysWithinBudget(t *testing.T) {
	inBench(t, func(b *bench) {
		have := b.measureComplexity()
		table := must(readComplexity())
		kernel := kernelSeries(b)
		for name, c := range have {
			b.Logf("%s on Linux %s: %+v", name, kernel, c)
			if c.Verified > budget {
				b.Errorf("%s: the verifier looked at %d instructions, and may at %d", name, c.Verified,
					budget)
			}
		}
		if os.Getenv("PERGOLA_UPDATE") != "" {
			table[kernel] = have
			b.check(writeComplexity(table))
			return
		}
		if want := table[kernel]; want != nil {
			for _, problem := range compareComplexity(want, have) {
				b.Errorf("%s; if that has to be: make complexity", problem)
			}
		}
	})
}

func TestComplexityThatGrewByMoreThanTenPercentIsRefused(t *testing.T) {
	want := map[string]complexity{"p": {Instructions: 100, Verified: 1000, Stack: 64}}
	for _, c := range []struct {
		have     complexity
		problems int
	}{
		{complexity{100, 1000, 64}, 0},
		{complexity{110, 1100, 70}, 0},
		{complexity{50, 500, 0}, 0},
		{complexity{111, 1000, 64}, 1},
		{complexity{100, 1101, 64}, 1},
		{complexity{100, 1000, 71}, 1},
		{complexity{200, 2000, 128}, 3},
	} {
		if p := compareComplexity(want, map[string]complexity{"p": c.have}); len(p) != c.problems {
			t.Errorf("%+v: %q", c.have, p)
		}
	}
	if p := compareComplexity(want, map[string]complexity{"q": {}}); len(p) != 2 {
		t.Errorf("another program: %q", p)
	}
}

func compareComplexity(want, have map[string]complexity) (problems []string) {
	for name, h := range have {
		w, ok := want[name]
		if !ok {
			problems = append(problems, name+" is not in the table")
			continue
		}
		for _, v := range []struct {
			what       string
			want, have int
		}{
			{"instructions", w.Instructions, h.Instructions},
			{"verified instructions", w.Verified, h.Verified},
			{"bytes of stack", w.Stack, h.Stack},
		} {
			if v.have*100 > v.want*(100+tolerance) {
				problems = append(problems, fmt.Sprintf("%s: %d %s, and %d in the table", name, v.have,
					v.what, v.want))
			}
		}
	}
	for name := range want {
		if _, ok := have[name]; !ok {
			problems = append(problems, name+" is in the table alone")
		}
	}
	return problems
}

var stackDepth = regexp.MustCompile(`(?m)^stack depth ([0-9+]+)`)

// measureComplexity loads all programs as Open does, and has the verifier report.
func (b *bench) measureComplexity() map[string]complexity {
	table := b.complexityOf(must(loadObject()))
	// Programs into which slices' code is put, as they are without it; each has the lookup of filters in it.
	for _, object := range []string{"program/stages_bpfel.o", "node/node_bpfel.o"} {
		maps.Copy(table, b.complexityOf(must(ebpf.LoadCollectionSpec(object))))
	}
	return table
}

func (b *bench) complexityOf(spec *ebpf.CollectionSpec) map[string]complexity {
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		b.Fatalf("%+v", refused) // with all lines of its log
	}
	if err != nil {
		b.Fatal(err)
	}
	defer all.Close()
	table := map[string]complexity{}
	for name, p := range all.Programs {
		info := must(p.Info())
		verified, ok := info.VerifiedInstructions()
		depths := stackDepth.FindStringSubmatch(p.VerifierLog)
		if !ok || depths == nil {
			b.Errorf("%s: the kernel does not report what it verified: %s", name, p.VerifierLog)
			continue
		}
		c := complexity{Instructions: must(info.TranslatedSize()) / 8, Verified: int(verified)}
		for depth := range strings.SplitSeq(depths[1], "+") {
			c.Stack += must(strconv.Atoi(depth))
		}
		table[name] = c
	}
	return table
}

// kernelSeries is "6.1" for Linux 6.1.0-42-amd64.
func kernelSeries(b *bench) string {
	var uts unix.Utsname
	b.check(unix.Uname(&uts))
	release := strings.SplitN(unix.ByteSliceToString(uts.Release[:]), ".", 3)
	return release[0] + "." + release[1]
}

func readComplexity() (complexityTable, error) {
	table := complexityTable{}
	text, err := os.ReadFile(complexityFile)
	if err != nil {
		return nil, err
	}
	return table, json.Unmarshal(text, &table)
}

func writeComplexity(table complexityTable) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(table); err != nil {
		return err
	}
	return os.WriteFile(complexityFile, text.Bytes(), 0o644)
}
