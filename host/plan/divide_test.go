package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

func TestASwitchWithMorePortsThanABridgeIsAStarOfBridges(t *testing.T) {
	for name, links := range map[string]func(n int) [][]string{
		"switch": func(n int) (links [][]string) {
			for i := range n {
				links = append(links, []string{fmt.Sprint("h", i), "s1"})
			}
			return append(links, []string{"s1", "s2"})
		},
		"LAN": func(n int) [][]string {
			ends := []string{"s2"}
			for i := range n {
				ends = append(ends, fmt.Sprint("h", i))
			}
			return [][]string{ends}
		},
	} {
		// S2 has one; a star of three has a fourth in the middle.
		for nodes, bridges := range map[int]int{900: 2, 2500: 5} {
			s := plantest.Slice(slice.MaxID, links(nodes)...)
			w := mustWant(t, Input{Spec: s})
			if got := len(w.names(KindSwitch)); got != bridges {
				t.Errorf("%s of %d nodes: %d bridges, want %d", name, nodes, got, bridges)
			}
			if _, err := reconcile.Plan(w.Resources, nil, nil); err != nil {
				t.Error(err)
			}
			ports := make(map[string]int)
			for _, detail := range w.details {
				switch d := detail.(type) {
				case Plug:
					ports[d.Bridge]++
				case Cable:
					ports[d.BridgeA]++
					ports[d.BridgeB]++
					alike := strings.TrimRight(d.A, "io") == strings.TrimRight(d.B, "io")
					if len(d.A) > 14 || SliceOf(d.A) != slice.MaxID || !alike && len(d.A) == 14 {
						t.Errorf("cable %+v", d)
					}
				}
			}
			sum := 0
			for bridge, n := range ports {
				if sum += n; n > 1023 {
					t.Errorf("%s of %d nodes: %s has %d ports", name, nodes, bridge, n)
				}
			}
			if want := nodes + 2 + 2*(bridges-2); sum != want { // a cable to s2, and those of the star
				t.Errorf("%s of %d nodes: %d ports, want %d", name, nodes, sum, want)
			}
		}
	}
}
