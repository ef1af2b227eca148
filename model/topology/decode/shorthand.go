package decode

import (
	"path"
	"reflect"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// shorthand fills a value from one of its short forms; false where the node is not a short form.
type shorthand func(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool

// shorthands are the short forms that the file allows, by type. Marshal writes them again, Schema describes them.
var shorthands map[reflect.Type]shorthand

func init() {
	shorthands = map[reflect.Type]shorthand{
		reflect.TypeFor[file.Strings]():            oneString,
		reflect.TypeFor[file.Command]():            commandLine,
		reflect.TypeFor[map[string]file.Node]():    nodeList,
		reflect.TypeFor[file.Link]():               linkEnds,
		reflect.TypeFor[file.Source]():             sourcePath,
		reflect.TypeFor[file.File]():               filePath,
		reflect.TypeFor[map[string]*file.Source](): configPaths,
		reflect.TypeFor[file.Policer]():            policedRate,
		reflect.TypeFor[file.Route]():              routeLine,
		reflect.TypeFor[[]file.Route]():            oneRoute,
		reflect.TypeFor[file.Filter]():             filterLine,
		reflect.TypeFor[[]file.Filter]():           oneFilter,
		reflect.TypeFor[file.Port]():               portText,
		reflect.TypeFor[[]file.Port]():             onePort,
		reflect.TypeFor[file.Outside]():            onOrOff,
		reflect.TypeFor[slice.Position]():          positionPair,
	}
}

// oneString: `groups: core` is `groups: [core]`.
func oneString(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.Set(reflect.ValueOf(file.Strings{text}))
	}
	return ok
}

// Shell runs a line of a cmd.
const Shell = "/bin/sh"

// commandLine: `cmd: sleep 1000` is run by the shell.
func commandLine(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.Set(reflect.ValueOf(file.Command{Shell, "-c", text}))
	}
	return ok
}

// nodeList: `nodes: [a, b]` are nodes of which nothing more is said.
func nodeList(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if n.Kind != yamltree.List {
		return false
	}
	nodes := make(map[string]file.Node, len(n.Items))
	for i, element := range n.Items {
		name, ok := element.Scalar()
		if !ok {
			d.fail(at.Item(i), element.Position, "write nodes: {a: {...}, b: {...}}",
				"a list of nodes holds names alone")
			continue
		}
		if _, twice := nodes[name]; twice {
			d.fail(at.Item(i), element.Position, "", "node %q is written twice", name)
		}
		nodes[name] = file.Node{}
	}
	v.Set(reflect.ValueOf(nodes))
	return true
}

// linkEnds: `- [a, b]` is `- ends: [a, b]`.
func linkEnds(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if n.Kind != yamltree.List {
		return false
	}
	d.value(n, at.At("ends"), v.FieldByName("Ends"))
	return true
}

// sourcePath: a file is named by its path.
func sourcePath(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.FieldByName("Path").SetString(text)
	}
	return ok
}

// filePath: `/etc/motd: motd.txt` is `/etc/motd: {source: motd.txt}`.
func filePath(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.FieldByName("Source").Set(reflect.ValueOf(&file.Source{Path: text}))
	}
	return ok
}

// configPaths: `config: frr.conf` and `config: [frr.conf, daemons]` name files as they are called on disk.
func configPaths(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if n.Kind == yamltree.Map {
		return false
	}
	var paths file.Strings
	before := len(d.Found)
	d.value(n, at, reflect.ValueOf(&paths).Elem())
	files := make(map[string]*file.Source, len(paths))
	for i, p := range paths {
		name := path.Base(p)
		if _, twice := files[name]; twice {
			d.fail(at.Item(i), n.Position, "give names: {frr.conf: path}",
				"two configuration files are called %q", name)
		}
		files[name] = &file.Source{Path: p}
	}
	if len(d.Found) == before {
		v.Set(reflect.ValueOf(files))
	}
	return true
}

// policedRate: `police: 10Mbit` is `police: {rate: 10Mbit}`.
func policedRate(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.FieldByName("Rate").SetString(text)
	}
	return ok
}

// routeLine: `10.0.0.0/8 via 10.1.1.1 dev eth1`, as `ip route` has it.
func routeLine(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if !ok {
		return false
	}
	words := strings.Fields(text)
	var route file.Route
	if len(words) > 0 && words[0] == "blackhole" {
		route.Blackhole, words = true, words[1:]
	}
	if len(words) > 0 {
		route.To, words = words[0], words[1:]
	}
	for ; len(words) >= 2; words = words[2:] {
		switch words[0] {
		case "via":
			route.Via = words[1]
		case "dev":
			route.Interface = words[1]
		default:
			d.fail(at, n.Position, "write 10.0.0.0/8 via 10.1.1.1 dev eth1",
				"unknown word %q in a route", words[0])
		}
	}
	if len(words) == 1 || route.To == "" {
		d.fail(at, n.Position, "write 10.0.0.0/8 via 10.1.1.1 dev eth1", "route %q is not complete", text)
	}
	v.Set(reflect.ValueOf(route))
	return true
}

// oneRoute: `routes: default via 10.1.1.1` is a list of one.
func oneRoute(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if _, ok := n.Scalar(); !ok {
		return false
	}
	routes := make([]file.Route, 1)
	d.value(n, at.Item(0), reflect.ValueOf(&routes[0]).Elem())
	v.Set(reflect.ValueOf(routes))
	return true
}

// filterLine: `any -> punt` is a filter, and a text without an arrow names a file of filters.
func filterLine(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	switch {
	case !ok:
	case strings.Contains(text, file.Arrow):
		v.FieldByName("Filter").SetString(text)
	default:
		v.FieldByName("Source").Set(reflect.ValueOf(&file.Source{Path: text}))
	}
	return ok
}

// oneFilter: `filters: filters.txt` is a list of one.
func oneFilter(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if _, ok := n.Scalar(); !ok {
		return false
	}
	filters := make([]file.Filter, 1)
	d.value(n, at.Item(0), reflect.ValueOf(&filters[0]).Elem())
	v.Set(reflect.ValueOf(filters))
	return true
}

// portText: `tcp/8080` is a port that leads to the node.
func portText(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.FieldByName("Port").SetString(text)
	}
	return ok
}

// onePort: `ports: tcp/8080` is a list of one.
func onePort(_ *decoder, n *yamltree.Node, _ *diagnostic.Path, v reflect.Value) bool {
	text, ok := n.Scalar()
	if ok {
		v.Set(reflect.ValueOf([]file.Port{{Port: text}}))
	}
	return ok
}

// onOrOff: `outside: true` is `outside: {on: true}`.
func onOrOff(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	_, ok := n.Scalar()
	if ok {
		d.value(n, at, v.FieldByName("On"))
	}
	return ok
}

// positionPair: `position: [39.7, -105.0]` is latitude and longitude.
func positionPair(d *decoder, n *yamltree.Node, at *diagnostic.Path, v reflect.Value) bool {
	if n.Kind != yamltree.List {
		return false
	}
	var pair []float64
	before := len(d.Found)
	d.value(n, at, reflect.ValueOf(&pair).Elem())
	if len(d.Found) == before && len(pair) != 2 {
		d.fail(at, n.Position, "write [latitude, longitude]", "position has %s numbers",
			strconv.Itoa(len(pair)))
	} else if len(pair) == 2 {
		v.Set(reflect.ValueOf(slice.Position{Latitude: pair[0], Longitude: pair[1]}))
	}
	return true
}
