package importer

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// ClabOptions say what surrounds a containerlab file.
type ClabOptions struct {
	// Images says what replaces images; nil: DefaultImages. With an empty table, every image stays as it is.
	Images ImageTable
	// Dir is the file's directory: it shows which binds are directories. nil: all binds are plain files.
	Dir fs.FS
	// Kinds says what replaces nodes of kinds that are not ClabKinds.
	Kinds KindTable
	// Routing are the protocols of routers that Kinds makes; none: OSPF.
	Routing []slice.Protocol
	// Vars are values for a template; none: those of the files beside the topology that containerlab finds, in Dir.
	Vars []VarsFile
	// Local gives the name of an image in a store of this machine that has it, else the name itself; nil: there is
	// no such store.
	Local func(image string) string
	// Root says that the caller may publish ports of nodes.
	Root bool
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
	renamed map[string]string    // nodes whose names are no host names
	waitsAt map[waiting]position // where nodes wait for others
	out     *topology.Topology
	left    map[string]*left  // what is left out, by key and reason
	unknown map[position]bool // keys of nodes that were reported
	// badKinds are kinds of nodes that are not supported.
	badKinds   map[string]*badKind
	uplink     string // the node that represents the host in links
	management management
	routers    int  // that replace others
	filled     bool // the file is a template
	// innerPorts are the interfaces that belong to bridges within nodes, by bridge.
	innerPorts map[string][]string
	linkAt     []position // of links, those of out
	tunnels    []clabTunnel
	locals     map[string]string // images, as ClabOptions.Local gives them
	used       *address.Set      // loopbacks
}

// Clab imports a containerlab topology (https://containerlab.dev/manual/topo-def-file) with nodes of the kinds linux,
// bridge and host, and of those that the options replace. Nodes have the interfaces and processes that containerlab
// gives them: no addresses and no routes are chosen but for replaced nodes and their networks, and there is no
// management network. The last diagnostics, those that are LeftOut, sum up what the network does not have of the file.
func Clab(file string, data []byte, opt ClabOptions) (*topology.Topology, topology.Diagnostics) {
	c := &clab{report: &report{file: file}, opt: opt, nodes: map[string]*clabNode{}, renamed: map[string]string{},
		waitsAt: map[waiting]position{}, left: map[string]*left{}, unknown: map[position]bool{},
		badKinds: map[string]*badKind{}, used: address.NewSet(),
		innerPorts: map[string][]string{}, locals: map[string]string{}}
	if opt.Images == nil {
		c.opt.Images = DefaultImages()
	}
	root := c.read(data)
	if !c.wrong && c.want(root, yamltree.Map, "a containerlab file") {
		c.file(root)
	}
	c.sumKinds()
	slices.SortStableFunc(c.found, func(a, b topology.Diagnostic) int { return a.Line - b.Line })
	c.filledIn()
	c.found = append(c.found, c.sumLeft()...)
	if c.wrong {
		return nil, c.found
	}
	return c.out, c.found
}

// ClabName gives the name of the network that a containerlab file describes, whatever else is wrong with it.
func ClabName(file string, data []byte, opt ClabOptions) (string, topology.Diagnostics) {
	c := &clab{report: &report{file: file}, opt: opt}
	root := c.read(data)
	if !c.wrong && c.want(root, yamltree.Map, "a containerlab file") {
		c.readName(root)
	}
	c.filledIn()
	return hostName(c.lab), c.found
}

// read fills in a template and variables, and reads what comes out.
func (c *clab) read(data []byte) *yamltree.Node {
	text := c.fillIn(data)
	if c.wrong {
		return &yamltree.Node{}
	}
	return readYAML(c.report, expandVariables(text, c.opt.Env))
}

// filledIn says, with the first thing found in the text that a template gave, that the line is of that text.
func (c *clab) filledIn() {
	i := slices.IndexFunc(c.found, func(d topology.Diagnostic) bool {
		return d.File == c.report.file && d.Line > 0
	})
	if !c.filled || i < 0 {
		return
	}
	const note = "lines are those of the template filled in"
	if c.found[i].Hint == "" {
		c.found[i].Hint = note
	} else {
		c.found[i].Hint += "; " + note
	}
}

func (c *clab) readName(root *yamltree.Node) {
	if c.lab = c.str(root.Field("name"), "name"); c.lab == "" {
		c.lab = baseName(c.report.file)
	}
}

func (c *clab) file(root *yamltree.Node) {
	c.readName(root)
	no := false
	c.out = &topology.Topology{
		Name:       hostName(c.lab),
		Addressing: &topology.Addressing{IPv4: &no, IPv6: &no},
		Defaults:   &topology.Defaults{Link: &topology.LinkAttributes{MTU: clabMTU}},
		Nodes:      map[string]topology.Node{},
	}
	known := []string{"name", "topology", "prefix", "mgmt", "settings", "debug"}
	for _, f := range root.Entries {
		switch f.Key {
		case "name", "topology", "mgmt":
		case "prefix", "settings", "debug":
			c.leave("", f, lack{changesNothing, ""})
		default:
			c.fail(f.Position, diagnostic.SuggestOr(f.Key, known), "a containerlab file has no %q", f.Key)
		}
	}
	c.root = root.Field("topology")
	if !c.want(c.root, yamltree.Map, "topology") {
		if c.root.Kind == yamltree.Null {
			c.fail(root.Position, "write topology: with nodes: and links:", "the file has no topology")
		}
		return
	}
	known = []string{"defaults", "kinds", "groups", "nodes", "links"}
	for _, f := range c.root.Entries {
		if !contains(known, f.Key) {
			c.fail(f.Position, diagnostic.SuggestOr(f.Key, known), "topology has no %q", f.Key)
		}
	}
	c.addNodes()
	c.unusedKinds()
	c.readManagement(root)
	c.addLinks()
	c.nameFaces()
	c.addressLinks()
	for name, n := range c.nodes {
		if n.out != nil {
			c.out.Nodes[c.renamed[name]] = *n.out
		}
	}
	c.settleWaits()
	if !c.wrong {
		c.check()
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
		if name != f.Key && !strings.Contains(f.Key, "|") {
			name = taken.name("n", f.Key)
			c.warn(f.Position, "", "node %q is called %q here: its name is no host name", f.Key, name)
		}
		c.renamed[f.Key] = name
	}
	for _, f := range nodes.Entries {
		c.nodes[f.Key] = c.node(f)
	}
	c.joinGuests()
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
