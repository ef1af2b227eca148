// Package target finds what a user means: which slice, which nodes of it, which link, by the words on the command
// line.
package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Lister gives the slices of a server, sorted by name.
type Lister interface {
	Slices(ctx context.Context) ([]api.Summary, error)
}

// ErrNotRunning is of a slice that was named and does not exist, while others do.
var ErrNotRunning = errors.New("not running")

// Slice chooses a slice: the one that is named; without a name the only one there is, or among several the one
// that describes, the topology of the current directory, names.
func Slice(ctx context.Context, l Lister, name, described string) (string, error) {
	all, err := l.Slices(ctx)
	if err != nil {
		return "", err
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	switch {
	case name != "" && has(names, name):
		return name, nil
	case name != "" && len(names) == 0:
		return "", ui.Advise(fmt.Errorf("network %q is not running: none is", name),
			"start one with `pergola up FILE`")
	case name != "":
		return "", ui.Advise(fmt.Errorf("network %q is %w", name, ErrNotRunning), "%s",
			ui.DidYouMean(name, "network", names))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", ui.Advise(fmt.Errorf("no network is running"), "start one with `pergola up FILE`")
	case described != "" && has(names, described):
		return described, nil
	}
	return "", ui.Usage("running are "+strings.Join(names, ", "),
		"%s are running: say which one is meant", wording.Count(len(names), "network"))
}

func has(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// Split takes NETWORK/REST apart; slice is empty where there is no slash.
func Split(word string) (slice, rest string) {
	if before, after, ok := strings.Cut(word, "/"); ok {
		return before, after
	}
	return "", word
}

// Nodes gives the slivers of s whose names match a pattern: a name, or a shell pattern such as r* or leaf[1-3].
func Nodes(s *slice.Slice, pattern string) ([]string, error) {
	if n := s.Node(pattern); n != nil {
		if !n.HasSliver() {
			return nil, fmt.Errorf("%s is a %s: nothing can run in it", n.Name, n.Kind)
		}
		return []string{n.Name}, nil
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return nil, NoNode(s, pattern)
	}
	var found []string
	for _, n := range s.Nodes {
		ok, err := path.Match(pattern, n.Name)
		if err != nil {
			return nil, ui.Usage("", "pattern %q: %w", pattern, err)
		}
		if ok && n.HasSliver() {
			found = append(found, n.Name)
		}
	}
	if len(found) == 0 {
		return nil, ui.Advise(fmt.Errorf("no node of %s matches %q", s.Name, pattern), "%s",
			ui.DidYouMean("", "node", NodeNames(s)))
	}
	return found, nil
}

// NoNode is the error for a node that s does not have.
func NoNode(s *slice.Slice, name string) error {
	return ui.Advise(fmt.Errorf("network %s has no node %q", s.Name, name), "%s",
		ui.DidYouMean(name, "node", NodeNames(s)))
}

// Elsewhere looks for a node in the other slices of a server, for a user who misspelt it or meant another slice: "one/a
// or two/a"; empty where none is like it.
func Elsewhere(ctx context.Context, l Lister, get func(ctx context.Context, name string) (*api.Slice, error), not,
	node string) string {
	_, meant := spelled(ctx, l, get, not)
	return strings.Join(meant[wording.Nearest(node, slices.Sorted(maps.Keys(meant)))], " or ")
}

// NoName is the error for a word that names neither a slice nor a node of any.
func NoName(ctx context.Context, l Lister, get func(ctx context.Context, name string) (*api.Slice, error),
	word string) error {
	names, meant := spelled(ctx, l, get, "")
	for _, name := range names {
		meant[name] = append([]string{name}, meant[name]...)
	}
	err := fmt.Errorf("%q is neither a network that runs nor a node of one", word)
	if near := wording.Nearest(word, slices.Sorted(maps.Keys(meant))); near != "" {
		return ui.Advise(err, "did you mean %s?", strings.Join(meant[near], " or "))
	}
	return ui.Advise(err, "%s", ui.DidYouMean("", "network", names))
}

// spelled gives the slices of a server but one, and what each name of a node means: NETWORK/NODE in every slice that
// has it.
func spelled(ctx context.Context, l Lister, get func(ctx context.Context, name string) (*api.Slice, error),
	not string) (names []string, meant map[string][]string) {
	meant = map[string][]string{}
	all, err := l.Slices(ctx)
	if err != nil {
		return nil, meant
	}
	for _, sum := range all {
		if sum.Name == not {
			continue
		}
		names = append(names, sum.Name)
		s, err := get(ctx, sum.Name)
		if err != nil {
			continue // it went in the meantime
		}
		for _, node := range NodeNames(s.Spec) {
			meant[node] = append(meant[node], sum.Name+"/"+node)
		}
	}
	return names, meant
}

// NodeNames lists the nodes of s.
func NodeNames(s *slice.Slice) []string {
	names := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		names[i] = n.Name
	}
	return names
}

// Link finds a link by its name or by one of its ends as NODE:IFACE; end is that end, or empty.
func Link(s *slice.Slice, word string) (link *slice.Link, end string, err error) {
	if l := s.Link(word); l != nil {
		return l, "", nil
	}
	var known []string
	for i := range s.Links {
		known = append(known, s.Links[i].Name)
		for _, e := range s.Links[i].Ends {
			if e.String() == word {
				return &s.Links[i], word, nil
			}
			known = append(known, e.String())
		}
	}
	if n := s.Node(word); n != nil && len(n.Interfaces) > 0 {
		return nil, "", whichOf(n, "link")
	}
	return nil, "", ui.Advise(fmt.Errorf("network %s has no link %q", s.Name, word), "%s",
		ui.DidYouMean(word, "link or interface", known))
}

// Interface finds NODE:IFACE.
func Interface(s *slice.Slice, word string) (node, iface string, err error) {
	node, iface, ok := strings.Cut(word, ":")
	n := s.Node(node)
	if n == nil {
		return "", "", NoNode(s, node)
	}
	var names []string
	for _, i := range n.Interfaces {
		if i.Name == iface {
			return node, iface, nil
		}
		names = append(names, node+":"+i.Name)
	}
	if !ok && len(names) > 0 {
		return "", "", whichOf(n, "interface")
	}
	return "", "", ui.Advise(fmt.Errorf("node %s has no interface %q", node, iface), "%s",
		ui.DidYouMean(word, "interface", names))
}

// whichOf asks back where only a node was named.
func whichOf(n *slice.Node, what string) error {
	names := make([]string, len(n.Interfaces))
	for i := range n.Interfaces {
		names[i] = n.Name + ":" + n.Interfaces[i].Name
	}
	return ui.Usage("there is "+strings.Join(names, ", "), "which %s of %s?", what, n.Name)
}

// LinkNames lists the links of s.
func LinkNames(s *slice.Slice) []string {
	names := make([]string, len(s.Links))
	for i, l := range s.Links {
		names[i] = l.Name
	}
	return names
}

// LSPNames lists the label-switched paths of s.
func LSPNames(s *slice.Slice) []string {
	names := make([]string, len(s.LSPs))
	for i := range s.LSPs {
		names[i] = s.LSPs[i].Name
	}
	return names
}

// InterfaceNames lists the interfaces of s as NODE:IFACE.
func InterfaceNames(s *slice.Slice) (names []string) {
	for _, n := range s.Nodes {
		for _, i := range n.Interfaces {
			names = append(names, n.Name+":"+i.Name)
		}
	}
	return names
}
