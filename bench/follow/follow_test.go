package follow

import (
	"errors"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The sizes are the smallest that run every line: what is measured here says nothing.
func TestConvergenceIsMeasured(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgfollow")
	var astray Gaps
	var err error
	for range 3 {
		if astray, err = Convergence(t.Context(), 1); !errors.Is(err, errNotWalked) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(astray.Kernel) != 1 || len(astray.Fast) != 1 {
		t.Errorf("%+v", astray)
	}
	t.Logf("%+v", astray)
}

func TestMemoryOfMirrors(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t, "pgfollow")
	maps, heap, err := Memory(t.Context(), 4, 10)
	if err != nil {
		t.Fatal(err)
	}
	if maps == 0 {
		t.Errorf("%d bytes of maps, %d of heap", maps, heap)
	}
}
