package rounds

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsComparedIsOfTheSameRound(t *testing.T) {
	// The machine is twice as slow in the last rounds; one window of each was disturbed.
	a := []Sample{{0, 4}, {1, 4}, {3, 2}}
	b := []Sample{{0, 2}, {2, 1}, {3, 1}}
	if got := Paired(a, b, func(a, b float64) float64 { return a / b }); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := Median(b); got != 1 {
		t.Errorf("median %v, want 1", got)
	}
	if got := Median(nil); !math.IsNaN(got) || Number(got) != "" {
		t.Errorf("nothing has the median %v", got)
	}
}

func TestLoadIsParsed(t *testing.T) {
	const before = "cpu  100 0 50 800 10 0 5 5 7 0\ncpu0 1 2 3\n"
	const after = "cpu  150 0 50 830 10 0 5 25 7 0\n"
	a, err := parseLoad([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	b, err := parseLoad([]byte(after))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.stolenSince(a); got != 0.2 {
		t.Errorf("stolen %v, want 0.2", got)
	}
	if got := b.stolenSince(b); got != 0 {
		t.Errorf("stolen in no time: %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g h i", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, err := parseLoad([]byte(bad)); err == nil {
			t.Errorf("parsed %q", bad)
		}
	}
}

func TestRunnerAlternates(t *testing.T) {
	var order []string
	probe := func(name string) *Probe {
		return &Probe{What: name, Exact: true, Window: func(context.Context) (float64, error) {
			order = append(order, name)
			return float64(len(order)), nil
		}}
	}
	a, b := probe("a"), probe("b")
	r := Runner{Counts: Counts{Wanted: 2}}
	if err := r.Run(t.Context(), []*Probe{a, b}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abab" || r.Rounds != 2 || r.Windows != 4 {
		t.Errorf("order %s in %d rounds of %d windows", got, r.Rounds, r.Windows)
	}
	as, bs := Both(a.Samples, b.Samples[1:])
	if !slices.Equal(as, []float64{3}) || !slices.Equal(bs, []float64{4}) {
		t.Errorf("rounds that both have: %v, %v", as, bs)
	}
}

func TestRunnerKeepsWhatCameBeforeAnError(t *testing.T) {
	failure := errors.New("failed")
	p := &Probe{What: "x", Exact: true}
	p.Window = func(context.Context) (float64, error) {
		if len(p.Samples) == 2 {
			return 0, failure
		}
		return 1, nil
	}
	r := Runner{Counts: Counts{Wanted: 5}}
	if err := r.Run(t.Context(), []*Probe{p}); !errors.Is(err, failure) || len(p.Samples) != 2 {
		t.Errorf("%v after %d samples", err, len(p.Samples))
	}
}
