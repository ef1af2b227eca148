package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// lookMounts reports the mounts of this process's mount namespace; network namespaces pinned by `ip netns` are among
// them.
func lookMounts(add func(string, thing)) error {
	lines, err := readLines("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > 4 {
			if words[4] == "/run/netns" {
				continue // ip(8) makes it with the first namespace of a name, and never removes it
			}
			add(line, thing{kind: "mount", name: words[4], text: []string{line}})
		}
	}
	return nil
}

// lookInterfaces reports the interfaces of this thread's network namespace.
func lookInterfaces(add func(string, thing)) error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		alias, _ := os.ReadFile(filepath.Join("/sys/class/net", i.Name, "ifalias")) // absent where /sys shows another namespace
		add(fmt.Sprintf("%d %s", i.Index, i.Name), thing{kind: "interface", name: i.Name, text: []string{i.Name, string(alias)}})
	}
	return nil
}

// lookCgroups reports cgroups of all hierarchies.
func lookCgroups(add func(string, thing)) error {
	return lookTree("/sys/fs/cgroup", "cgroup", func(e fs.DirEntry) bool { return e.IsDir() }, add)
}

// lookBPF reports pinned objects by path, and loaded programs, maps and links by id.
func lookBPF(add func(string, thing)) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := lookTree("/sys/fs/bpf", "pinned BPF object", func(fs.DirEntry) bool { return true }, add); err != nil {
		return err
	}
	if err := lookPrograms(add); err != nil {
		return err
	}
	if err := lookMaps(add); err != nil {
		return err
	}
	return lookLinks(add)
}

func lookTree(root, kind string, want func(fs.DirEntry) bool, add func(string, thing)) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if want(e) {
			add(path, thing{kind: kind, name: path, text: []string{path}})
		}
		return nil
	})
}

func lookPrograms(add func(string, thing)) error {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list BPF programs: %w", err)
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open BPF program %d: %w", id, err)
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return fmt.Errorf("describe BPF program %d: %w", id, err)
		}
		add(fmt.Sprint(id), thing{kind: "BPF program", name: fmt.Sprintf("%d %s", id, info.Name), text: []string{info.Name}})
	}
}

func lookMaps(add func(string, thing)) error {
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list BPF maps: %w", err)
		}
		id = next
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open BPF map %d: %w", id, err)
		}
		info, err := m.Info()
		_ = m.Close()
		if err != nil {
			return fmt.Errorf("describe BPF map %d: %w", id, err)
		}
		add(fmt.Sprint(id), thing{kind: "BPF map", name: fmt.Sprintf("%d %s", id, info.Name), text: []string{info.Name}})
	}
}

func lookLinks(add func(string, thing)) error {
	all := new(link.Iterator)
	defer all.Close()
	for all.Next() {
		info, err := all.Link.Info()
		if err != nil {
			return fmt.Errorf("describe BPF link %d: %w", all.ID, err)
		}
		add(fmt.Sprint(all.ID), thing{kind: "BPF link", name: fmt.Sprintf("%d (type %d, program %d)", info.ID, info.Type, info.Program)})
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("list BPF links: %w", err)
	}
	return nil
}

// lookFiles reports this process's open files. The Go runtime keeps its own pollers open.
func lookFiles(add func(string, thing)) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil || target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
			continue
		}
		add(e.Name()+" "+target, thing{kind: "open file", name: fmt.Sprintf("%s -> %s", e.Name(), target), own: true})
	}
	return nil
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}
