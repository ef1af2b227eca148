package sliver

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// cgroups2 drives version 2, the only one on current distributions.
type cgroups2 struct {
	root        string
	controllers []string
}

// newCgroups2 enables controllers at the root of the visible hierarchy. The real root may hold processes beside groups;
// the root that a container sees may not, and then limits are impossible.
func newCgroups2(root string) (*cgroups2, error) {
	g := &cgroups2{root: root}
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("examine cgroups: %w", err)
	}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if slices.Contains(strings.Fields(string(have)), c) {
			g.controllers = append(g.controllers, c)
		}
	}
	if err := g.delegate(""); err != nil {
		return nil, &Unsupported{"cgroup controllers", err,
			"let the server manage its cgroup: no other process in it, or the machine's root"}
	}
	return g, nil
}

// delegate makes the controllers usable in the children of a group, and in those of all groups above it.
func (g *cgroups2) delegate(group string) error {
	m, err := cgroup2.Load("/"+filepath.Join(group, "child"), cgroup2.WithMountpoint(g.root))
	if err != nil {
		return err
	}
	return m.ToggleControllers(g.controllers, cgroup2.Enable)
}

func (g *cgroups2) dir(group string) string { return filepath.Join(g.root, group) }

func (g *cgroups2) path(group string) string { return g.dir(group) }

func (g *cgroups2) open(group string) (*cgroup2.Manager, error) {
	return cgroup2.Load("/"+group, cgroup2.WithMountpoint(g.root))
}

func (g *cgroups2) make(group string) error {
	if err := os.MkdirAll(g.dir(group), 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

func (g *cgroups2) join(group string) (int, error) {
	fd, err := unix.Open(g.dir(group), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open cgroup: %w", err)
	}
	return fd, nil
}

func (g *cgroups2) leave() {}

func (g *cgroups2) limit(group string, l limits) error {
	resources := &cgroup2.Resources{}
	if l.pids > 0 && slices.Contains(g.controllers, "pids") {
		resources.Pids = &cgroup2.Pids{Max: l.pids}
	}
	if l.cpu > 0 {
		quota, period := l.quota()
		resources.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}
	}
	if l.weight > 0 && slices.Contains(g.controllers, "cpu") {
		if resources.CPU == nil {
			resources.CPU = &cgroup2.CPU{}
		}
		resources.CPU.Weight = &l.weight
	}
	if l.memory > 0 {
		resources.Memory = &cgroup2.Memory{Max: &l.memory}
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

func (g *cgroups2) weight(group string) uint64 {
	w, err := readNumber(filepath.Join(g.dir(group), "cpu.weight"))
	if err != nil {
		return 0 // there is no controller, or the group has gone
	}
	return w
}

func (g *cgroups2) processes(group string) ([]int, error) {
	return readPIDs(filepath.Join(g.dir(group), "cgroup.procs"))
}

func (g *cgroups2) freeze(group string, on bool) error {
	c, err := g.open(group)
	if err != nil {
		return fmt.Errorf("freeze cgroup: %w", err)
	}
	return setFrozen(c, on)
}

func (g *cgroups2) frozen(group string) bool {
	data, err := os.ReadFile(filepath.Join(g.dir(group), "cgroup.freeze"))
	return err == nil && len(data) > 0 && data[0] == '1'
}

func (g *cgroups2) usage(group string) (u Usage, err error) {
	f, err := os.Open(filepath.Join(g.dir(group), "cpu.stat"))
	if err != nil {
		return u, fmt.Errorf("read cgroup: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var us int64
		if n, _ := fmt.Sscanf(lines.Text(), "usage_usec %d", &us); n == 1 {
			u.CPU = time.Duration(us) * time.Microsecond
		}
	}
	if slices.Contains(g.controllers, "memory") {
		if u.Memory, err = readNumber(filepath.Join(g.dir(group), "memory.current")); err != nil {
			return u, err
		}
	}
	if slices.Contains(g.controllers, "pids") {
		u.PIDs, err = readNumber(filepath.Join(g.dir(group), "pids.current"))
	}
	return u, err
}

// outOfMemory: oom_kill also counts those whom the kernel killed because the machine had no memory left, oom does not.
func (g *cgroups2) outOfMemory(group string) bool {
	file := filepath.Join(g.dir(group), "memory.events")
	return readCount(file, "oom") > 0 && readCount(file, "oom_kill") > 0
}

func (g *cgroups2) remove(group string) error { return removeDir(g.dir(group)) }

func (g *cgroups2) children(group string) ([]string, error) { return subdirs(g.dir(group)) }
