package main

import (
	"fmt"
	"strings"
)

// topo is a generated topology: the file for Pergola, and, where Mininet has the same graph, its name there.
type topo struct {
	name    string
	yaml    string
	mininet string
	first   string // two nodes that must reach each other
	last    string
}

// gridOf is n by n routers with links to their neighbours, running OSPF.
func gridOf(n int, daemon string) topo {
	var b strings.Builder
	name := "grid" + daemon
	fmt.Fprintf(&b, "name: %s\ndefaults:\n  node: {kind: router, daemon: %s, routing: ospf}\nnodes:\n",
		name, daemon)
	id := func(x, y int) string { return fmt.Sprintf("r%d-%d", x, y) }
	for x := range n {
		for y := range n {
			fmt.Fprintf(&b, "  %s:\n", id(x, y))
		}
	}
	b.WriteString("links:\n")
	for x := range n {
		for y := range n {
			if x+1 < n {
				fmt.Fprintf(&b, "  - [%s, %s]\n", id(x, y), id(x+1, y))
			}
			if y+1 < n {
				fmt.Fprintf(&b, "  - [%s, %s]\n", id(x, y), id(x, y+1))
			}
		}
	}
	return topo{name: name, yaml: b.String(), first: id(0, 0), last: id(n-1, n-1)}
}

// star is n hosts on one switch.
func star(n int) topo {
	var b strings.Builder
	b.WriteString("name: star\nnodes:\n  s1: {kind: switch}\n")
	for i := range n {
		fmt.Fprintf(&b, "  h%d:\n", i+1)
	}
	b.WriteString("links:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - [h%d, s1]\n", i+1)
	}
	return topo{name: "star", yaml: b.String(), mininet: "single", first: "h1", last: fmt.Sprintf("h%d", n)}
}

// line is n switches in a row with a host on each.
func line(n int) topo {
	var b strings.Builder
	b.WriteString("name: line\nnodes:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: {kind: switch}\n  h%[1]d:\n", i+1)
	}
	b.WriteString("links:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - [h%d, s%[1]d]\n", i+1)
		if i > 0 {
			fmt.Fprintf(&b, "  - [s%d, s%d]\n", i, i+1)
		}
	}
	return topo{name: "line", yaml: b.String(), mininet: "linear", first: "h1", last: fmt.Sprintf("h%d", n)}
}
