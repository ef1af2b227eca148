package agent

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/model/slice"
)

// The kinds of resource on a host, lowest first. Each line says what it is made of and by what name it is known.
const (
	kindSubstrate reconcile.Kind = iota // network namespace and data path of all slices; ""
	kindArea                            // a slice's directory, cgroup and hosts file; ""
	kindSliver                          // a container, created; the node
	kindSwitch                          // a bridge; its device
	kindPort                            // a veth pair with its addresses, or what stands for one on another host; the substrate's device
	kindNet                             // loopback addresses, routes and sysctls within a sliver; the node
	kindConfig                          // configuration of a routing daemon; the node
	kindWire                            // a port joined to a port or a switch, or a switch to a switch; the devices
	kindQueue                           // rate, delay and loss at a port; the substrate's device
	kindProcess                         // the sliver's first process runs, or is frozen; the node
	kindBoot                            // the node's exec lines have run; the node
)

var kindNames = [...]string{
	"substrate", "area", "sliver", "switch", "port", "net", "config", "wire", "queue", "process", "boot",
}

// wish is one slice as a host is to have it.
type wish struct {
	spec      *slice.Slice
	overrides slice.Overrides
	left      map[string]bool   // nodes whose first process ended and whose policy leaves them so
	booted    map[string]bool   // nodes whose exec lines have run
	awaited   map[string]string // by node: the host that may still run it, though it was moved here
	corrupt   error             // what is wanted cannot be read: spec has a name and an id alone, and what runs stays as it is
}

// barred says why a node that is to run at a place may not, yet; empty where it may.
func (w *wish) barred(at place, n *slice.Node) string {
	refused := at.refuses(w.spec.Name, n)
	switch {
	case !at.owns(n):
		return ""
	case refused != "":
		return refused
	case at.fenced && n.Placement.Reschedule == slice.RescheduleAlways:
		return "this host has lost the cluster: the node may be started elsewhere"
	case w.awaited[n.Name] != "":
		return fmt.Sprintf("host %s, which had it before, has not let go of it yet", w.awaited[n.Name])
	}
	return ""
}

// wants lists what a host must hold for the given slices, its own parts of them. It is pure: equal wishes give equal lists. A slice that
// cannot be worked out is left out, and its error given in broken, by its id.
func wants(at place, wishes []wish) (w *wanted, broken map[uint16]error) {
	w = &wanted{
		details: make(map[reconcile.Key]any), links: make(map[linkName][]reconcile.Key),
		cut: make(map[linkName]error), layouts: make(map[uint16]*layout),
	}
	broken = make(map[uint16]error)
	for _, one := range wishes {
		before := len(w.resources)
		err := one.corrupt
		if err == nil {
			err = w.addSlice(one, at)
		}
		if err != nil {
			broken[one.spec.ID] = err
			for _, r := range w.resources[before:] {
				delete(w.details, r.Key)
			}
			w.resources = w.resources[:before]
		}
	}
	if len(w.resources) > 0 || len(broken) > 0 {
		w.add(reconcile.Resource{Key: substrateKey}, nil)
	}
	return w, broken
}

// wanted is the list, with what is needed to make each resource: a value of the type that its kind calls for.
type wanted struct {
	resources []reconcile.Resource
	details   map[reconcile.Key]any
	links     map[linkName][]reconcile.Key // what must be there for a link to be up
	cut       map[linkName]error           // why a link to another host cannot be made
	layouts   map[uint16]*layout           // by slice; of those that make sense
}

type linkName struct {
	slice uint16
	name  string
}

// The details of kinds that have no type of their own elsewhere.
type (
	area struct {
		name  string
		hosts []byte
	}
	bridge struct{ name, owner string }
	port   struct {
		*slice.Interface
		name   string // of the substrate's device
		node   string // whose process holds its network namespace
		uplink bool   // the machine's own namespace holds it
	}
	join  struct{ a, b string }         // two ports, a before b
	plug  struct{ port, bridge string } // a port in a bridge
	cable struct {                      // two bridges; a and b are the devices in them
		a, b, bridgeA, bridgeB string
		owner                  string
		mtu                    int
	}
	queue struct {
		port             string
		fromNode, toNode slice.Shape
		joined           bool // to a port, whose fromNode is this one's toNode
		again            bool // what comes out of the queue, or the switch, enters the data path again: a router there is walked through
	}
	process struct{ frozen bool }
	boot    struct{ lines []string }
)

// A wire is a join, a plug or a cable; the name is the one of its resource.
type wireName interface{ name() string }

func (j join) name() string  { return j.a + "=" + j.b }
func (p plug) name() string  { return p.port + ">" + p.bridge }
func (c cable) name() string { return c.a + "#" + c.b }

// digest covers what a port cannot change while it lives; addresses are set by kindNet.
func (p port) digest() string { return digest(p.Name, p.MAC, p.MTU, p.uplink) }

func (q queue) digest() string { return fmt.Sprint(q.fromNode, q.toNode, q.again) }

func newCable(c cable) cable {
	if c.b < c.a {
		c.a, c.b, c.bridgeA, c.bridgeB = c.b, c.a, c.bridgeB, c.bridgeA
	}
	return c
}

func (c cable) other(end string) string {
	if end == c.a {
		return c.b
	}
	return c.a
}

func newJoin(a, b string) join { return join{min(a, b), max(a, b)} }

var substrateKey = reconcile.Key{Kind: kindSubstrate}

func (w *wanted) add(r reconcile.Resource, detail any) {
	w.resources = append(w.resources, r)
	w.details[r.Key] = detail
}

func (w *wanted) has(k reconcile.Key) bool {
	_, has := w.details[k]
	return has
}

func (w *wanted) addSlice(one wish, at place) error {
	s := one.spec
	b := builder{
		wanted: w, wish: one, layout: newLayout(s, at), area: reconcile.Key{Kind: kindArea, Slice: s.ID},
		routing: routing.NewRenderer(s), wires: make(map[string][]reconcile.Key), rooms: make(map[string]string),
	}
	w.layouts[s.ID] = b.layout
	if !b.holds() {
		return nil
	}
	hosts := hostsFile(s)
	w.add(reconcile.Resource{Key: b.area, Digest: digest(s.Name, hosts), Amend: true, Needs: []reconcile.Key{substrateKey}}, area{s.Name, hosts})
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == slice.Switch && b.isOn(n.Name) {
			b.addSwitch(n)
		}
	}
	for i := range s.Links {
		b.addLink(&s.Links[i])
	}
	for i := range s.Nodes {
		if err := b.addNode(&s.Nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// builder adds the resources of one slice.
type builder struct {
	*wanted
	wish
	*layout
	area    reconcile.Key
	routing *routing.Renderer
	wires   map[string][]reconcile.Key // by node: what its links are made of
	rooms   map[string]string          // by device: the bridge that it is in, where its switch has several here
}

func (b *builder) isOn(node string) bool {
	return b.overrides.Power[node] != slice.PowerOff && !b.left[node] && b.barred(b.place, b.nodes[node]) == ""
}

func (b *builder) key(kind reconcile.Kind, name string) reconcile.Key {
	return reconcile.Key{Kind: kind, Slice: b.spec.ID, Name: name}
}

// addNode adds a node's ports, and its sliver if it has one.
func (b *builder) addNode(n *slice.Node) error {
	if n.Kind == slice.Switch || !b.owns(n) {
		return nil
	}
	rendered, err := b.routing.Render(n)
	if err != nil {
		return err
	}
	k := b.key(kindSliver, n.Name)
	if n.HasSliver() && b.overrides.Power[n.Name] != slice.PowerOff && b.barred(b.place, n) == "" {
		spec := b.sliverSpec(n, rendered.Command)
		digest := spec.Digest
		if b.left[n.Name] {
			digest = exitedDigest(digest)
		}
		b.add(reconcile.Resource{Key: k, Digest: digest, Needs: []reconcile.Key{b.area}}, spec)
	}
	if !b.isOn(n.Name) {
		return nil
	}
	ports := b.addPorts(n, k)
	if !n.HasSliver() {
		return nil
	}
	net := networkOf(n)
	b.add(reconcile.Resource{
		Key: b.key(kindNet, n.Name), Digest: digest(net), Amend: true,
		Needs: append([]reconcile.Key{k}, ports...), Falls: reconcile.FallsWithAny,
	}, net)
	b.addProcess(n, k, ports, rendered)
	return nil
}

func (b *builder) addPorts(n *slice.Node, sliverKey reconcile.Key) (keys []reconcile.Key) {
	for i := range n.Interfaces {
		p := port{name: slice.PortName(b.spec.ID, n.Interfaces[i].Port), node: n.Name, uplink: n.Kind == slice.Uplink, Interface: &n.Interfaces[i]}
		base := sliverKey
		if p.uplink {
			base = b.area
		}
		r := reconcile.Resource{
			Key: b.key(kindPort, p.name), Digest: p.digest(),
			Needs: []reconcile.Key{substrateKey, base}, Falls: reconcile.FallsWithAny,
		}
		b.add(r, p)
		keys = append(keys, r.Key)
	}
	return keys
}

// addProcess adds what runs in a sliver. It starts after the wires, so that the first hello of a routing daemon
// finds them; but it starts, too, when one of them cannot be made.
func (b *builder) addProcess(n *slice.Node, sliverKey reconcile.Key, ports []reconcile.Key, rendered routing.Rendered) {
	needs := []reconcile.Key{sliverKey}
	if n.Routing != nil {
		k := b.key(kindConfig, n.Name)
		b.add(reconcile.Resource{Key: k, Digest: digest(rendered.Files), Needs: needs, Amend: true, Falls: reconcile.FallsWithAny}, rendered)
		needs = append(needs, k)
	}
	frozen := b.overrides.Power[n.Name] == slice.PowerFrozen
	after := slices.Concat([]reconcile.Key{b.key(kindNet, n.Name)}, ports, b.wires[n.Name])
	p := b.key(kindProcess, n.Name)
	b.add(reconcile.Resource{
		Key: p, Digest: processDigest(frozen), Amend: true, Needs: needs, After: after, Falls: reconcile.FallsWithAny,
	}, process{frozen})
	if len(n.Exec) > 0 && (!frozen || b.booted[n.Name]) {
		b.add(reconcile.Resource{
			Key: b.key(kindBoot, n.Name), Digest: booted, Needs: []reconcile.Key{sliverKey, p}, Falls: reconcile.FallsWithAny,
		}, boot{n.Exec})
	}
}

// booted is all there is to say of exec lines that have run: they run once, and not again when they change.
const booted = "booted"

func processDigest(frozen bool) string {
	if frozen {
		return "frozen"
	}
	return "running"
}
