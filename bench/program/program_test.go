package program

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) {
	anyCore = true
	testkit.Main(m)
}

// Whatever forwards gets frames from the source to the sink, in every mode in which it is measured.
func TestAllVariantsForward(t *testing.T) {
	testkit.Root(t)
	var steps undo.Steps
	defer func() {
		if err := steps.Run(); err != nil {
			t.Error(err)
		}
	}()
	g, err := openPlatform(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps.Push(g.undo.Run)
	all := &Throughput{Payloads: []int{0, 1400}, Missing: map[Variant]string{}, Offered: map[Key][]float64{}}
	stands, err := all.stands(t.Context(), g, &steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all.keys() {
		if all.Missing[k.Variant] != "" {
			t.Logf("%s: %s", k.Variant, all.Missing[k.Variant])
			continue
		}
		b := &bout{key: k, stands: stands[k.Variant], window: 100 * time.Millisecond, throughput: all}
		b.limit = 20_000 // any of them does that on a machine that others use
		testkit.Eventually(t, func() error {
			_, err := b.run(t.Context())
			return err
		}, 5*time.Second, "frames")
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSeriesOfOneComparisonFollowEachOther(t *testing.T) {
	keys := (&Throughput{Payloads: []int{0, 1400}}).keys()
	seen := map[Key]bool{}
	for i, k := range keys {
		if seen[k] {
			t.Errorf("%v twice", k)
		}
		seen[k] = true
		if i > 0 && k.Mode == Flood && keys[i-1].Payload != k.Payload {
			t.Errorf("%v after %v", k, keys[i-1])
		}
	}
	if !seen[Key{Program, Two, 0}] || !seen[Key{Ring, Flood, 1400}] || !seen[Key{Program, Flood, 0}] {
		t.Errorf("series %v", keys)
	}
}
