package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The fake machine has 2 cores and 8 GiB.
func TestApplyWarnsOfNodesThatDeclareMoreThanTheMachineHas(t *testing.T) {
	nodes := func(r1, r2 string) string {
		return "name: lab\nnodes: {r1: {" + r1 + "}, r2: {" + r2 + "}}\nlinks: [[r1, r2]]\n"
	}
	const together = ": they cannot all use what they declare at the same time"
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"all there is": {nodes("cpu: 2, memory: 8GiB", ""), nil},
		"one node": {nodes("cpu: 64, memory: 900GiB", ""), []string{
			"cpu of r1 (64) is more than there is: this machine has 2 cores",
			"memory of r1 (900GiB) is more than there is: this machine has 8GiB of memory",
		}},
		"the sum": {nodes("cpu: 1.5, memory: 6GiB", "cpu: 1, memory: 2560MiB"), []string{
			"the cpu of 2 nodes is 2.5 together, and this machine has 2 cores" + together,
			"the memory of 2 nodes is 8.5GiB together, and this machine has 8GiB of memory" + together,
		}},
		"both": {nodes("memory: 10GiB", "memory: 9GiB"), []string{
			"memory of r1 (10GiB), r2 (9GiB) is more than there is: this machine has 8GiB of memory",
			"the memory of 2 nodes is 19GiB together, and this machine has 8GiB of memory" + together,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			alone, _, _ := member(t, &fake{})
			plan, _ := mustApply(t, alone, c.file)
			if diff := cmp.Diff(c.want, plan.Warnings); diff != "" {
				t.Error(diff)
			}
			if plan, _ = mustApply(t, alone, c.file); plan.Warnings != nil {
				t.Errorf("warns again though nothing changes: %q", plan.Warnings)
			}
		})
	}
}

func TestInAClusterPlacementJudgesWhatNodesDeclare(t *testing.T) {
	f := &fake{hosts: machines(2)}
	c, _, _ := member(t, f, InCluster(f, "h1"))
	plan, _ := mustApply(t, c, "name: lab\nnodes: {r1: {cpu: 7}, r2: {cpu: 7}}\nlinks: [[r1, r2]]\n")
	if plan.Warnings != nil {
		t.Errorf("warns of what fits the cluster: %q", plan.Warnings)
	}
}
