package importer

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
	"github.com/pergola-net/pergola/model/wording"
)

// ClabOptions say what surrounds a containerlab file.
type ClabOptions struct {
	// Images says what replaces images; nil: DefaultImages. With an empty table, every image stays as it is.
	Images ImageTable
	// Dir is the file's directory: it shows which binds are directories. nil: all binds are plain files.
	Dir fs.FS
	// Env looks up environment variables, which containerlab replaces in the whole file; nil: none is set.
	Env func(string) (string, bool)
}

// clabMTU is what containerlab gives to links that name no MTU.
const clabMTU = 9500

// clab is one import.
type clab struct {
	*report
	opt     ClabOptions
	root    *yamltree.Node // what is below topology:
	lab     string
	nodes   map[string]*clabNode
	renamed map[string]string // nodes whose names are no host names
	out     *topology.Topology
	ignored map[string]*ignored
	// badKinds are kinds of nodes that are not supported.
	badKinds map[string]*ignored
	uplink   string // the node that represents the host in links
}

// ignored is a key that has no meaning here, or a kind. It is reported once, with the number of its other positions.
type ignored struct {
	at    position
	more  int // other positions
	hint  string
	first string // node
}

// Clab imports a containerlab topology (https://containerlab.dev/manual/topo-def-file) with nodes of the kinds linux,
// bridge and host. Nodes have the interfaces and processes that containerlab gives them: no addresses and no routes are
// chosen, and there is no management network.
func Clab(file string, data []byte, opt ClabOptions) (*topology.Topology, topology.Diagnostics) {
	c := &clab{report: &report{file: file}, opt: opt, nodes: map[string]*clabNode{}, renamed: map[string]string{},
		ignored: map[string]*ignored{}, badKinds: map[string]*ignored{}}
	if opt.Images == nil {
		c.opt.Images = DefaultImages()
	}
	root := readYAML(c.report, expandVariables(data, opt.Env))
	if !c.wrong && c.want(root, yamltree.Map, "a containerlab file") {
		c.file(root)
	}
	c.sum()
	slices.SortStableFunc(c.found, func(a, b topology.Diagnostic) int { return a.Line - b.Line })
	if c.wrong {
		return nil, c.found
	}
	return c.out, c.found
}

func (c *clab) file(root *yamltree.Node) {
	c.lab = c.str(root.Field("name"), "name")
	if c.lab == "" {
		c.lab = baseName(c.report.file)
	}
	no := false
	c.out = &topology.Topology{
		Name:       hostName(c.lab),
		Addressing: &topology.Addressing{IPv4: &no, IPv6: &no},
		Defaults:   &topology.Defaults{Link: &topology.LinkAttributes{MTU: clabMTU}},
		Nodes:      map[string]topology.Node{},
	}
	for _, f := range root.Entries {
		switch f.Key {
		case "name", "topology":
		case "prefix":
			c.ignore(f, "containers are known by the names of network and node")
		case "mgmt":
			c.ignore(f, "there is no management network; pergola exec and shell need none")
		case "settings", "debug":
			c.ignore(f, "")
		default:
			c.fail(f.Position, "known: name, prefix, mgmt, settings, topology",
				"a containerlab file has no %q", f.Key)
		}
	}
	c.root = root.Field("topology")
	if !c.want(c.root, yamltree.Map, "topology") {
		if c.root.Kind == yamltree.Null {
			c.fail(root.Position, "write topology: with nodes: and links:", "the file has no topology")
		}
		return
	}
	for _, f := range c.root.Entries {
		if !contains([]string{"defaults", "kinds", "groups", "nodes", "links"}, f.Key) {
			c.fail(f.Position, "known: defaults, kinds, groups, nodes, links", "topology has no %q", f.Key)
		}
	}
	c.addNodes()
	c.addLinks()
	for name, n := range c.nodes {
		if n.out != nil {
			c.out.Nodes[c.renamed[name]] = *n.out
		}
	}
}

// addNodes reads the nodes; links come after, and may add to them.
func (c *clab) addNodes() {
	nodes := c.root.Field("nodes")
	if !c.want(nodes, yamltree.Map, "nodes") || len(nodes.Entries) == 0 {
		c.fail(nodes.Position, "", "the topology has no nodes")
		return
	}
	if len(nodes.Entries) > slice.MaxNodes {
		c.fail(nodes.Position, "", "%d nodes: one network can have %d", len(nodes.Entries), slice.MaxNodes)
		return
	}
	taken := namer{}
	for _, f := range nodes.Entries {
		taken[f.Key] = true
	}
	for _, f := range nodes.Entries {
		name := hostName(f.Key)
		if strings.Contains(f.Key, "|") {
			c.fail(f.Position, "write a bridge of its own",
				"node %q is a bridge within another node: that is not supported", f.Key)
		} else if name != f.Key {
			name = taken.name("n", f.Key)
			c.warn(f.Position, "", "node %q is called %q here: its name is no host name", f.Key, name)
		}
		c.renamed[f.Key] = name
		c.nodes[f.Key] = c.node(f)
	}
}

// hostName replaces what a host name cannot have.
func hostName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name)
	return strings.Trim(name[:min(len(name), maxName)], "-_")
}

// ignore notes a key that has no meaning here, once for all of its positions.
func (c *clab) ignore(f yamltree.Entry, hint string) {
	if at, ok := c.ignored[f.Key]; ok {
		at.more++
		return
	}
	c.ignored[f.Key] = &ignored{at: f.Position, hint: hint}
}

// sum reports the ignored keys and the unsupported kinds.
func (c *clab) sum() {
	for _, key := range slices.Sorted(maps.Keys(c.ignored)) {
		at, also := c.ignored[key], ""
		if at.more > 0 {
			also = fmt.Sprintf(", here and at %s", wording.Count(at.more, "other place"))
		}
		c.warn(at.at, at.hint, "%s is ignored%s", key, also)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.badKinds)) {
		at, also := c.badKinds[kind], ""
		if at.more > 0 {
			also = fmt.Sprintf(" and %s", wording.Count(at.more, "other node"))
		}
		c.fail(at.at, at.hint, "kind %q (node %q%s) is not supported", kind, at.first, also)
	}
}
