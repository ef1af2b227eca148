package controller

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/model/wording"
)

// Diff says what changes from one version of a slice to another. It is pure. prev is nil for a new slice, next for
// one that is deleted.
func Diff(prev, next *slice.Slice) api.Plan {
	p := api.Plan{Op: api.Update, Nodes: []api.Change{}, Links: []api.Change{}}
	empty := &slice.Slice{}
	switch {
	case prev == nil && next == nil:
		return p
	case prev == nil:
		p.Op, prev = api.Create, empty
		p.Slice = next.Name
	case next == nil:
		p.Op, next = api.Remove, empty
		p.Slice = prev.Name
	default:
		p.Slice = next.Name
		p.Fields = fields(outline(prev), outline(next))
		p.Warnings = kept(prev, next)
	}
	p.Nodes = changes(withoutPast(prev), withoutPast(next), func(n *slice.Node) string { return n.Name }, restarts)
	p.Links = changes(prev.Links, next.Links, func(l *slice.Link) string { return l.Name },
		func(_, _ *slice.Link) bool { return false })
	return p
}

// outline is a slice without what Diff shows elsewhere, and without what admission sets.
func outline(s *slice.Slice) any {
	return struct {
		LSPs        []slice.LSP    `json:"lsps,omitempty"`
		Checks      []slice.Check  `json:"checks,omitempty"`
		Attribution string         `json:"attribution,omitempty"`
		Placement   slice.Strategy `json:"placement,omitempty"`
	}{s.LSPs, s.Checks, s.Attribution, s.Strategy}
}

// withoutPast copies the nodes without fields about their past, which only hosts need.
func withoutPast(s *slice.Slice) []slice.Node {
	nodes := slices.Clone(s.Nodes)
	for i := range nodes {
		nodes[i].Left, nodes[i].Placement.Since = nil, 0
	}
	return nodes
}

func changes[T any](prev, next []T, name func(*T) string, restarts func(was, is *T) bool) []api.Change {
	old := make(map[string]*T, len(prev))
	for i := range prev {
		old[name(&prev[i])] = &prev[i]
	}
	all := []api.Change{}
	for i := range next {
		is := &next[i]
		was := old[name(is)]
		delete(old, name(is))
		if was == nil {
			all = append(all, api.Change{Name: name(is), Op: api.Create})
		} else if fs := fields(was, is); len(fs) > 0 {
			all = append(all, api.Change{Name: name(is), Op: api.Update, Fields: fs,
				Restarts: restarts(was, is)})
		}
	}
	for gone := range old {
		all = append(all, api.Change{Name: gone, Op: api.Remove})
	}
	slices.SortFunc(all, func(a, b api.Change) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// restarts reports whether the node's sliver is made again: on another host, or because something changed that is fixed
// when a container is created. Interfaces, addresses and routing configuration change while it runs.
func restarts(was, is *slice.Node) bool {
	if !was.HasSliver() || !is.HasSliver() {
		return false // it is made or removed: the change of kind says so
	}
	return was.Host != "" && is.Host != "" && was.Host != is.Host || len(fields(fixed(was), fixed(is))) > 0
}

// kept warns of kernel parameters that are no longer asked for in nodes that go on running: their
// defaults are not known.
func kept(prev, next *slice.Slice) (warnings []string) {
	for i := range next.Nodes {
		is := &next.Nodes[i]
		was := prev.Node(is.Name)
		if was == nil || !was.HasSliver() || !is.HasSliver() || restarts(was, is) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(was.Sysctls)) {
			if _, still := is.Sysctls[key]; !still {
				warnings = append(warnings,
					fmt.Sprintf("%s keeps %s = %s until it is started anew: "+
						"`pergola restart %[1]s`", is.Name, key, was.Sysctls[key]))
			}
		}
	}
	return warnings
}

// fixed copies what is fixed when the node's container is created. It is compared as JSON: what comes from the store
// has nil where a new topology has an empty list.
func fixed(n *slice.Node) *slice.Node {
	b := &slice.Node{
		Kind: n.Kind, Rootfs: n.Rootfs, Command: n.Command, Args: n.Args, User: n.User,
		Stdin: n.Stdin, Env: n.Env, Files: n.Files, Binds: n.Binds, Volumes: n.Volumes,
		Devices: n.Devices, CapAdd: n.CapAdd,
		CPU: n.CPU, CPUPeriod: n.CPUPeriod, Memory: n.Memory, PIDs: n.PIDs,
	}
	for key, value := range n.Sysctls {
		if !slice.NetSysctl(key) {
			if b.Sysctls == nil {
				b.Sysctls = make(map[string]string)
			}
			b.Sysctls[key] = value
		}
	}
	if n.Routing != nil {
		b.Routing = &slice.Routing{Daemon: n.Routing.Daemon}
	}
	return b
}

// fields lists the values that differ between two things, by their names in JSON.
func fields(was, is any) []api.Field {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	old, now := flat(was), flat(is)
	var all []api.Field
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if v, ok := now[name]; !ok || v != old[name] {
			all = append(all, api.Field{Name: name, Old: shown(name, old[name]), New: shown(name, v)})
		}
	}
	for name, v := range now {
		if _, ok := old[name]; !ok {
			all = append(all, api.Field{Name: name, New: shown(name, v)})
		}
	}
	slices.SortFunc(all, func(a, b api.Field) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// flat gives the leaves of a value by path.
func flat(v any) map[string]string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("controller: %T cannot be shown as JSON: %v", v, err)) // a programming error
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		panic(fmt.Sprintf("controller: JSON of %T: %v", v, err))
	}
	leaves := map[string]string{}
	flatten(tree, "", leaves)
	return leaves
}

func flatten(v any, path string, leaves map[string]string) {
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			flatten(child, join(name), leaves)
		}
	case []any:
		if words, ok := scalars(v); ok {
			leaves[path] = strings.Join(words, ", ")
			return
		}
		for i, child := range v {
			flatten(child, join(label(child, i)), leaves)
		}
	case json.Number:
		leaves[path] = number(path, v)
	default:
		leaves[path] = fmt.Sprint(v)
	}
}

// label names an element of a list by what it is, so that a new first element does not change all others.
func label(v any, index int) string {
	m, _ := v.(map[string]any)
	if node, ok := m["node"].(string); ok {
		if i, ok := m["interface"].(string); ok {
			return node + ":" + i
		}
	}
	for _, key := range []string{"name", "path", "target", "to", "address"} {
		if s, ok := m[key].(string); ok && s != "" {
			return s
		}
	}
	return fmt.Sprint(index)
}

func scalars(list []any) (words []string, ok bool) {
	for _, v := range list {
		switch v.(type) {
		case map[string]any, []any:
			return nil, false
		}
		words = append(words, fmt.Sprint(v))
	}
	return words, true
}

// number gives durations and rates a unit.
func number(path string, n json.Number) string {
	i, err := n.Int64()
	if err != nil {
		return n.String()
	}
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "delay", "jitter", "timeout":
		return time.Duration(i).String()
	case "rate", "reserve", "limit", "outside_rate", "outside_reserve":
		return unit.Rate(i).String()
	}
	return n.String()
}

// shown is a leaf for a person. What is too long for a line is cut; of what is in a file, only a short word is shown.
func shown(name, text string) string {
	const width = 60
	if strings.HasPrefix(name, "routing.config.") ||
		strings.HasPrefix(name, "files.") && strings.HasSuffix(name, ".data") {
		data, err := base64.StdEncoding.DecodeString(text) // as JSON has it
		if err != nil || len(data) == 0 {
			return text
		}
		if text = strconv.Quote(string(data)); len(text) > width || strings.Contains(text, `\`) {
			return wording.Count(len(data), "byte")
		}
	}
	if len(text) <= width {
		return text
	}
	return fmt.Sprintf("%.24s… (%d bytes)", text, len(text))
}

// locate notes on which hosts the nodes of the plan are to be.
func locate(p *api.Plan, s *slice.Slice, moves map[string]string) {
	hosts := map[string]string{}
	for i := range s.Nodes {
		hosts[s.Nodes[i].Name] = s.Nodes[i].Host
	}
	for i := range p.Nodes {
		c := &p.Nodes[i]
		c.Host, c.From = hosts[c.Name], moves[c.Name]
	}
}
