package resolve

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// makeSlivers writes out how each node runs.
func (r *resolver) makeSlivers() {
	for _, n := range r.nodes {
		a := &n.all
		n.out = slice.Node{Name: n.name, Kind: n.kind, Labels: a.Labels, Position: n.own.Position}
		r.checkPosition(n)
		if n.out.HasSliver() {
			r.makeSliver(n)
		}
		n.out.Placement = r.placement(n)
	}
	r.checkWaits()
}

func (r *resolver) makeSliver(n *node) {
	a := &n.all
	n.out.Command, n.out.Env, n.out.CPU, n.out.PIDs, n.out.Exec = a.Cmd, a.Env, a.CPU, a.PIDs, a.Exec
	n.out.Args, n.out.User, n.out.Stdin = a.Args, a.User, a.Stdin != nil && *a.Stdin
	if len(a.Args) > 0 && len(a.Cmd) > 0 {
		r.Add(n.at.At("args"), "keep one of them", "args and cmd both say what the first process is")
	}
	n.out.CPUPeriod = r.cpuPeriod(n)
	n.out.StartDelay = r.startDelay(n)
	n.out.Memory = checked(a.Memory.Count())
	n.out.Restart = cmp.Or(a.Restart, slice.RestartAlways)
	if a.FastPath == slice.FastPathOff {
		n.out.FastPath = slice.FastPathOff
	}
	n.out.Rootfs = r.rootfs(n)
	r.outside(n)
	n.out.Ports = r.ports(n)
	n.out.BindPorts = r.bindPorts(n)
	n.out.Claims, n.out.BoundPorts = r.claims(n)
	n.out.Files = r.files(n)
	n.out.Binds = r.binds(n)
	r.volumes(n)
	n.out.Devices = r.devices(n)
	n.out.CapAdd = r.capAdd(n)
	n.out.Sysctls = r.sysctls(n)
	if n.kind == slice.Program {
		n.out.Program = r.program(n)
		n.out.Reserve = r.reserve(n)
	}
	for _, key := range slices.Sorted(maps.Keys(a.Env)) {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			r.Add(n.at.At("env").At(key), "", "%q is not a name of an environment variable", key)
		}
	}
	if len(a.Cmd) > 0 && a.Cmd[0] == "" {
		r.Add(n.at.At("cmd"), "write cmd: [/usr/sbin/program, argument]", "the command has no program")
	}
}

// cpuPeriod is the time in which a node may use its share of the processor. The kernel takes it from 1 ms to 1 s, and
// gives no less than 1 ms of processor time in it.
func (r *resolver) cpuPeriod(n *node) time.Duration {
	period, at := checked(n.all.CPUPeriod.Duration()), n.at.At("cpu_period")
	switch {
	case period == 0:
	case n.all.CPU == 0:
		r.Add(at, "write cpu:, too: cores, such as 0.5", "the period of a limit of cpu, and there is no limit")
	case period < time.Millisecond || period > time.Second:
		r.Add(at, "", "period %s is out of range: 1ms to 1s", n.all.CPUPeriod)
	case slice.CPUQuota(n.all.CPU, period) < time.Millisecond:
		r.Add(at, "take a longer period, or more of cpu",
			"%g of a core in %s is less than the kernel can give in a turn, 1ms", n.all.CPU,
			n.all.CPUPeriod)
	}
	return period
}

func (r *resolver) checkPosition(n *node) {
	p := n.own.Position
	if p != nil && (p.Latitude < -90 || p.Latitude > 90 || p.Longitude < -180 || p.Longitude > 180) {
		r.Add(n.at.At("position"), "write [latitude, longitude] in degrees",
			"position %g, %g is not on the globe", p.Latitude, p.Longitude)
	}
}

// isLayout reports whether an image is an OCI layout on the host, and its path.
func isLayout(image string) (dir string, ok bool) {
	if dir, ok = strings.CutPrefix(image, "oci:"); ok {
		return dir, true
	}
	for _, prefix := range []string{"/", "./", "../"} {
		if strings.HasPrefix(image, prefix) {
			return image, true
		}
	}
	return "", false
}

// reference is an image as registries name it: [HOST[:PORT]/]PATH[:TAG][@DIGEST].
var reference = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

func (r *resolver) rootfs(n *node) slice.Rootfs {
	image, source := n.all.Image, n.all.Rootfs
	at := n.at.At("rootfs")
	switch {
	case image != "" && source != nil:
		r.Add(at, "keep one of them", "image and rootfs both name a root file system")
	case image != "":
		if dir, ok := isLayout(image); ok {
			return slice.Rootfs{Kind: slice.RootfsLayout, Ref: dir}
		}
		switch isStored := slices.ContainsFunc(file.ImageTransports, func(prefix string) bool {
			return strings.HasPrefix(image, prefix)
		}); {
		case isStored && r.complete:
			r.Add(n.at.At("image"), "", "the image %q was not sent", image)
		case !isStored && !reference.MatchString(image):
			r.Add(n.at.At("image"), "write such as alpine:3.20, or oci:PATH",
				"%q is not an image reference", image)
		}
		return slice.Rootfs{Kind: slice.RootfsRegistry, Ref: image}
	case source == nil || source.Path == "host":
	case source.IsArchive():
		if r.complete && len(source.SHA256) != 64 {
			r.Add(at, "", "the archive %q was not sent", source.Path)
		}
		return slice.Rootfs{Kind: slice.RootfsTar, Ref: source.SHA256}
	case source.Path == "":
		r.Add(at, "write a directory or a tar archive", "rootfs names no path")
	default:
		return slice.Rootfs{Kind: slice.RootfsDir, Ref: source.Path}
	}
	return slice.Rootfs{Kind: slice.RootfsHost}
}

// reserved are the parts of a node's file system that are not files.
var reserved = regexp.MustCompile(`^/(proc|sys|dev)(/|$)`)

// checkTarget wants an absolute path in the node that a file or bind may take.
func (r *resolver) checkTarget(at *diagnostic.Path, target string) {
	switch {
	case !strings.HasPrefix(target, "/") || strings.ContainsRune(target, 0):
		r.Add(at, "write such as /etc/motd", "%q is not an absolute path", target)
	case path.Clean(target) != target || target == "/":
		r.Add(at, "write "+path.Clean(target), "%q is not a plain path of a file", target)
	case reserved.MatchString(target):
		r.Add(at, "", "%q is the kernel's", target)
	}
}

func (r *resolver) files(n *node) []slice.File {
	out := make([]slice.File, 0, len(n.all.Files))
	for _, target := range slices.Sorted(maps.Keys(n.all.Files)) {
		in, at := n.all.Files[target], n.at.At("files").At(target)
		r.checkTarget(at, target)
		file := slice.File{Path: target, Data: []byte(in.Content)}
		if in.Mode != "" {
			mode, err := strconv.ParseUint(in.Mode, 8, 32)
			if err != nil || mode > 0o7777 {
				r.Add(at.At("mode"), "write such as 0644", "%q is not a file mode", in.Mode)
			}
			file.Mode = uint32(mode)
		} else {
			file.Mode = 0o644
		}
		if in.Source != nil {
			if in.Content != "" {
				r.Add(at, "keep one of them", "content and source both say what is in the file")
			}
			r.checkSource(at, in.Source)
			file.Data = in.Source.Data
		}
		out = append(out, file)
	}
	return out
}

// checkSource wants a source to name a file and, in a complete topology, to hold it. A file may be empty.
func (r *resolver) checkSource(at *diagnostic.Path, s *file.Source) {
	switch {
	case s.Path == "":
		r.Add(at, "write a path", "no file is named")
	case r.complete && s.Data == nil:
		r.Add(at, "", "the file %q was not sent", s.Path)
	}
}

func (r *resolver) binds(n *node) []slice.Bind {
	var out []slice.Bind
	for i, text := range n.all.Binds {
		if bind, ok := r.mount(n.at.At("binds").Item(i), text, "bind", "SOURCE"); ok {
			out = append(out, bind)
		}
	}
	return out
}

// mount reads SOURCE:TARGET, with options or without.
func (r *resolver) mount(at *diagnostic.Path, text, what, source string) (bind slice.Bind, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		r.Add(at, fmt.Sprintf("write %s:TARGET or %[1]s:TARGET:ro", source), "%q is not a %s", text, what)
		return bind, false
	}
	bind = slice.Bind{Source: parts[0], Target: parts[1]}
	if len(parts) == 3 {
		for _, option := range strings.Split(parts[2], ",") {
			switch option {
			case "ro":
				bind.ReadOnly = true
			case "rw", "z", "Z":
			default:
				r.Add(at, diagnostic.SuggestOr(option, []string{"ro", "rw"}),
					"unknown option %q of a %s", option, what)
			}
		}
	}
	r.checkTarget(at, bind.Target)
	return bind, true
}

// volumes reads volumes: what names a path of the host is a bind, as for Docker Compose.
func (r *resolver) volumes(n *node) {
	for i, text := range n.all.Volumes {
		at := n.at.At("volumes").Item(i)
		m, ok := r.mount(at, text, "volume", "NAME")
		switch {
		case !ok:
		case file.IsPath(m.Source):
			n.out.Binds = append(n.out.Binds, m)
		case len(m.Source) > 63 || !file.NamePattern.MatchString(m.Source):
			r.Add(at, "letters, digits, - and _; for a directory of the host, write ./"+m.Source,
				"%q is not a name of a volume", m.Source)
		case slices.ContainsFunc(n.out.Volumes, func(v slice.Volume) bool { return v.Name == m.Source }):
			r.Add(at, "", "volume %q is named twice", m.Source)
		default:
			n.out.Volumes = append(n.out.Volumes,
				slice.Volume{Name: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
		}
	}
}

// namespaced are the kernel parameters that belong to a namespace; any other would be the whole machine's.
var namespaced = regexp.MustCompile(`^(net/|kernel/(sem$|msg|shm)|fs/mqueue/)`)

func (r *resolver) sysctls(n *node) map[string]string {
	if len(n.all.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(n.all.Sysctls)) {
		// A path with dots for elements could lead anywhere: net.//.kernel.core_pattern is
		// net/../kernel/core_pattern.
		if file := slice.SysctlPath(key); !namespaced.MatchString(file) || !fs.ValidPath(file) {
			r.Add(n.at.At("sysctls").At(key),
				"net.*, kernel.msg*, kernel.shm*, kernel.sem and fs.mqueue.* can be set",
				"sysctl %q does not belong to a node", key)
		}
		out[key] = n.all.Sysctls[key]
	}
	return out
}
