package program

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/lab/testkit"
)

// Frames of a router and of a server of I3 arrive, in any mix.
func TestMixForwards(t *testing.T) {
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
	stand, err := g.mixStand(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const rate = 50_000 // any machine does that while others use it
	m := &Mix{Rate: map[int]float64{0: rate, 80: rate}, I3: map[MixKey][]float64{}, IPv4: map[MixKey][]float64{},
		Offered: map[MixKey][]float64{}}
	for payload := range m.Rate {
		b := &mixBout{mix: m, payload: payload, window: 400 * time.Millisecond, stand: stand}
		steps.Push(b.close)
		for _, share := range []float64{0, 0.5, 1} {
			k := MixKey{payload, share}
			testkit.Eventually(t, func() error {
				_, err := b.run(t.Context(), k)
				return err
			}, 10*time.Second, "frames")
			if ipv4, i3 := m.IPv4[k], m.I3[k]; (ipv4[len(ipv4)-1] > 0) != (share > 0) ||
				(i3[len(i3)-1] > 0) != (share < 1) {
				t.Errorf("%v: IPv4 %v, I3 %v", k, ipv4, i3)
			}
		}
	}
}
