package te_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/te"
)

func TestFloodsWhenAThresholdIsPassed(t *testing.T) {
	d := te.Thresholds{Down: []uint8{50, 90, 100}, Up: []uint8{20, 100}}
	for name, c := range map[string]struct {
		told, now uint64 // unreserved, of 1000
		want      bool
	}{
		"nothing":                     {500, 500, false},
		"less, below the first":       {1000, 501, false},
		"less, reaches one":           {1000, 500, true},
		"less, between two":           {500, 101, false},
		"less, passes one":            {400, 50, true},
		"full":                        {1, 0, true},
		"more, not full any more":     {0, 1, true},
		"more, between two":           {99, 800, false},
		"more, below the first again": {800, 801, true},
		"more, none are left":         {900, 1000, false},
		"more than is reservable":     {2000, 3000, false},
	} {
		var told, now [te.Priorities]uint64
		told[6], now[6] = c.told, c.now
		if got := d.Flood(1000, told, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !d.Flood(1<<62, [te.Priorities]uint64{1 << 62}, [te.Priorities]uint64{1 << 60}) {
		t.Error("three quarters of a very large link are reserved")
	}
	if (te.Thresholds{Down: []uint8{101}}).Validate() == nil || d.Validate() != nil {
		t.Error("a threshold of 101 % is valid, or one of 100 % is not")
	}
}

// However bandwidth is reserved and released, what routers were told is wrong by at most the distance of two
// thresholds.
func TestWhatIsNotToldIsLittle(t *testing.T) {
	th := te.DefaultThresholds()
	reserved := func(u, whole uint64) float64 { return 100 * float64(whole-u) / float64(whole) }
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Uint64Range(1, 1<<62).Draw(t, "reservable")
		told := [te.Priorities]uint64{whole}
		now := told
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			now[0] = rapid.Uint64Range(0, whole).Draw(t, "unreserved")
			if th.Flood(whole, told, now) {
				told = now
			}
			is, was := reserved(now[0], whole), reserved(told[0], whole)
			gap := 15.0
			if min(is, was) > 95 {
				gap = 1
			}
			if diff := max(is-was, was-is); diff > gap+0.001 {
				t.Fatalf("%.2f %% reserved, %.2f %% told", is, was)
			}
		}
	})
}

func TestFloatsPromiseNoMoreThanThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.Uint64().Draw(t, "bandwidth")
		f := te.Float(b)
		back, err := te.BandwidthOf(f)
		if err != nil || back > b || te.Float(back) != f || float64(b-back) > float64(b)/(1<<23) && b <= 1<<62 {
			t.Fatalf("%d is written as %g, and read as %d: %v", b, f, back, err)
		}
	})
}
