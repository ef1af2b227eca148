package importer

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// clabNode is a node with what its group, its kind and the defaults say, from the most specific level to the least.
type clabNode struct {
	name   string // as the file has it
	kind   string
	at     yamltree.Entry
	levels []*yamltree.Node
	out    *topology.Node    // nil where something is wrong, and of a node that is not made
	partOf string            // the node whose network it has, and which is made in its place
	absent bool              // it is left out
	daemon slice.Daemon      // that the image starts
	onHost bool              // its root is the machine's own
	as     string            // what replaces it; empty: nothing
	faces  map[string]string // its interfaces here, by their names in the file, where it is replaced
	inner  string            // the bridge that it is, within the node partOf
	guest  *topology.Node    // what it would be, were it not in the network namespace of partOf
}

var clabUsed = []string{"kind", "group", "image", "entrypoint", "cmd", "exec", "binds", "env", "labels", "network-mode",
	"cpu", "memory", "sysctls", "restart-policy", "dns", "env-files", "healthcheck", "ports", "stages",
	"startup-delay", "user", "cap-add", "devices", "mgmt-ipv4", "mgmt-ipv6"}

func (c *clab) node(f yamltree.Entry) *clabNode {
	n := &clabNode{name: f.Key, at: f}
	if f.Value.Kind != yamltree.Null && !c.want(f.Value, yamltree.Map, "node "+f.Key) {
		return n
	}
	c.inherit(n)
	n.as = c.opt.Kinds.find(n.kind)
	out := &topology.Node{}
	switch {
	case n.as == AsImage && !c.startsHere(n):
		return n
	case n.isContainer():
		if c.linux(n, out); n.partOf != "" {
			n.guest = out
			return n
		}
		if n.as == AsImage && !n.absent {
			c.boot(n, out)
		}
	case n.as != "":
		if c.replace(n, out); n.partOf != "" {
			return n
		}
	case n.kind == kindBridge && strings.Contains(n.name, "|"):
		n.inner, n.partOf, _ = strings.Cut(n.name, "|")
		c.leaveOfBridge(n, lack{changesNodes, "a bridge runs nothing"})
		return n
	case n.kind == kindBridge, n.kind == kindOVS:
		out.Kind = slice.Switch
		c.leaveOfBridge(n, lack{changesNodes, "a switch runs nothing"})
	case n.kind == kindHost:
		out.Kind = slice.Uplink
		c.leaveOfBridge(n, lack{changesTraffic, "Pergola runs nothing on the host"})
	default:
		c.unsupported(n)
		return n
	}
	if n.absent {
		return n
	}
	if n.isContainer() {
		c.eachKey(n, func(f yamltree.Entry) {
			if l, ok := leftKeys[f.Key]; ok && (n.as != AsImage || !contains(bootedKeys, f.Key)) {
				c.leave(n.name, f, l)
			}
		})
	}
	out.Labels = c.merged(n, "labels")
	n.out = out
	return n
}

// kindOf is the value of a node's kind, found as containerlab finds it: the kind can come from the node's group.
func (c *clab) kindOf(n *clabNode) *yamltree.Node {
	defaults, groups := c.root.Field("defaults"), c.root.Field("groups")
	for _, v := range []*yamltree.Node{n.at.Value.Field("kind"),
		groups.Field(n.at.Value.Field("group").Text).Field("kind"),
		groups.Field(defaults.Field("group").Text).Field("kind"), defaults.Field("kind")} {
		if v.Kind != yamltree.Null && v.Text != "" {
			return v
		}
	}
	return &yamltree.Node{Position: n.at.Position}
}

// inherit finds a node's kind and its group; the group can come from the kind.
func (c *clab) inherit(n *clabNode) {
	defaults, kinds, groups := c.root.Field("defaults"), c.root.Field("kinds"), c.root.Field("groups")
	group := c.str(n.at.Value.Field("group"), "group")
	n.kind = c.str(c.kindOf(n), "kind")
	kind := kinds.Field(n.kind)
	for _, v := range []*yamltree.Node{kind.Field("group"), defaults.Field("group")} {
		if group == "" {
			group = c.str(v, "group")
		}
	}
	n.levels = []*yamltree.Node{n.at.Value, groups.Field(group), kind, defaults}
}

// find gives the value of the most specific level that has the key.
func (n *clabNode) find(key string) *yamltree.Node {
	for _, level := range n.levels {
		if v := level.Field(key); v.Kind != yamltree.Null && (v.Kind != yamltree.Scalar || v.Text != "") {
			return v
		}
	}
	return &yamltree.Node{Position: n.at.Position}
}

// merged gives a map to which all levels contribute, the more specific ones overriding.
func (c *clab) merged(n *clabNode, key string) map[string]string {
	var all map[string]string
	for _, level := range slices.Backward(n.levels) {
		if m := c.pairs(level.Field(key), key); len(m) > 0 {
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, m)
		}
	}
	for k, v := range all {
		all[k] = c.magic(n, v)
	}
	return all
}

// eachKey calls do for the keys of a node, and of its group, its kind and the defaults. A key that containerlab does
// not have is reported, once for all nodes: as an error where it is a known one misspelt.
func (c *clab) eachKey(n *clabNode, do func(yamltree.Entry)) {
	for _, level := range n.levels {
		for _, f := range level.Entries {
			if _, passedOver := leftKeys[f.Key]; passedOver || contains(clabUsed, f.Key) {
				do(f)
				continue
			}
			if c.unknown[f.Position] {
				continue
			}
			c.unknown[f.Position] = true
			known := slices.Concat(clabUsed, slices.Collect(maps.Keys(leftKeys)))
			if hint := diagnostic.Suggest(f.Key, known); hint != "" {
				c.fail(f.Position, hint, "a node has no %q", f.Key)
			} else {
				c.leave(n.name, f, lack{changesNodes, "containerlab is not known to have this key"})
			}
		}
	}
}

// linux is a container. It forwards IPv4, as containers of Docker do: Docker switches forwarding on in the machine, and
// new network namespaces inherit it. Its image and its exec lines do everything else.
func (c *clab) linux(n *clabNode, out *topology.Node) {
	if !c.hasNetwork(n) {
		return
	}
	c.image(n, out)
	out.Kind = slice.Host
	if n.daemon != "" {
		out.Kind, out.Daemon = slice.Router, n.daemon
	} else {
		out.Gateway = topology.Strings{"none"}
	}
	out.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
	maps.Copy(out.Sysctls, c.merged(n, "sysctls"))
	out.Env = c.merged(n, "env")
	out.User = c.str(n.find("user"), "user")
	c.process(n, out)
	c.binds(n, out)
	c.around(n, out)
	c.waits(n, out)
	if n.daemon != "" && len(out.Config) == 0 { // as such images are: the daemon runs, and no protocol
		out.Routing = topology.Strings{string(slice.Static)}
	}
	for _, level := range slices.Backward(n.levels) {
		c.exec(n, out, level.Field("stages"), c.stages(n, level.Field("stages"), stagesBefore))
	}
	for _, level := range slices.Backward(n.levels) {
		for _, item := range c.scalars(level.Field("exec"), "exec") {
			c.exec(n, out, item, []string{strings.TrimSpace(item.Text)})
		}
	}
	for _, level := range slices.Backward(n.levels) {
		c.exec(n, out, level.Field("stages"), c.stages(n, level.Field("stages"), stagesAfter))
	}
	c.limits(n, out)
}

// hasNetwork reports whether the node is made. One in the machine's own network is left out.
func (c *clab) hasNetwork(n *clabNode) bool {
	at := n.find("network-mode")
	switch mode := c.str(at, "network-mode"); {
	case mode == "host":
		n.absent = true
		c.leaveAt(n.name, "network-mode: host", at.Position,
			lack{changesTraffic, "the node is left out: nothing of a network runs in the machine's own"})
		return false
	case strings.HasPrefix(mode, "container:"):
		c.share(n, at, strings.TrimPrefix(mode, "container:"))
	}
	return true
}

// exec adds commands that run after the start.
func (c *clab) exec(n *clabNode, out *topology.Node, at *yamltree.Node, lines []string) {
	for _, line := range lines {
		line = shell(c.magic(n, line), n.onHost)
		if n.onHost && installs(line) {
			c.install(at, line)
			continue
		}
		if part := installFirst.FindString(line); n.onHost && part != "" {
			c.install(at, strings.TrimRight(part, "& \n"))
			line = strings.Replace(line, part, "", 1)
		}
		out.Exec = append(out.Exec, line)
	}
}

// image decides what the node's root file system is.
func (c *clab) image(n *clabNode, out *topology.Node) {
	at := n.find("image")
	image := c.str(at, "image")
	if image == "" {
		c.fail(n.at.Position, "write image:", "node %q of kind %s has no image", n.name, n.kind)
		return
	}
	rule, ok := c.opt.Images.find(image)
	switch {
	case !ok || rule.Rootfs == "" && rule.Image == "":
		out.Image = c.local(image)
	case rule.Image != "":
		out.Image = c.local(rule.Image)
	case rule.Rootfs == hostRootfs:
		n.onHost = true
	default:
		out.Rootfs = &topology.Source{Path: rule.Rootfs}
	}
	n.daemon = rule.Daemon
	if n.onHost || rule.Rootfs+rule.Image != "" {
		instead := "the machine's own programs"
		if !n.onHost {
			instead = rule.Rootfs + rule.Image
		}
		c.substituted(at, image, instead)
	}
}

// local prefers the machine's own copy of an image, as containerlab does.
func (c *clab) local(image string) string {
	if c.opt.Local == nil {
		return image
	}
	if c.locals[image] == "" {
		c.locals[image] = c.opt.Local(image)
	}
	return c.locals[image]
}

// substituted warns once of each image that is replaced.
func (c *clab) substituted(at *yamltree.Node, image, instead string) {
	message := fmt.Sprintf("image %s is replaced by %s", image, instead)
	if !slices.ContainsFunc(c.found, func(d topology.Diagnostic) bool { return d.Message == message }) {
		c.warn(at.Position, "the image table says so", "%s", message)
	}
}

// Commands that images run by default, or that only keep a container alive: Pergola does both without them.
var idle = []string{"sh", "bash", "ash", "/bin/sh", "/bin/bash", "/bin/ash", "sleep infinity", "tail -f /dev/null",
	"sleep inf", "/usr/lib/frr/docker-start", "/sbin/tini -- /usr/lib/frr/docker-start"}

// process sets the first process, as Docker does: entrypoint: replaces the image's own and its arguments, cmd: alone
// the arguments. Its standard input stays open, as with containerlab, where it is a terminal: a shell does not end.
func (c *clab) process(n *clabNode, out *topology.Node) {
	entry := strings.TrimSpace(c.magic(n, c.str(n.find("entrypoint"), "entrypoint")))
	line := strings.TrimSpace(entry + " " + c.magic(n, c.str(n.find("cmd"), "cmd")))
	if n.onHost && contains(idle, strings.Join(strings.Fields(line), " ")) {
		return
	}
	if !n.onHost && out.Kind != slice.Router || line != "" {
		open := true
		out.Stdin = &open
	}
	if line == "" {
		return
	}
	words, err := shellquote.Split(shell(line, n.onHost))
	if err != nil {
		at := n.find("cmd")
		c.fail(at.Position, "", "cmd of node %q: a quote is not closed", n.name)
		return
	}
	if entry == "" && !n.onHost && n.daemon == "" {
		out.Args = words
	} else {
		out.Cmd = words
	}
}

// shell replaces a shell that Debian does not have by one that it has.
func shell(line string, onHost bool) string {
	if rest, ok := strings.CutPrefix(line, "ash "); ok && onHost {
		return "sh " + rest
	}
	return line
}

// installFirst is a command that fetches packages, before others of the same line.
var installFirst = regexp.MustCompile(`\b(?:apk|apt|apt-get|dnf|yum) [^&;|'"]*&&\s*`)

// installs reports whether a command fetches packages.
func installs(line string) bool {
	words := strings.Fields(line)
	return len(words) > 1 && contains([]string{"apk", "apt", "apt-get", "dnf", "yum"}, words[0])
}

// install warns of a package manager whose node has no file system of its own.
func (c *clab) install(at *yamltree.Node, line string) {
	c.warn(at.Position, "install them on the machine, or give the image another root in the image table",
		"%q is left out: the node has the machine's own programs", line)
}

func (c *clab) limits(n *clabNode, out *topology.Node) {
	if at := n.find("cpu"); at.Kind != yamltree.Null {
		cpu, err := strconv.ParseFloat(c.str(at, "cpu"), 64)
		if err != nil || !(cpu >= 0 && cpu < 1e6) {
			c.fail(at.Position, "a number of cores", "cpu %q of node %q is not a number", at.Text, n.name)
		}
		out.CPU = cpu
	}
	if at := n.find("memory"); at.Kind != yamltree.Null {
		out.Memory = topology.Bytes(c.str(at, "memory"))
		if _, err := out.Memory.Count(); err != nil {
			c.fail(at.Position, "", "memory of node %q: %v", n.name, err)
		}
	}
	policies := map[string]slice.Restart{"": "", "no": slice.RestartNever, "on-failure": slice.RestartOnFailure,
		"always": slice.RestartAlways, "unless-stopped": slice.RestartAlways}
	at := n.find("restart-policy")
	policy, ok := policies[strings.ToLower(c.str(at, "restart-policy"))]
	if !ok {
		c.fail(at.Position, "no, on-failure, always or unless-stopped", "unknown restart-policy %q of node %q",
			at.Text, n.name)
	}
	out.Restart = policy
}

// magic replaces the variables of containerlab.
func (c *clab) magic(n *clabNode, text string) string {
	if !strings.Contains(text, "__clab") {
		return text
	}
	dir := "clab-" + c.lab
	return strings.NewReplacer("__clabNodeName__", n.name, "__clabLabName__", dir, "__clabNodeDir__",
		dir+"/"+n.name, "__clabDir__", dir).Replace(text)
}

// binds turns binds of plain files beside the topology into files, so that they need no root; a routing daemon's
// become its configuration. Directories and paths elsewhere on the host stay binds.
func (c *clab) binds(n *clabNode, out *topology.Node) {
	byTarget := map[string]bool{}
	for _, level := range n.levels {
		for _, item := range level.Field("binds").Items {
			text := c.magic(n, c.str(item, "bind"))
			source, target, options := splitBind(text)
			if source == "" || !strings.HasPrefix(target, "/") {
				c.fail(item.Position, "write SOURCE:TARGET, TARGET absolute",
					"bind %q of node %q is not complete", text, n.name)
				continue
			}
			target = path.Clean(target)
			if byTarget[target] {
				continue // a more specific level has this target
			}
			byTarget[target] = true
			c.bind(n, out, source, target, options)
		}
		c.want(level.Field("binds"), yamltree.List, "binds")
	}
}

func splitBind(text string) (source, target, options string) {
	parts := strings.SplitN(text, ":", 3)
	parts = append(parts, "", "")
	return parts[0], parts[1], parts[2]
}

func (c *clab) bind(n *clabNode, out *topology.Node, source, target, options string) {
	info := c.stat(source)
	relative := !path.IsAbs(source) && !strings.HasPrefix(source, "~")
	isDir := info != nil && info.IsDir()
	dir := map[slice.Daemon]string{slice.FRR: "/etc/frr", slice.BIRD: "/etc/bird"}[n.daemon]
	switch {
	case dir != "" && path.Dir(target) == dir && !isDir:
		c.configure(out, path.Base(target), source)
	case n.daemon == slice.BIRD && target == "/etc/bird.conf":
		c.configure(out, "bird.conf", source)
	case dir != "" && target == dir && isDir && relative:
		entries, _ := fs.ReadDir(c.opt.Dir, path.Clean(source))
		for _, e := range entries {
			if e.Type().IsRegular() {
				c.configure(out, e.Name(), path.Join(source, e.Name()))
			}
		}
	case relative && !isDir:
		f := topology.File{Source: &topology.Source{Path: source}}
		if info != nil && info.Mode()&0o111 != 0 {
			f.Mode = "0755"
		}
		if out.Files == nil {
			out.Files = map[string]topology.File{}
		}
		out.Files[target] = f
	default:
		bind := source + ":" + target
		if slices.Contains(strings.Split(options, ","), "ro") {
			bind += ":ro"
		}
		out.Binds = append(out.Binds, bind)
	}
}

func (c *clab) configure(out *topology.Node, name, source string) {
	if out.Config == nil {
		out.Config = map[string]*topology.Source{}
	}
	out.Config[name] = &topology.Source{Path: source}
}

// stat looks at a file below the topology's directory; nil where it is elsewhere or does not exist.
func (c *clab) stat(source string) fs.FileInfo {
	name := path.Clean(source)
	if c.opt.Dir == nil || !fs.ValidPath(name) {
		return nil
	}
	info, err := fs.Stat(c.opt.Dir, name)
	if err != nil {
		return nil
	}
	return info
}
