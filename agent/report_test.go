package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLastWordsAreBounded(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"": "", "one\n": ": one", "one\ntwo\n\n": ": two", "a\xff": ": a", strings.Repeat("x", 1<<20): ": " + strings.Repeat("x", 200),
	} {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(log); got != want {
			t.Errorf("of %.20q: %.20q, want %.20q", text, got, want)
		}
	}
	if err := os.Truncate(log, 1<<40); err != nil { // a node can make its log as long as it likes
		t.Fatal(err)
	}
	if got := lastWords(log); len(got) > 202 {
		t.Errorf("%d bytes of a log of a terabyte", len(got))
	}
}
