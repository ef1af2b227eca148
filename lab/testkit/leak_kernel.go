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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
		// The file is absent where /sys shows another namespace.
		alias, _ := os.ReadFile(filepath.Join("/sys/class/net", i.Name, "ifalias"))
		add(fmt.Sprintf("%d %s", i.Index, i.Name),
			thing{kind: "interface", name: i.Name, text: []string{i.Name, string(alias)}})
	}
	return nil
}

// lookHooks reports what BPF programs of interfaces hang on: clsact and ingress qdiscs, and XDP.
func lookHooks(add func(string, thing)) error {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		hook := func(kind string) {
			name := kind + " of " + a.Name
			add(fmt.Sprintf("%d %s", a.Index, name),
				thing{kind: "hook", name: name, text: []string{a.Name, a.Alias}})
		}
		if a.Xdp != nil && a.Xdp.Attached {
			hook("xdp")
		}
		for _, q := range qdiscs {
			if q.Attrs().LinkIndex == a.Index && (q.Type() == "clsact" || q.Type() == "ingress") {
				hook(q.Type())
			}
		}
	}
	return nil
}

// dump repeats a netlink dump that the kernel marks as inconsistent, because something changed meanwhile.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for tries := 0; ; tries++ {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || tries == 10 {
			return all, err
		}
	}
}

// lookCgroups reports cgroups of all hierarchies.
func lookCgroups(add func(string, thing)) error {
	return lookTree("/sys/fs/cgroup", func(path string, e fs.DirEntry) {
		if e.IsDir() {
			add(path, thing{kind: "cgroup", name: path, text: []string{path}, shared: true})
		}
	})
}

// lookBPF reports pinned objects by path, and loaded programs, maps and links by id.
func lookBPF(add func(string, thing)) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := lookTree("/sys/fs/bpf", func(path string, _ fs.DirEntry) {
		add(path, thing{kind: "pinned BPF object", name: path, text: []string{path}})
	}); err != nil {
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

func lookTree(root string, found func(path string, e fs.DirEntry)) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		found(path, e)
		return nil
	})
}

func sharedBPF(kind, name string) thing {
	return thing{kind: "BPF " + kind, name: name, text: []string{name}, shared: true}
}

func lookPrograms(add func(string, thing)) error {
	return eachProgram(func(id ebpf.ProgramID, info *ebpf.ProgramInfo) {
		add(fmt.Sprint(id), sharedBPF("program", fmt.Sprintf("%d %s", id, info.Name)))
	})
}

func eachProgram(found func(ebpf.ProgramID, *ebpf.ProgramInfo)) error {
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
		found(id, info)
	}
}

// lookMaps leaves out tables of programs that no program uses. Such a table may stay for ever, empty, after it was
// looked at: each time that its last descriptor is closed, as here, the kernel takes a reference for the work of
// emptying it, and loses the reference where that work waits already (prog_array_map_clear(), read in Linux 6.1).
func lookMaps(add func(string, thing)) error {
	used, err := mapsOfPrograms()
	if err != nil {
		return err
	}
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
		if info.Type == ebpf.ProgramArray && !used[id] {
			continue
		}
		add(fmt.Sprint(id), sharedBPF("map", fmt.Sprintf("%d %s", id, info.Name)))
	}
}

// mapsOfPrograms are the maps that programs use.
func mapsOfPrograms() (map[ebpf.MapID]bool, error) {
	used := map[ebpf.MapID]bool{}
	err := eachProgram(func(_ ebpf.ProgramID, info *ebpf.ProgramInfo) {
		ids, _ := info.MapIDs()
		for _, id := range ids {
			used[id] = true
		}
	})
	return used, err
}

func lookLinks(add func(string, thing)) error {
	all := new(link.Iterator)
	defer func() { all.Close() }()
	for nextLink(&all) {
		info, err := all.Link.Info()
		if err != nil {
			return fmt.Errorf("describe BPF link %d: %w", all.ID, err)
		}
		add(fmt.Sprint(all.ID), sharedBPF("link", fmt.Sprintf("%d (type %d, program %d)", info.ID, info.Type,
			info.Program)))
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("list BPF links: %w", err)
	}
	return nil
}

// nextLink moves to the next link. A link that is being attached has an ID already, and the kernel asks to come back
// for it (EAGAIN, bpf_link_by_id()).
func nextLink(all **link.Iterator) bool {
	for !(*all).Next() {
		if !errors.Is((*all).Err(), unix.EAGAIN) {
			return false
		}
		last := (*all).ID
		(*all).Close()
		*all = &link.Iterator{ID: last}
	}
	return true
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
		add(e.Name()+" "+target, thing{kind: "open file",
			name: fmt.Sprintf("%s -> %s", e.Name(), target), own: true})
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
