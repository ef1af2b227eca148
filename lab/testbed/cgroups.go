package testbed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The cgroup file system is one for the whole machine, and servers name their groups by their state directory: which is
// /run/pergola in each machine of a testbed. So each machine has a cgroup namespace, whose root is a group of its own
// in every hierarchy. What is in the groups of a testbed belongs to the testbed, also where nothing else tells: that is
// its mark.

// hierarchy is a mounted cgroup hierarchy: with version 1 one for some controllers each, with version 2 the only one.
type hierarchy struct {
	point   string // where it is mounted
	kind    string // cgroup or cgroup2
	options string // which controllers: those of its superblock
}

// hierarchies finds those that are mounted here, each once.
func hierarchies() ([]hierarchy, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for _, m := range mounts {
		h := hierarchy{point: m.point, kind: m.kind}
		known := slices.ContainsFunc(all, func(o hierarchy) bool { return o.point == h.point })
		if known || h.kind != "cgroup" && h.kind != "cgroup2" {
			continue
		}
		if h.kind == "cgroup" {
			h.options = controllers(m.options)
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup file system is mounted")
	}
	return all, nil
}

// controllers takes out of a superblock's options those that say which hierarchy it is.
func controllers(options string) string {
	words := slices.DeleteFunc(strings.Split(options, ","), func(word string) bool {
		switch word {
		case "rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "favordynmods":
			return true
		}
		return strings.HasPrefix(word, "release_agent=")
	})
	return strings.Join(words, ",")
}

// group is the name of the testbed's group.
func (b *Testbed) group() string { return "pergola-dev-" + b.digest(8) }

func (b *Testbed) makeGroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		top := filepath.Join(h.point, b.group())
		groups := []string{top}
		for _, name := range b.Config.Machines {
			groups = append(groups, filepath.Join(top, name))
		}
		for _, group := range groups {
			if err := makeGroup(group); err != nil {
				return err
			}
		}
		if h.kind == "cgroup2" {
			delegate(h.point)
			delegate(top)
		}
	}
	return nil
}

// readGroups finds the testbed's machines by their groups. found says that there are any of the testbed's.
func (b *Testbed) readGroups() (found bool, err error) {
	all, err := hierarchies()
	if err != nil {
		return false, err
	}
	for _, h := range all {
		entries, err := os.ReadDir(filepath.Join(h.point, b.group()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("list cgroups: %w", err)
		}
		found = true
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(b.Config.Machines, e.Name()) {
				b.Config.Machines = append(b.Config.Machines, e.Name())
			}
		}
	}
	return found, nil
}

// Groups are the machine's cgroups, one in each hierarchy, from the real machine's view.
func (m *Machine) Groups() ([]string, error) {
	all, err := hierarchies()
	var groups []string
	for _, h := range all {
		groups = append(groups, filepath.Join(h.point, m.testbed.group(), m.Name))
	}
	return groups, err
}

func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	// version 1 accepts no process before these are set
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			continue // another hierarchy, or version 2, where the root has none
		}
		if err := os.WriteFile(filepath.Join(dir, name), bytes.TrimSpace(value), 0); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

// delegate lets the children of a group have the controllers that slivers are limited with, each if it is there.
func delegate(dir string) {
	for _, c := range []string{"+cpu", "+memory", "+pids"} {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0)
	}
}

// joinGroups moves this process into a machine's groups.
func (b *Testbed) joinGroups(machine string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.point, b.group(), machine, "cgroup.procs"), []byte("0"),
			0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// leaveRoot moves this process out of the root of its cgroup namespace: with version 2, a group that holds processes
// cannot limit those below it, and slivers go below it.
func leaveRoot(hierarchies []hierarchy) error {
	for _, h := range hierarchies {
		if h.kind != "cgroup2" {
			continue
		}
		dir := filepath.Join(h.point, "machine")
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// removeGroups kills whatever is in the groups of the testbed, and removes them.
func (b *Testbed) removeGroups(ctx context.Context) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("its processes do not end"))
	defer cancel()
	for {
		left := 0
		for _, h := range all {
			n, err := sweep(filepath.Join(h.point, b.group()))
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// sweep kills the processes of a group and of all below it, and removes those that are empty; left counts those that
// were not. A machine's first process takes all others of its machine with it.
func sweep(group string) (left int, err error) {
	var dirs []string
	err = filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("list cgroups: %w", err)
	}
	for _, dir := range slices.Backward(dirs) { // from the leaves up
		// version 1: what is frozen does not die
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return 0, fmt.Errorf("list processes of cgroup: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			if !errors.Is(err, unix.EBUSY) {
				return 0, fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
			left++
		}
	}
	return left, nil
}

// mounted is a line of /proc/self/mountinfo.
type mounted struct{ point, kind, options string }

func readMounts() ([]mounted, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	var all []mounted
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// proc_pid_mountinfo(5): optional fields end there
		before, after, found := strings.Cut(lines.Text(), " - ")
		words, super := strings.Fields(before), strings.Fields(after)
		if !found || len(words) < 6 || len(super) < 3 {
			continue
		}
		all = append(all, mounted{unescape.Replace(words[4]), super[0], super[2]})
	}
	return all, lines.Err()
}

// unescape undoes the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountsBelow gives the mount points at or below a directory.
func mountsBelow(dir string) ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range mounts {
		if m.point == dir || strings.HasPrefix(m.point, dir+"/") {
			points = append(points, m.point)
		}
	}
	return points, nil
}
