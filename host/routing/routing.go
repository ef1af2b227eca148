// Package routing writes the configuration of unmodified routing daemons: FRR and BIRD. It does no I/O: a slice
// and a node go in; files, the node's first command and the commands that apply changed files come out.
//
// frr.go and bird.go hold what each suite needs to run, and the files beside them one protocol each. frr.sh runs inside
// the node. segment.go answers what both suites must know of a link, so that the two ends of it always agree.
package routing

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/pergola-net/pergola/model/slice"
)

// Rendered is everything that makes a router out of a sliver.
type Rendered struct {
	// Files are put into the node before it starts, and again whenever they change.
	Files []slice.File
	// Command is the node's first command. It stays in the foreground, ends when the routing suite can no longer be
	// kept running, and logs to its standard output.
	Command []string
	// Reload is run in the running node, in this order, after changed Files were written: it applies the difference
	// and restarts no router, unless its daemons refuse. The first command that fails ends it; what it printed says
	// why. What a command that succeeds prints to standard error is shown to users.
	Reload [][]string
	// Note is run in the node after commands of its topology may have configured the daemons: what is other later
	// was changed by hand. Empty: nothing has to know.
	Note []string
}

// Renderer writes the configurations of one slice, which must not change meanwhile.
type Renderer struct {
	slice  *slice.Slice
	nodes  map[string]*slice.Node
	links  map[string]*slice.Link
	lspMTU int // see lspMTU
}

// NewRenderer looks a slice over once for all of its nodes.
func NewRenderer(s *slice.Slice) *Renderer {
	r := &Renderer{
		slice: s, lspMTU: lspMTU(s),
		nodes: make(map[string]*slice.Node, len(s.Nodes)), links: make(map[string]*slice.Link, len(s.Links)),
	}
	for i := range s.Nodes {
		r.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range s.Links {
		r.links[s.Links[i].Name] = &s.Links[i]
	}
	return r
}

// Render gives what the node's Routing asks for. The node must be one of the slice's.
func (in *Renderer) Render(n *slice.Node) (Rendered, error) {
	if n.Routing == nil {
		return Rendered{}, nil
	}
	if err := quotable(n); err != nil {
		return Rendered{}, fmt.Errorf("configure %s: %w", n.Name, err)
	}
	var r Rendered
	var err error
	switch n.Routing.Daemon {
	case slice.FRR:
		r, err = renderFRR(in.view(n))
	case slice.BIRD:
		r, err = renderBIRD(in.view(n))
	default:
		err = fmt.Errorf("unknown daemon %q: known are frr and bird", n.Routing.Daemon)
	}
	if err != nil {
		return Rendered{}, fmt.Errorf("configure %s: %w", n.Name, err)
	}
	return r, nil
}

// word is what both suites take verbatim within a line. Names come from users: a line break in one would be a
// command of its own.
var word = regexp.MustCompile(`^[[:alnum:]_.:@/+-]+$`)

// quotable checks every name that is written into a configuration.
func quotable(n *slice.Node) error {
	if len(n.Routing.Config) == 0 && !n.Routing.RouterID.Is4() {
		return errors.New("no router identifier: it must be an IPv4 address")
	}
	names := []string{n.Name}
	for _, i := range n.Interfaces {
		names = append(names, i.Name)
		if i.Area != "" {
			names = append(names, i.Area)
		}
	}
	if b := n.Routing.BGP; b != nil {
		for _, nb := range b.Neighbors {
			names = append(names, nb.Node)
		}
	}
	if i := n.Routing.ISIS; i != nil {
		names = append(names, i.NET)
	}
	for _, name := range names {
		if !word.MatchString(name) {
			return fmt.Errorf("write %q into a configuration: "+
				"only letters, digits and _.:@/+- can stand there", name)
		}
	}
	return nil
}
