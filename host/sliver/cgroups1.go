package sliver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// cgroups1 drives version 1, a hierarchy per controller, also on hybrid machines.
type cgroups1 struct {
	root        string
	controllers []string
	rootTasks   []*os.File // open, because a launch thread does not see the hierarchies
	shared      bool       // the OCI runtime makes the groups too, and in all hierarchies
}

// newCgroups1 takes the controllers that are mounted; pids and freezer must be, for killing and pausing.
func newCgroups1(root string, shared bool) (*cgroups1, error) {
	g := &cgroups1{root: root, shared: shared}
	for _, c := range []string{"pids", "freezer", "cpu", "cpuacct", "memory"} {
		if exists(filepath.Join(root, c, "tasks")) {
			f, err := os.OpenFile(filepath.Join(root, c, "tasks"), os.O_WRONLY, 0)
			if err != nil {
				return nil, fmt.Errorf("open cgroup: %w", err)
			}
			g.controllers, g.rootTasks = append(g.controllers, c), append(g.rootTasks, f)
		} else if c == "pids" || c == "freezer" {
			return nil, &Unsupported{featureContainers, fmt.Errorf("cgroup controller %s is not mounted",
				c),
				"mount the cgroup file systems (systemd does)"}
		}
	}
	return g, nil
}

func (g *cgroups1) dir(controller, group string) string {
	return filepath.Join(g.root, controller, group)
}

func (g *cgroups1) open(group string) (cgroup1.Cgroup, error) {
	return cgroup1.Load(cgroup1.StaticPath("/"+group), cgroup1.WithHierarchy(g.hierarchy))
}

func (g *cgroups1) hierarchy() ([]cgroup1.Subsystem, error) {
	var all []cgroup1.Subsystem
	for _, c := range g.controllers {
		switch c {
		case "pids":
			all = append(all, cgroup1.NewPids(g.root))
		case "freezer":
			all = append(all, cgroup1.NewFreezer(g.root))
		case "cpu":
			all = append(all, cgroup1.NewCpu(g.root))
		case "cpuacct":
			all = append(all, cgroup1.NewCpuacct(g.root))
		case "memory":
			all = append(all, cgroup1.NewMemory(g.root))
		}
	}
	return all, nil
}

func (g *cgroups1) path(group string) string { return g.dir("pids", group) }

func (g *cgroups1) make(group string) error {
	for _, c := range g.controllers {
		if err := os.MkdirAll(g.dir(c, group), 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

func (g *cgroups1) delegate(string) error { return nil } // nothing to do in version 1

// join moves the calling thread. Written as 0 and not as a number, it needs no lock over all forks of the machine.
func (g *cgroups1) join(group string) (int, error) {
	for _, c := range g.controllers {
		if err := os.WriteFile(filepath.Join(g.dir(c, group), "tasks"), []byte("0"), 0); err != nil {
			return -1, fmt.Errorf("join cgroup: %w", err)
		}
	}
	return -1, nil
}

func (g *cgroups1) leave() {
	for _, f := range g.rootTasks {
		_, _ = f.WriteString("0") // the thread ends in any case
	}
}

func (g *cgroups1) limit(group string, l limits) error {
	resources := &specs.LinuxResources{}
	if l.pids > 0 {
		resources.Pids = &specs.LinuxPids{Limit: &l.pids}
	}
	if l.cpu > 0 {
		quota, period := l.quota()
		resources.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	if l.weight > 0 {
		if resources.CPU == nil {
			resources.CPU = &specs.LinuxCPU{}
		}
		shares := l.weight * sharesOfCore / weightOfCore
		resources.CPU.Shares = &shares
	}
	if l.memory > 0 {
		resources.Memory = &specs.LinuxMemory{Limit: &l.memory}
	}
	c, err := g.open(group)
	if err == nil {
		err = c.Update(resources)
	}
	if err != nil {
		return fmt.Errorf("limit cgroup: %w", err)
	}
	return nil
}

// sharesOfCore is the weight that the kernel gives a group by itself in version 1.
const sharesOfCore = 1024

func (g *cgroups1) weight(group string) uint64 {
	shares, err := readNumber(filepath.Join(g.dir("cpu", group), "cpu.shares"))
	if err != nil {
		return 0 // the controller is not mounted, or the group has gone
	}
	return (shares*weightOfCore + sharesOfCore/2) / sharesOfCore
}

func (g *cgroups1) processes(group string) ([]int, error) {
	return readPIDs(filepath.Join(g.dir("pids", group), "cgroup.procs"))
}

func (g *cgroups1) freeze(group string, on bool) error {
	c, err := g.open(group)
	if err != nil {
		return fmt.Errorf("freeze cgroup: %w", err)
	}
	return setFrozen(c, on)
}

func (g *cgroups1) frozen(group string) bool {
	data, err := os.ReadFile(filepath.Join(g.dir("freezer", group), "freezer.state"))
	return err == nil && len(data) > 0 && data[0] == 'F' // FREEZING, FROZEN
}

func (g *cgroups1) usage(group string) (u Usage, err error) {
	if u.PIDs, err = readNumber(filepath.Join(g.dir("pids", group), "pids.current")); err != nil {
		return u, err
	}
	// The others may not be mounted.
	cpu, cpuErr := readNumber(filepath.Join(g.dir("cpuacct", group), "cpuacct.usage"))
	memory, memErr := readNumber(filepath.Join(g.dir("memory", group), "memory.usage_in_bytes"))
	if cpuErr == nil {
		u.CPU = time.Duration(cpu)
	}
	if memErr == nil {
		u.Memory = memory
	}
	return u, nil
}

// outOfMemory also looks at failcnt: oom_kill alone counts processes killed because the machine had no memory left,
// too.
func (g *cgroups1) outOfMemory(group string) bool {
	dir := g.dir("memory", group)
	reached, err := readNumber(filepath.Join(dir, "memory.failcnt"))
	return err == nil && reached > 0 && readCount(filepath.Join(dir, "memory.oom_control"), "oom_kill") > 0
}

func (g *cgroups1) remove(group string) error {
	dirs := make([]string, 0, len(g.controllers))
	for _, c := range g.controllers {
		dirs = append(dirs, g.dir(c, group))
	}
	if g.shared {
		dirs, _ = filepath.Glob(g.dir("*", group)) // the pattern is well formed: see checkName
	}
	var all []error
	for _, dir := range dirs {
		all = append(all, removeDir(dir))
	}
	return errors.Join(all...)
}

func (g *cgroups1) children(group string) ([]string, error) {
	return subdirs(g.dir("pids", group))
}
