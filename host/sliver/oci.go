package sliver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// capabilitiesOf gives the names of the capabilities that a node's root user has, in its own user namespace.
func capabilitiesOf(more []string) (names []string) {
	for _, name := range slices.Concat(slice.Capabilities, more) {
		names = append(names, "CAP_"+name)
	}
	return names
}

const initPath = "/.pergola/init" // where every sliver finds catatonit

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// processSpec is the common part of all processes of a sliver: the first one and those of Exec.
func processSpec(args, env []string, dir string, capAdd []string) *specs.Process {
	umask := uint32(0o022)
	capabilities := capabilitiesOf(capAdd)
	oom := 300 // before the machine's own services
	return &specs.Process{
		Args: args,
		Env:  env,
		Cwd:  dir,
		User: specs.User{Umask: &umask},
		Capabilities: &specs.LinuxCapabilities{
			Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
		},
		Rlimits: []specs.POSIXRlimit{
			// FRR allocates tables for the soft limit of open files, in every daemon.
			{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: maxFiles()},
			{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
		},
		NoNewPrivileges: true,
		OOMScoreAdj:     &oom,
	}
}

// maxFiles is the hard limit of open files: not above that of this process, which not every root user may raise.
func maxFiles() uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 1024
	}
	return min(own.Max, 65536)
}

// environment merges, later sources over earlier ones.
func environment(image []string, hostname string, own map[string]string) []string {
	env := map[string]string{}
	for _, e := range slices.Concat([]string{defaultPath, "HOME=/root", "TERM=xterm", "HOSTNAME=" + hostname},
		image) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	maps.Copy(env, own)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// bundle writes the OCI configuration of a sliver.
func (r *Runtime) bundle(s *Spec, root *rootfs, rec *record, now map[string]string) error {
	args := []string{initPath, "-P"}
	switch {
	case rec.Plain:
	case isInit(rec.Command[0]):
		args = rec.Command
	default:
		args = append([]string{initPath, "--"}, rec.Command...)
	}
	base := uint32(uidBase(s.Slice))
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: uint32(uids())}}
	config := &specs.Spec{
		Version:  "1.0.2", // the newest that crun 1.8 takes
		Process:  processSpec(args, rec.Env, rec.Dir, rec.CapAdd),
		Root:     &specs.Root{Path: root.path},
		Hostname: s.Hostname,
		Mounts:   append(standardMounts(), r.ownMounts(s)...),
		Linux: &specs.Linux{
			UIDMappings: ids,
			GIDMappings: ids,
			Sysctl:      now,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.IPCNamespace}, {Type: specs.NetworkNamespace},
			},
			MaskedPaths: maskedPaths,
			// Not /proc/sys: settings of the sliver's own namespaces are writable there, all others belong
			// to a root user that is not the sliver's.
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"},
		},
	}
	if user := cmp.Or(s.User, root.image.User); !rec.Plain && user != "" {
		if err := setFirstUser(config.Process, root, user); err != nil {
			return err
		}
	}
	if r.oci.ownCgroups && !isRootless() {
		config.Linux.CgroupsPath = "/" + r.groupOf(s.ID)
		rules, err := deviceRules(s)
		if err != nil {
			return err
		}
		config.Linux.Resources = rules
	}
	filter, err := filterSpec()
	if err != nil {
		return err
	}
	config.Linux.Seccomp = filter
	if compiled := r.seccomp.Load(); compiled != nil {
		config.Annotations = map[string]string{seccompAnnotation: *compiled}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("write OCI configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.nodeDir(s.ID), "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("write OCI configuration: %w", err)
	}
	return nil
}

// isInit reports whether a program is an init system, which works as process 1 alone.
func isInit(program string) bool {
	return slices.Contains([]string{"init", "systemd"}, path.Base(program))
}

// setFirstUser runs the command as a user of the image, or of the machine where its programs are used.
func setFirstUser(p *specs.Process, root *rootfs, user string) error {
	fd, err := unix.Open(cmp.Or(root.lower, "/"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer unix.Close(fd)
	if err := setUser(fd, p, user); err != nil {
		return fmt.Errorf("run the first process as user %s: %w", user, err)
	}
	return nil
}

var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/kmsg",
	"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
	"/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap",
}

// filterSpec is the profile that Docker uses, for the capabilities that all nodes have but SYS_ADMIN, so that the
// dangerous system calls that it would allow (mount, setns, unshare, bpf ...) stay blocked. What a node has beside
// these (Spec.CapAdd) opens no more of them: all nodes have one filter.
func filterSpec() (*specs.LinuxSeccomp, error) {
	caps := slices.DeleteFunc(capabilitiesOf(nil), func(c string) bool { return c == "CAP_SYS_ADMIN" })
	filter, err := seccomp.GetDefaultProfile(&specs.Spec{
		Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}},
	})
	if err != nil {
		return nil, fmt.Errorf("make seccomp profile: %w", err)
	}
	return filter, nil
}

func standardMounts() []specs.Mount {
	terminals := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}
	if !isRootless() {
		terminals = append(terminals, "gid=5") // tty
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{
			Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"},
		},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: terminals},
		{
			Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
		},
		{
			Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue",
			Options: []string{"nosuid", "noexec", "nodev"},
		},
		{
			Destination: "/sys", Type: "sysfs", Source: "sysfs",
			Options: []string{"nosuid", "noexec", "nodev", "ro"},
		},
	}
}

const hostsPath = "/etc/hosts"

// ownMounts are the mounts of the machine's files that this sliver sees.
func (r *Runtime) ownMounts(s *Spec) []specs.Mount {
	file := func(source, target string, options ...string) specs.Mount {
		return specs.Mount{
			Destination: target, Type: "bind", Source: source,
			Options: append([]string{"bind"}, options...),
		}
	}
	mounts := []specs.Mount{file(r.init, initPath, "ro", "nosuid", "nodev")}
	// A node's own file is in the place of the one that the slice shares: where that is mounted, none can be
	// written.
	if !slices.ContainsFunc(s.Files, func(f slice.File) bool { return path.Clean(f.Path) == hostsPath }) {
		hosts := filepath.Join(r.sliceDir(s.Slice), "hosts")
		mounts = append(mounts, file(hosts, hostsPath, "ro", "nosuid", "nodev", "noexec"))
	}
	if s.Socket {
		mounts = append(mounts, file(r.socketDir(s.ID), SocketDir, "ro", "nosuid", "nodev", "noexec"))
	}
	if device := r.tunDevice(s.Slice); exists(device) {
		mounts = append(mounts, file(device, tunDevice, "nosuid", "noexec"))
	}
	for i, d := range s.Devices {
		if !d.InEveryNode() {
			mounts = append(mounts, file(r.deviceStage(s.ID, i), d.Target, "nosuid", "noexec"))
		}
	}
	for i, b := range s.Binds {
		mode := "rw"
		if b.ReadOnly {
			mode = "ro"
		}
		m := file(r.stage(s.ID, i), b.Target, mode, "nosuid", "nodev")
		m.Options[0] = "rbind"
		mounts = append(mounts, m)
	}
	return mounts
}

// splitSysctls separates settings that can be made at once from those of interfaces that do not exist yet.
func splitSysctls(all map[string]string) (now, later map[string]string) {
	now, later = map[string]string{}, map[string]string{}
	for key, value := range all {
		name := strings.Split(slice.SysctlPath(key), "/")
		to := now
		if isOfInterface(name) {
			to = later
		}
		to[key] = value
	}
	return now, later
}

// defaults replaces defaults of the kernel that a node should not have.
func withDefaults(s *Spec) {
	if s.Hostname == "" {
		s.Hostname = s.Node
	}
	if s.PIDs == 0 {
		s.PIDs = slice.DefaultPIDs
	}
	// All users may ping: set-uid programs gain no rights here.
	sysctls := map[string]string{"net.ipv4.ping_group_range": fmt.Sprintf("0 %d", uids()-1)}
	maps.Copy(sysctls, s.Sysctls)
	s.Sysctls = sysctls
}
