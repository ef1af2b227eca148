package resolve

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// joinedTypes are pointers to what is merged field by field. What other pointers lead to is replaced as a whole.
var joinedTypes = []reflect.Type{reflect.TypeFor[*file.ISIS](), reflect.TypeFor[*file.Reserve](),
	reflect.TypeFor[*file.Outside]()}

// merge overrides base by what over says: maps key by key, structs field by field, the rest as a whole.
func merge(base, over reflect.Value) {
	switch {
	case over.IsZero():
	case base.Kind() == reflect.Struct:
		for i := range base.NumField() {
			merge(base.Field(i), over.Field(i))
		}
	case base.Kind() == reflect.Map && !base.IsNil():
		joined := reflect.MakeMapWithSize(base.Type(), base.Len()+over.Len())
		for _, m := range []reflect.Value{base, over} {
			for it := m.MapRange(); it.Next(); {
				joined.SetMapIndex(it.Key(), it.Value())
			}
		}
		base.Set(joined)
	case base.Kind() == reflect.Pointer && !base.IsNil() && slices.Contains(joinedTypes, base.Type()):
		joined := reflect.New(base.Type().Elem())
		joined.Elem().Set(base.Elem())
		merge(joined.Elem(), over.Elem())
		base.Set(joined)
	default:
		base.Set(over)
	}
}

// Keys that only some kinds of node can have. In a node of another kind they are an error; from a group or from the
// defaults they are ignored.
var (
	routingKeys = []string{"daemon", "routing", "as", "reflector", "networks", "area", "hello", "dead",
		"fast_hellos", "isis", "fastpath", "config"}
	sliverKeys = []string{"gateway", "routes", "image", "rootfs", "cmd", "args", "user", "stdin", "env", "files",
		"binds", "volumes", "devices", "cap_add", "sysctls", "cpu", "cpu_period", "memory", "pids", "exec",
		"wait_for", "start_delay", "restart"}
	programKeys = []string{"program", "filters", "slowpath", "reserve"}
	outsideKeys = []string{"outside", "ports"}
	nodeKeys    = []string{"loopbacks", "router_id"}
	moveKeys    = []string{"host_labels", "reschedule"}
)

// foreignKeys are the keys that nodes of a kind cannot have.
func foreignKeys(kind slice.Kind) []string {
	switch kind {
	case slice.Router:
		return slices.Concat([]string{"gateway"}, programKeys, outsideKeys)
	case slice.Host:
		return slices.Concat([]string{"router_id"}, routingKeys, programKeys)
	case slice.Program:
		return append([]string{"router_id", "gateway"}, routingKeys...)
	case slice.Switch: // it is on every host that has a node at it
		return slices.Concat(routingKeys, sliverKeys, programKeys, outsideKeys, nodeKeys, moveKeys,
			[]string{"host"})
	case slice.Uplink:
		return slices.Concat(routingKeys, sliverKeys, programKeys, outsideKeys, nodeKeys, moveKeys)
	}
	return nil
}

// makeNodes works defaults and groups into the nodes and decides their kinds.
func (r *resolver) makeNodes() {
	groups := r.membership()
	r.byName = make(map[string]*node, len(r.t.Nodes))
	folded := make(map[string]string, len(r.t.Nodes))
	for _, name := range slices.Sorted(maps.Keys(r.t.Nodes)) {
		n := &node{name: name, at: diagnostic.InNode(name), own: r.t.Nodes[name], byName: map[string]*port{}}
		r.checkName(n.at, "node", name)
		if other, twice := folded[strings.ToLower(name)]; twice {
			r.Add(n.at, "host names do not tell them apart", "nodes %q and %q differ in case alone",
				other, name)
		}
		folded[strings.ToLower(name)] = name
		if d := r.t.Defaults; d != nil && d.Node != nil {
			n.all = *d.Node
		}
		all := reflect.ValueOf(&n.all).Elem()
		for _, group := range groups[name] {
			merge(all, reflect.ValueOf(r.t.Groups[group].Attributes))
		}
		merge(all, reflect.ValueOf(n.own.Attributes))
		n.kind = kindOf(&n.all)
		r.dropForeignKeys(n)
		r.nodes = append(r.nodes, n)
		r.byName[name] = n
	}
	if r.prev != nil {
		for i := range r.prev.Nodes {
			if n := r.byName[r.prev.Nodes[i].Name]; n != nil {
				n.prev = &r.prev.Nodes[i]
			}
		}
	}
}

// kindOf is a node's kind: a program where the file names one, a router where it says anything about routing.
func kindOf(a *file.Attributes) slice.Kind {
	switch {
	case a.Kind != "":
		return a.Kind
	case a.Program != nil:
		return slice.Program
	case a.Daemon != "" || len(a.Routing) > 0 || a.AS != 0 || len(a.Config) > 0:
		return slice.Router
	}
	return slice.Host
}

// dropForeignKeys removes inherited keys that nodes of this kind cannot have, and reports those that the node itself
// has.
func (r *resolver) dropForeignKeys(n *node) {
	own, all := reflect.ValueOf(&n.own).Elem(), reflect.ValueOf(&n.all).Elem()
	ownFields, allFields := file.FieldsOf(own.Type()), file.FieldsOf(all.Type())
	for _, key := range foreignKeys(n.kind) {
		if v := own.FieldByIndex(ownFields.ByName[key].Index); !v.IsZero() {
			hint := ""
			switch {
			case n.kind == slice.Host && slices.Contains(routingKeys, key):
				hint = "write kind: router, or leave kind out"
			case slices.Contains(programKeys, key):
				hint = "only a node of kind: program has it"
			case n.kind == slice.Router && slices.Contains(outsideKeys, key):
				hint = "put a host beside it"
			}
			article := "a"
			if n.kind == slice.Uplink {
				article = "an"
			}
			r.Add(n.at.At(key), hint, "%s %s has no %s", article, n.kind, key)
		}
		if f, ok := allFields.ByName[key]; ok {
			all.FieldByIndex(f.Index).SetZero()
		}
	}
}

// membership lists the groups of each node: first those that name it, sorted, then those that it names, in its own
// order. Later groups override earlier ones.
func (r *resolver) membership() map[string][]string {
	groups := map[string][]string{}
	join := func(node, group string) {
		if !slices.Contains(groups[node], group) {
			groups[node] = append(groups[node], group)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(r.t.Groups)) {
		at := diagnostic.Root.At("groups").At(group)
		r.checkName(at, "group", group)
		for i, member := range r.t.Groups[group].Members {
			if _, ok := r.t.Nodes[member]; !ok {
				r.unknownNode(at.At("members").Item(i), member)
				continue
			}
			join(member, group)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.t.Nodes)) {
		for i, group := range r.t.Nodes[name].Groups {
			if _, ok := r.t.Groups[group]; !ok {
				r.Add(diagnostic.InNode(name).At("groups").Item(i),
					diagnostic.SuggestOr(group, slices.Sorted(maps.Keys(r.t.Groups))),
					"no group is called %q", group)
				continue
			}
			join(name, group)
		}
	}
	return groups
}
