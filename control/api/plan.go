package api

import (
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// Op is an operation of a plan.
type Op string

// The operations of a plan.
const (
	Create Op = "create"
	Update Op = "update"
	Remove Op = "remove"
)

// Plan is the difference between two versions of a slice, sorted by name. An empty plan means that they are equal.
type Plan struct {
	Slice string   `json:"slice"`
	Op    Op       `json:"op"` // of the slice itself; Update where it exists already
	Nodes []Change `json:"nodes"`
	Links []Change `json:"links"`
	// Fields are changes of the slice beside its nodes and links: checks, attribution.
	Fields []Field `json:"fields,omitempty"`
	// Warnings name what the change leaves as it was.
	Warnings []string `json:"-"`
}

// Change is what is done to one node or link.
type Change struct {
	Name   string  `json:"name"`
	Op     Op      `json:"op"`
	Fields []Field `json:"fields,omitempty"` // what differs, for Update
	// Host is where a node is to run, and From where it ran, if it moves. Both are empty where the server is in no
	// cluster.
	Host string `json:"host,omitempty"`
	From string `json:"from,omitempty"`
	// Restarts is true where the node's processes end and start again.
	Restarts bool `json:"restarts,omitempty"`
}

// Field is one value that differs, shortened for people.
type Field struct {
	Name string `json:"name"` // such as memory, interfaces.eth1.mtu, ends.a:eth1.rate
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool {
	return p.Op == Update && len(p.Nodes)+len(p.Links)+len(p.Fields) == 0
}

// Summary describes the plan in one line: 3 nodes to create, 1 link to change.
func (p Plan) Summary() string {
	var parts []string
	for _, kind := range []struct {
		noun    string
		changes []Change
	}{{"node", p.Nodes}, {"link", p.Links}} {
		count := map[Op]int{}
		for _, c := range kind.changes {
			count[c.Op]++
		}
		for _, op := range []Op{Create, Update, Remove} {
			if n := count[op]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s to %s", wording.Count(n, kind.noun), op))
			}
		}
	}
	if n := p.moved(); n > 0 {
		parts = append(parts, wording.Count(n, "node")+" to move to another host")
	}
	if len(parts) == 0 {
		return "no node or link changes"
	}
	return strings.Join(parts, ", ")
}

// moved counts the nodes that move to another host.
func (p Plan) moved() (n int) {
	for _, c := range p.Nodes {
		if c.From != "" {
			n++
		}
	}
	return n
}
