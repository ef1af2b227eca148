package differential

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/lab/vnet"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "run the one case of this seed")
	networksFlag = flag.Int("networks", 110, "number of networks")
	framesFlag   = flag.Int("frames", 100, "frames for each network, at least")
	firstFlag    = flag.Uint64("first", 1, "seed of the first network")
	longFlag     = flag.Bool("long", false, "a million frames, and no limit of time: make soak")
	shrinkFlag   = flag.Int("shrink", 300, "how often a failing case is tried again with less of it")
)

func TestMain(m *testing.M) { testkit.Main(m) }

func newArena(t testing.TB) *arena {
	t.Helper()
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	g, err := vnet.Open(t.Context(), dir, vnet.Log())
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBacklog()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	stay(t)
	return &arena{platform: g, backlog: b, fast: true}
}

// stay keeps the test on one CPU, which then also does all the forwarding.
func stay(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// play runs a case, and on failure looks for a smaller one that fails.
func (a *arena) play(t *testing.T, c *testcase) {
	t.Helper()
	f, err := a.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		return
	}
	t.Logf("seed %d: %v", c.seed, f)
	small := shrink(c, *shrinkFlag, func(c *testcase) bool {
		f, err := a.run(t.Context(), c)
		return err == nil && f != nil
	})
	last := f
	if f, err := a.run(t.Context(), small); err == nil && f != nil {
		last = f
	}
	t.Errorf("the networks differ; again, and smaller:\n%s\n%v\n%v", replay(t.Name(), c), last, small)
}

// replay is the command that plays a case again and shrinks it. With another number of frames it would have other
// events.
func replay(test string, c *testcase) string {
	return fmt.Sprintf("go test ./test/differential -count=1 -v -timeout 0 -run '^%s$' -seed "+
		"%d -frames %d -shrink %d", test, c.seed, c.least, 10**shrinkFlag)
}

// Without a fast path in either, two networks that are alike do the same: otherwise the other test proves nothing.
func TestKernelsAgree(t *testing.T) {
	a := newArena(t)
	a.fast = false
	a.rounds(t, max(1, networks()/10))
}

// With the fast path and without, hosts receive the same.
func TestFastPathAgreesWithKernels(t *testing.T) {
	a := newArena(t)
	a.rounds(t, networks())
	if *seedFlag == 0 {
		a.walked(t)
	}
}

// networks is how many are played: the vm tier's processor is emulated.
func networks() int {
	switch {
	case *longFlag:
		*framesFlag = 500
		return 1_000_000 / *framesFlag
	case testkit.InVM():
		return *networksFlag / 40
	}
	return *networksFlag
}

// walked fails if so little took the fast path that its agreement with the kernels means nothing: kernels count what
// they forward (ForwDatagrams), and must have had that much less to do. A few networks have no typical share; there,
// something must have been walked.
func (a *arena) walked(t *testing.T) {
	t.Helper()
	s, all, plain := a.stats, 0.5, 0.9
	if s.Frames < 5000 {
		all, plain = 0, 0
	}
	if s.KernelHops == 0 {
		t.Error("no kernel forwarded anything: there was nothing to compare with")
		return
	}
	if share := 1 - float64(s.SlowHops)/float64(s.KernelHops); share <= all {
		t.Errorf("of %d hops, %.2f were walked, want more than %.2f", s.KernelHops, share, all)
	}
	if s.KernelPlain == 0 { // all networks of a few had a flaw
		return
	}
	if share := 1 - float64(s.SlowPlain)/float64(s.KernelPlain); share <= plain {
		t.Errorf("of %d hops of valid frames in networks without a flaw, %.2f were walked, want more than %.2f",
			s.KernelPlain, share, plain)
	}
}

func (a *arena) rounds(t *testing.T, networks int) {
	t.Helper()
	start := time.Now()
	if *seedFlag != 0 {
		a.play(t, newCase(*seedFlag, *framesFlag))
		return
	}
	defer func() {
		t.Logf("%d networks in %v: %+v", networks, time.Since(start).Round(time.Millisecond), a.stats)
	}()
	for i := range networks {
		if a.play(t, newCase(*firstFlag+uint64(i), *framesFlag)); t.Failed() {
			break
		}
	}
}
