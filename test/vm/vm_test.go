// Package vm holds the tests of the vm tier itself; see run.
package vm

import (
	"os"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// TestKernelHasWhatTheTierIsFor keeps the tier honest: were its kernel to change so that it no longer differs from
// others in what its tests are listed for, they would prove nothing.
func TestKernelHasWhatTheTierIsFor(t *testing.T) {
	testkit.OnlyInVM(t, "looks at the vm tier's own kernel")
	for _, module := range []string{"sch_netem", "sch_htb", "sch_fq", "cls_bpf", "veth", "bridge", "overlay"} {
		testkit.KernelModule(t, module)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(release), "6.1.") {
		t.Errorf("kernel %s; the tier is for 6.1, the oldest that Pergola supports (no tcx there)", release)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Errorf("the tier is for machines with cgroup v2 alone: %v", err)
	}
}
