package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// The vm tier passes on PERGOLA_UPDATE.
var update = flag.Bool("update", os.Getenv("PERGOLA_UPDATE") != "",
	"write into docs/examples what the commands of its pages print")

// modules are what pages need of the kernel, beside what every kernel has that runs Pergola.
var modules = map[string]string{"vrf": "vrf"}

// TestPagesOfExamplesSayWhatIsSo types what the pages of docs/examples tell the reader to type, as
// TestTutorialOfProgramsSaysWhatIsSo does. So each network comes up, its checks hold, and it is as the page shows it.
func TestPagesOfExamplesSayWhatIsSo(t *testing.T) {
	read(t, func(module string) bool { return module == "" })
}

// TestPagesOfExamplesOnStockKernel does so with the pages whose networks need more of the kernel.
func TestPagesOfExamplesOnStockKernel(t *testing.T) {
	for _, module := range modules {
		testkit.KernelModule(t, module)
	}
	read(t, func(module string) bool { return module != "" })
}

func read(t *testing.T, chosen func(module string) bool) {
	t.Helper()
	testkit.Root(t)
	root := testkit.ModuleRoot(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	binary, told := pergola(t), 0
	for _, page := range pages {
		name := name(page)
		if name == "README" || !chosen(modules[name]) {
			continue
		}
		told++
		t.Run(name, func(t *testing.T) { readPage(t, binary, root, page) })
	}
	if told == 0 {
		t.Error("no page was read")
	}
}

// readPage follows a page from the directory that has the examples.
func readPage(t *testing.T, binary, root, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, binary)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, server: s, dir: t.TempDir()}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(r.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	steps := blocks(string(text))
	if len(steps) < 3 {
		t.Errorf("the page has %d blocks to type", len(steps))
	}
	written, from := "", 0
	for _, b := range steps {
		if !*update {
			r.follow(b.commands, b)
			continue
		}
		out := r.mustRun(b.commands)
		if b.end > 0 {
			written += string(text[from:b.start]) + strings.TrimRight(out, "\n") + "\n"
			from = b.end
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(written+string(text[from:])), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := r.mustRun("pergola ls"); !strings.Contains(out, "no network is running") {
		t.Errorf("the page leaves its network behind:\n%s", out)
	}
}

func name(page string) string { return strings.TrimSuffix(filepath.Base(page), ".md") }
