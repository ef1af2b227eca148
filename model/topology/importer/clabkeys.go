package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// around reads the keys of a node of kind linux that are about what surrounds its processes.
func (c *clab) around(n *clabNode, out *topology.Node) {
	c.envFiles(n, out)
	c.dns(n, out)
	c.ports(n, out)
	c.health(n)
	c.access(n, out)
}

// access reads the capabilities and the devices that a node asks for: those of all levels, as containerlab merges them.
func (c *clab) access(n *clabNode, out *topology.Node) {
	for _, level := range slices.Backward(n.levels) {
		for _, item := range c.scalars(level.Field("cap-add"), "cap-add") {
			c.capability(n, out, item)
		}
		for _, item := range c.scalars(level.Field("devices"), "devices") {
			text := c.magic(n, strings.TrimSpace(item.Text))
			d, err := slice.ParseDevice(text)
			switch {
			case err != nil:
				c.fail(item.Position, "write SOURCE:TARGET:rwm, below /dev", "node %q: %v", n.name, err)
			case !c.opt.Root && !d.InEveryNode():
				c.leaveAt(n.name, "devices", item.Position,
					lack{changesNodes, "only root may give nodes devices: sudo pergola up"})
			case !slices.Contains(out.Devices, d.String()):
				out.Devices = append(out.Devices, d.String())
			}
		}
	}
}

// capability adds one that nodes may have. What is made of others is the network without them: vendors' images, and
// files for them, ask for more than they need.
func (c *clab) capability(n *clabNode, out *topology.Node, item *yamltree.Node) {
	name, err := slice.ParseCapability(item.Text)
	var refused *slice.CapabilityError
	switch {
	case errors.As(err, &refused) && refused.Why == "":
		c.fail(item.Position, diagnostic.Suggest(refused.Name, refused.All), "node %q: %v", n.name, err)
	case refused != nil:
		c.leaveAt(n.name, "cap-add: "+refused.Name, item.Position, lack{changesNodes, refused.Why})
	case !slice.HasCapability(name) && !slices.Contains(out.CapAdd, name):
		out.CapAdd = append(out.CapAdd, name)
	}
}

// envFiles adds the variables of env-files, which env overrides.
func (c *clab) envFiles(n *clabNode, out *topology.Node) {
	all := map[string]string{}
	for _, level := range slices.Backward(n.levels) {
		for _, item := range c.scalars(level.Field("env-files"), "env-files") {
			name := c.magic(n, strings.TrimSpace(item.Text))
			info := c.stat(name)
			if info == nil || info.IsDir() || info.Size() > maxConfig {
				c.leaveAt(n.name, "env-files", item.Position,
					lack{changesNodes,
						"only files beside the topology are read: " + name + " is not there"})
				continue
			}
			data, err := fs.ReadFile(c.opt.Dir, path.Clean(name))
			if err != nil {
				c.fail(item.Position, "", "read %s: %v", name, err)
			}
			for line := range strings.Lines(string(data)) {
				key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
				if ok && key != "" && !strings.HasPrefix(key, "#") {
					all[key] = strings.Trim(value, `"'`)
				}
			}
		}
	}
	for key, value := range all {
		if _, written := out.Env[key]; written {
			continue
		}
		if out.Env == nil {
			out.Env = map[string]string{}
		}
		out.Env[key] = value
	}
}

const resolvConf = "/etc/resolv.conf"

// dns writes the node's resolv.conf, unless the file binds one.
func (c *clab) dns(n *clabNode, out *topology.Node) {
	at := n.find("dns")
	if !c.want(at, yamltree.Map, "dns") {
		return
	}
	var text strings.Builder
	for _, s := range c.strs(at.Field("servers"), "servers") {
		fmt.Fprintf(&text, "nameserver %s\n", s)
	}
	for _, key := range []string{"search", "options"} {
		if words := c.strs(at.Field(key), key); len(words) > 0 {
			fmt.Fprintf(&text, "%s %s\n", key, strings.Join(words, " "))
		}
	}
	if _, bound := out.Files[resolvConf]; bound || text.Len() == 0 {
		return
	}
	if out.Files == nil {
		out.Files = map[string]topology.File{}
	}
	out.Files[resolvConf] = topology.File{Content: text.String()}
}

// ports publishes ports of a host. Here they have the same number on both sides, and only root may ask for them.
func (c *clab) ports(n *clabNode, out *topology.Node) {
	for _, level := range n.levels {
		for _, item := range c.scalars(level.Field("ports"), "ports") {
			at, text := item.Position, strings.TrimSpace(item.Text)
			rest, protocol, found := strings.Cut(text, "/")
			if !found {
				protocol = "tcp"
			}
			outer, inner, isPair := strings.Cut(rest, ":")
			port := protocol + "/" + outer
			_, err := slice.ParseHostPort(port)
			switch {
			case err != nil || isPair && outer != inner:
				c.leaveAt(n.name, "ports", at, lack{changesNodes,
					"a port here has one number, in the node and outside, and no address"})
			case out.Kind != slice.Host:
				c.leaveAt(n.name, "ports", at, lack{changesNodes, "routers publish none"})
			case !c.opt.Root:
				c.leaveAt(n.name, "ports", at,
					lack{changesNodes, "only root may publish them: sudo pergola up"})
			case len(out.Ports) == slice.MaxHostPorts:
				c.leaveAt(n.name, "ports", at, lack{changesNodes,
					fmt.Sprintf("a node has at most %d", slice.MaxHostPorts)})
			case !slices.ContainsFunc(out.Ports, func(p file.Port) bool { return p.Port == port }):
				out.Ports = append(out.Ports, file.Port{Port: port})
			}
		}
	}
}

// Defaults of a health check of Docker, in seconds, and times that it may fail.
const (
	healthTimeout  = 30
	healthInterval = 30
	healthRetries  = 3
)

// health makes a check of a node's healthcheck.
func (c *clab) health(n *clabNode) {
	at := n.find("healthcheck")
	if !c.want(at, yamltree.Map, "healthcheck") {
		return
	}
	words := c.strs(at.Field("test"), "test")
	if len(words) < 2 {
		return
	}
	command := strings.Join(words[1:], " ")
	if words[0] == "CMD" {
		command = shellquote.Join(words[1:]...)
	}
	seconds := func(key string, otherwise int) int {
		if v, err := strconv.Atoi(c.str(at.Field(key), key)); err == nil && v >= 0 && v <= 3600 {
			return v
		}
		return otherwise
	}
	span := seconds("start-period", 0) + seconds("timeout", healthTimeout) +
		seconds("interval", healthInterval)*max(seconds("retries", healthRetries)-1, 0)
	c.out.Checks = append(c.out.Checks, topology.Check{Name: c.renamed[n.name] + " is healthy",
		Node: c.renamed[n.name], Exec: c.magic(n, command),
		Timeout: topology.Duration(fmt.Sprintf("%ds", max(span, 1)))})
}

// Stages of a node's start, those before its exec lines and those after them.
var (
	stagesBefore = []string{"create", "create-links"}
	stagesAfter  = []string{"configure", "healthy"}
)

// stages gives the commands of stages that run in the node.
func (c *clab) stages(n *clabNode, all *yamltree.Node, names []string) (lines []string) {
	if !c.want(all, yamltree.Map, "stages") {
		return nil
	}
	c.knownStages(n, all)
	for _, name := range names {
		stage := all.Field(name)
		list := stage.Field("exec")
		if !c.want(list, yamltree.List, "exec of stage "+name) {
			continue
		}
		for _, exit := range []bool{false, true} {
			for _, item := range list.Items {
				if (c.str(item.Field("phase"), "phase") == "on-exit") != exit {
					continue
				}
				if line := c.stageCommand(n, item); line != "" {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// knownStages says which stages, and which keys of them, are not carried out.
func (c *clab) knownStages(n *clabNode, all *yamltree.Node) {
	for _, stage := range all.Entries {
		if stage.Key == "exit" {
			c.leaveAt(n.name, "stage exit", stage.Position,
				lack{changesNodes, "nothing runs after a node has ended"})
			continue
		}
		if c.unknown[stage.Position] { // by another node, or before
			continue
		}
		c.unknown[stage.Position] = true
		if !contains(stagesBefore, stage.Key) && !contains(stagesAfter, stage.Key) {
			c.fail(stage.Position, diagnostic.Suggest(stage.Key, slices.Concat(stagesBefore, stagesAfter)),
				"stages of node %q have no %q", n.name, stage.Key)
			continue
		}
		for _, f := range stage.Value.Entries {
			if known := []string{"exec", "wait-for"}; !contains(known, f.Key) {
				c.fail(f.Position, diagnostic.Suggest(f.Key, known), "stage %s of node %q has no %q",
					stage.Key, n.name, f.Key)
			}
		}
	}
}

// stageCommand is a command of a stage that runs in the node; empty for one that runs on the host.
func (c *clab) stageCommand(n *clabNode, item *yamltree.Node) string {
	if !c.want(item, yamltree.Map, "a command of a stage") {
		return ""
	}
	if c.str(item.Field("target"), "target") == "host" {
		c.leaveAt(n.name, "commands of stages on the host", item.Position,
			lack{changesTraffic, "Pergola runs nothing on the host"})
		return ""
	}
	return c.str(item.Field("command"), "command")
}
