package sliver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestWeightsAreByCores(t *testing.T) {
	for cores, want := range map[float64]uint64{0: 1, 0.001: 1, 0.5: 50, 1: 100, 64: 6400, 1000: 10000} {
		if got := weightOf(cores); got != want {
			t.Errorf("%v cores weigh %d, want %d", cores, got, want)
		}
	}
}

// weightReads counts how often the weight of a group is read.
type weightReads struct {
	cgroups
	n int
}

func (c *weightReads) weight(group string) uint64 {
	c.n++
	return c.cgroups.weight(group)
}

// A slice weighs what its slivers weigh, as they come and go. Slivers without cores, of which there may be a thousand,
// do not have all others looked at.
func TestASliceWeighsWhatItsSliversHave(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	group := r.groupOfSlice(testSlice)
	for _, step := range []struct {
		node  string
		cores float64
		want  uint64
	}{{"a", 0, 1}, {"b", 0.5, 51}, {"c", 0, 51}, {"d", 2, 251}} {
		s := spec(step.node)
		s.CPU = step.cores
		if _, err := r.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := r.groups.weight(group); got != step.want {
			t.Errorf("with %s, the slice weighs %d, want %d", step.node, got, step.want)
		}
	}
	if err := r.Delete(t.Context(), ID{testSlice, "d"}); err != nil {
		t.Fatal(err)
	}
	if got := r.groups.weight(group); got != 51 {
		t.Errorf("without d, the slice weighs %d", got)
	}
	reads := &weightReads{cgroups: r.groups}
	r.groups = reads
	if _, err := r.Create(t.Context(), spec("e")); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), ID{testSlice, "e"}); err != nil {
		t.Fatal(err)
	}
	if reads.n > 1 { // its own
		t.Errorf("for a sliver without cores, %d weights are read", reads.n)
	}
}

// Four slivers want all of one core. The one that has half of it gets that; without weights it would be a sixth.
func TestASliverGetsItsTimeBesideBurners(t *testing.T) {
	const second = testSlice + 1
	const third = testSlice + 2
	r := newRuntime(t)
	prepare(t, r)
	for id, name := range map[uint16]string{second: "second", third: "third"} {
		if err := r.PrepareSlice(t.Context(), id, name, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.RemoveSlice(context.WithoutCancel(t.Context()), id); err != nil {
				t.Error(err)
			}
		})
	}
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !cpus.IsSet(cpu) {
		cpu++
	}
	burners := []Spec{spec("reserved"), spec("beside"), spec("other"), spec("another")}
	burners[0].CPU = 0.5
	burners[2].ID.Slice, burners[3].ID.Slice = second, third
	for _, s := range burners {
		id, _ := up(t, r, s)
		sh(t, r, id, fmt.Sprintf("taskset -c %d sh -c 'while :; do :; done' >/dev/null 2>&1 &", cpu))
	}
	used := func() (all time.Duration, each []time.Duration) {
		for _, s := range burners {
			u, err := r.Usage(s.ID)
			if err != nil {
				t.Fatal(err)
			}
			all, each = all+u.CPU, append(each, u.CPU)
		}
		return all, each
	}
	before, was := used()
	testkit.Eventually(t, func() error {
		if all, _ := used(); all-before < 3*time.Second {
			return fmt.Errorf("they have used %v", all-before)
		}
		return nil
	}, time.Minute, "burners to burn")
	after, is := used()
	for i := range is {
		is[i] -= was[i]
	}
	share := float64(is[0]) / float64(after-before)
	if share < 0.35 || is[1] == 0 || is[2] == 0 || is[3] == 0 {
		t.Errorf("it has %.2f of the time that all have: %v", share, is)
	}
}
