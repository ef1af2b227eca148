package importer

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/topology/resolve"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// clabKeyOf gives the key of a containerlab file from which a key of a node comes, where it has another name.
var clabKeyOf = map[string]string{"args": "cmd", "rootfs": "image", "files": "binds", "config": "binds",
	"restart": "restart-policy"}

var linkPath = regexp.MustCompile(`^links\[(\d+)\]`)

// check reports what no network can have, at its place in the file and by the file's own keys.
func (c *clab) check() {
	_, found := resolve.Slice(c.out, nil, false)
	nodes := c.byName()
	for _, d := range found {
		if d.Warning {
			continue
		}
		at, what := c.place(nodes, d.Path)
		if what != "" {
			what += ": "
		}
		c.fail(at, d.Hint, "%s%s", what, d.Message)
	}
}

// place gives the position of a part of the topology in the file, and what it is there.
func (c *clab) place(nodes map[string]*clabNode, path string) (at position, what string) {
	if m := linkPath.FindStringSubmatch(path); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(c.linkAt) {
			return c.linkAt[i], "a link"
		}
		return position{}, path
	}
	parts := strings.SplitN(path, ".", 4)
	if len(parts) < 2 || parts[0] != "nodes" {
		return position{}, path
	}
	n := nodes[parts[1]]
	if n == nil {
		return position{}, path
	}
	what = "node " + n.name
	if len(parts) < 3 {
		return n.at.Position, what
	}
	key, _, _ := strings.Cut(parts[2], "[")
	if other := clabKeyOf[key]; other != "" {
		key = other
	}
	if v := n.find(key); v.Kind != yamltree.Null {
		return v.Position, key + " of " + what
	}
	return n.at.Position, what
}
