package diagnostic

import (
	"strings"
	"testing"
)

func TestExcerptKeepsTabsAndCutsLongLines(t *testing.T) {
	if got, want := excerpt("\ta: b", 5), "    \ta: b\n    \t   ^"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got := excerpt(strings.Repeat("é", 500), 400)
	line, caret, _ := strings.Cut(got, "\n")
	if n := len([]rune(line)); n > excerptWidth+4 || strings.Index(caret, "^") > excerptWidth {
		t.Errorf("%d characters:\n%s", n, got)
	}
}
