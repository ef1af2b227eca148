// Package save writes a network as it runs as a topology with files beside it, from which it comes up the same.
package save

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// Saved is a network as it runs.
type Saved struct {
	Topology *topology.Topology
	// Changed says, a line each, in what it differs from the network as it was applied.
	Changed []string
	// Beside says what was done by hand and has no place in a topology.
	Beside []string
	// Archives are the root file systems that stand beside the topology, and come from elsewhere.
	Archives []*topology.Source
}

// Compose makes a topology of a slice and of what was changed in its nodes.
func Compose(s *api.Slice, changes []api.NodeChanges) (*Saved, error) {
	saved := &Saved{Beside: beside(s.Overrides)}
	spec := copied(s.Spec)
	saved.takeShapes(spec, s.Overrides.Shapes)
	for _, c := range changes {
		saved.takeNode(spec, c)
	}
	if err := saved.settle(s.Spec, spec); err != nil {
		return nil, fmt.Errorf("describe %s: %w", s.Spec.Name, err)
	}
	for _, f := range saved.Topology.Sources() {
		if f.SHA256 != "" {
			saved.Archives = append(saved.Archives, f)
		}
	}
	return saved, nil
}

// copied is a slice of which nodes, links and their ends can be changed.
func copied(s *slice.Slice) *slice.Slice {
	c := *s
	c.Nodes, c.Links = slices.Clone(s.Nodes), slices.Clone(s.Links)
	for i := range c.Links {
		c.Links[i].Ends = slices.Clone(c.Links[i].Ends)
	}
	return &c
}

// takeShapes makes what was set by hand part of links.
func (saved *Saved) takeShapes(spec *slice.Slice, shapes map[string]slice.Shape) {
	for i := range spec.Links {
		for j := range spec.Links[i].Ends {
			e := &spec.Links[i].Ends[j]
			if shape, changed := shapes[e.String()]; changed {
				e.Shape = shape
				saved.Changed = append(saved.Changed,
					fmt.Sprintf("link %s: what leaves %s", spec.Links[i].Name, e))
			}
		}
	}
}

// takeNode makes what was changed in a node part of it.
func (saved *Saved) takeNode(spec *slice.Slice, c api.NodeChanges) {
	n := spec.Node(c.Node)
	if n == nil {
		return // it came meanwhile
	}
	if c.Routing && n.Routing != nil && len(c.Config) > 0 {
		configure(n, c.Config)
		saved.Changed = append(saved.Changed, fmt.Sprintf("node %s: its routing configuration", n.Name))
	}
	if len(c.Files) == 0 {
		return
	}
	files := map[string]slice.File{}
	for _, f := range slices.Concat(n.Files, c.Files) {
		files[f.Path] = f
	}
	n.Files = nil
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n.Files = append(n.Files, files[name])
	}
	for _, f := range c.Files {
		saved.Changed = append(saved.Changed, fmt.Sprintf("node %s: %s", n.Name, f.Path))
	}
}

// configure gives a router a configuration of its own. What Pergola knows of its protocols stays: its neighbours are
// configured by that.
func configure(n *slice.Node, files map[string][]byte) {
	r := *n.Routing
	r.Config = files
	n.Routing = &r
}

// settle describes the slice, and wants all other routers to be configured as they are: what Pergola configures depends
// on the other nodes, and of one with a configuration of its own little is known. Where that changes a router, it gets
// its present configuration as its own, too.
func (saved *Saved) settle(before, spec *slice.Slice) error {
	was := routing.NewRenderer(before)
	for {
		t, found := topology.Describe(spec)
		if err := found.Err(); err != nil {
			return err
		}
		again, found := topology.Resolve(t, nil)
		if err := found.Err(); err != nil {
			return err
		}
		keepMTUs(again, before)
		is, other := routing.NewRenderer(again), false
		for i := range spec.Nodes {
			n := &spec.Nodes[i]
			if n.Routing == nil || len(n.Routing.Config) > 0 {
				continue
			}
			old, err := was.Render(before.Node(n.Name))
			if err != nil {
				return err
			}
			now, err := is.Render(again.Node(n.Name))
			if err != nil {
				return err
			}
			if !slices.EqualFunc(old.Files, now.Files, equalFile) {
				other = true
				configure(n, configuration(old.Files))
				saved.Changed = append(saved.Changed, fmt.Sprintf(
					"node %s: as it was configured, which followed from other nodes", n.Name))
			}
		}
		if !other {
			saved.Topology = t
			return nil
		}
	}
}

func equalFile(a, b slice.File) bool { return a.Path == b.Path && bytes.Equal(a.Data, b.Data) }

// configuration has the files of a daemon's own directory, by name.
func configuration(files []slice.File) map[string][]byte {
	config := map[string][]byte{}
	for _, f := range files {
		if path.Dir(f.Path) != path.Dir(routing.ScriptPath) {
			config[path.Base(f.Path)] = f.Data
		}
	}
	return config
}

// keepMTUs gives interfaces the MTUs that were fitted to tunnels between machines.
func keepMTUs(s, from *slice.Slice) {
	for i := range s.Nodes {
		old := from.Node(s.Nodes[i].Name)
		for j := range s.Nodes[i].Interfaces {
			if in := old.Interface(s.Nodes[i].Interfaces[j].Name); in != nil {
				s.Nodes[i].Interfaces[j].MTU = in.MTU
			}
		}
	}
}

// beside says what was done by hand and has no place in a topology.
func beside(o slice.Overrides) (lines []string) {
	for _, node := range slices.Sorted(maps.Keys(o.Power)) {
		switch o.Power[node] {
		case slice.PowerOff:
			lines = append(lines, "node "+node+" is stopped: it comes up running")
		case slice.PowerFrozen:
			lines = append(lines, "node "+node+" is paused: it comes up running")
		case slice.PowerOn:
		}
	}
	for _, link := range slices.Sorted(maps.Keys(o.Down)) {
		if o.Down[link] {
			lines = append(lines, "link "+link+" is down: it comes up")
		}
	}
	return lines
}

// Unknown says, a line each, of which nodes it is not known what was changed.
func Unknown(c *api.SliceChanges) (lines []string) {
	for _, n := range c.Nodes {
		if n.Unknown != "" {
			lines = append(lines, "node "+n.Node+": "+n.Unknown)
		}
	}
	for _, h := range c.Unreachable {
		lines = append(lines, "nodes of host "+h.Host+": "+cmp.Or(h.Why, "it does not answer"))
	}
	return lines
}
