// Package plan computes what one host must hold of the slices that the store wants: a list of resources, each with its
// digest, what it needs, and the value that it is made from. It does no I/O: the slices, the overrides and the place of
// the host among the others go in.
//
//	slices, overrides ──┐
//	                    ├─ New ──> Wanted: resources for package reconcile, details for what makes them
//	Place ──────────────┘
//
// values.go has the kinds of resource and their details; share.go says which parts of a slice are on the host;
// links.go and tunnels.go join them.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/model/slice"
)

// Input is one slice as a host is to have it, and what was observed of it that decides what is wanted.
type Input struct {
	Spec      *slice.Slice
	Overrides slice.Overrides
	Ended     map[string]bool   // nodes whose first process ended and whose restart policy leaves them so
	Booted    map[string]bool   // nodes whose exec lines were begun
	Awaited   map[string]string // by node: the host that may still run it, though it was moved here
	Short     map[string]string // by node: what the host has not enough of (Admit)
	Lost      Lost              // by node: ports that others have (Admit)
	LinkState slice.LinkState   // of links at routers of other hosts, as these told it last
	Corrupt   error             // the slice cannot be read: Spec has its name and id alone, and what runs stays
	// Last is the slice as it was read last, if it is Corrupt; nil: not since this process began.
	Last *Input
}

// Readable gives the inputs with those that cannot be read as they were read last, as far as that is known: for what is
// worked out anew in each pass, and is to stay as it is.
func Readable(inputs []Input) []Input {
	all := slices.Clone(inputs)
	for i := range all {
		if last := all[i].Last; all[i].Corrupt != nil && last != nil {
			all[i] = *last
		}
	}
	return all
}

// Barred says why a node that is to run at a place may not, yet; empty where it may.
func (w *Input) Barred(at Place, n *slice.Node) string {
	refused := at.Refuses(w.Spec.Name, n)
	switch {
	case !at.Owns(n):
		return ""
	case refused != "":
		return refused
	case at.Fenced && n.Placement.Reschedule == slice.RescheduleAlways:
		return "this host has lost the cluster: the node may be started elsewhere"
	case w.Short[n.Name] != "":
		return w.Short[n.Name]
	case w.Awaited[n.Name] != "":
		return fmt.Sprintf("host %s, which had it before, has not let go of it yet", w.Awaited[n.Name])
	}
	return ""
}

// WhyLost says which ports a node asked for while it ran and does not have, and who has them; empty where it has all.
func (w *Input) WhyLost(node string) string {
	var all []string
	for _, p := range slices.SortedFunc(maps.Keys(w.Lost[node]), slice.HostPort.Compare) {
		all = append(all, fmt.Sprintf("port %s, which it reserved while it ran, is reserved for %s "+
			"(`pergola reserve rm %s/%s %[1]s` ends the conflict)", p, w.Lost[node][p], w.Spec.Name, node))
	}
	return strings.Join(all, "; ")
}

// New lists what a host must hold for the given slices: its own parts of them. Equal inputs give equal lists. A slice
// that cannot be resolved is left out, and its error is in broken, by the slice's id.
func New(at Place, inputs []Input) (w *Wanted, broken map[uint16]error) {
	w = &Wanted{
		details: make(map[reconcile.Key]any), links: make(map[linkName][]reconcile.Key),
		cut: make(map[linkName]error), of: make(map[reconcile.Key]*slice.Link),
		shares: make(map[uint16]*Share), outside: shareOutside(at, inputs),
	}
	broken = make(map[uint16]error)
	for _, one := range inputs {
		before := len(w.Resources)
		err := one.Corrupt
		if err == nil {
			err = w.addSlice(one, at)
		}
		if err != nil {
			broken[one.Spec.ID] = err
			for _, r := range w.Resources[before:] {
				delete(w.details, r.Key)
			}
			w.Resources = w.Resources[:before]
		}
	}
	if len(w.Resources) > 0 || len(broken) > 0 {
		w.add(reconcile.Resource{Key: HostNetKey}, HostNet{})
	}
	w.addCard(at, inputs)
	return w, broken
}

// Wanted is what a host must hold.
type Wanted struct {
	Resources []reconcile.Resource

	details map[reconcile.Key]any
	links   map[linkName][]reconcile.Key  // what must be there for a link to be up
	cut     map[linkName]error            // why a link to another host cannot be made
	of      map[reconcile.Key]*slice.Link // by wire that is part of one link alone
	shares  map[uint16]*Share             // by slice's id; of those that could be resolved
	outside outsideShare
}

type linkName struct {
	slice uint16
	name  string
}

// Detail is what a resource is made from: a value of the type that belongs to its kind. It is nil where the resource is
// not wanted.
func (w *Wanted) Detail(k reconcile.Key) any { return w.details[k] }

// LinkOf gives the link that a wire, or its queue, is part of; nil where that is unknown, or there are several.
func (w *Wanted) LinkOf(k reconcile.Key) *slice.Link {
	k.Kind = KindWire
	return w.of[k]
}

// InterfaceOf names the interface, as node:interface, that a device is on a host: here, or of another host's node.
// Empty: it is none of the slice.
func (w *Wanted) InterfaceOf(id uint16, device string) string {
	y := w.shares[id]
	if y == nil {
		return ""
	}
	device = strings.TrimSuffix(device, lanEnd)
	for name, n := range y.nodes {
		for i := range n.Interfaces {
			if slice.PortName(id, n.Interfaces[i].Port) == device {
				return name + ":" + n.Interfaces[i].Name
			}
		}
	}
	return ""
}

// Share says which parts of a slice are on the host; nil where the slice could not be resolved.
func (w *Wanted) Share(id uint16) *Share { return w.shares[id] }

// Link gives the resources that must be there for a link to be up: none where it is not to be up, or cannot be.
func (w *Wanted) Link(id uint16, name string) []reconcile.Key {
	if w.cut[linkName{id, name}] != nil {
		return nil
	}
	return w.links[linkName{id, name}]
}

func (w *Wanted) add(r reconcile.Resource, detail any) {
	w.Resources = append(w.Resources, r)
	w.details[r.Key] = detail
}

// Has reports whether a resource is wanted.
func (w *Wanted) Has(k reconcile.Key) bool {
	_, has := w.details[k]
	return has
}

func (w *Wanted) addSlice(one Input, at Place) error {
	s := one.Spec
	b := builder{
		Wanted: w, Input: one, Share: NewShare(s, at), area: reconcile.Key{Kind: KindArea, Slice: s.ID},
		routing: routing.NewRenderer(s), wires: make(map[string][]reconcile.Key),
		wired: make(map[string]bool), bridges: make(map[string]string),
	}
	w.shares[s.ID] = b.Share
	if !b.Holds() {
		return nil
	}
	b.labelled, b.reserved = b.leavesLabelled(), b.Spec.Reserves()
	area := Area{Name: s.Name, Hosts: hostsFile(s)}
	w.add(reconcile.Resource{Key: b.area, Digest: area.Digest(), Amend: true, Needs: []reconcile.Key{HostNetKey}},
		area)
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
	*Wanted
	Input
	*Share
	area     reconcile.Key
	routing  *routing.Renderer
	wires    map[string][]reconcile.Key // by node: what its links are made of
	wired    map[string]bool            // by device of a node's port: whether it is joined to something
	labelled bool                       // frames may leave a walk here with labels
	reserved bool                       // LSPs reserve bandwidth
	bridges  map[string]string          // by device: the bridge that it is in, where its switch has several here
}

func (b *builder) isOn(node string) bool {
	return b.Overrides.Power[node] != slice.PowerOff && !b.Ended[node] && b.Barred(b.Place, b.nodes[node]) == ""
}

func (b *builder) key(kind reconcile.Kind, name string) reconcile.Key {
	return reconcile.Key{Kind: kind, Slice: b.Spec.ID, Name: name}
}

// addNode adds a node's ports, and its sliver if it has one.
func (b *builder) addNode(n *slice.Node) error {
	if n.Kind == slice.Switch || !b.Owns(n) {
		return nil
	}
	rendered, err := b.routing.Render(n)
	if err != nil {
		return err
	}
	k := b.key(KindSliver, n.Name)
	if n.HasSliver() && b.Overrides.Power[n.Name] != slice.PowerOff && b.Barred(b.Place, n) == "" {
		spec := b.sliverSpec(n, rendered.Command)
		digest := spec.Digest
		if b.Ended[n.Name] {
			digest = ExitedDigest(digest)
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
		Key: b.key(KindNodeNet, n.Name), Digest: Digest(net), Amend: true,
		Needs: append([]reconcile.Key{k}, ports...), Falls: reconcile.FallsWithAny,
	}, net)
	if n.Program != nil {
		b.addProgram(n, k, ports)
	}
	if n.ReachesOutside() {
		o := Outside{
			NAT: n.Outside, Ports: b.Grants(b.Spec.Name, b.portsOf(n)), Bind: n.BindPorts,
			Rate: b.outside.rateOf(n),
		}
		b.add(reconcile.Resource{
			Key: b.key(KindOutside, n.Name), Digest: o.Digest(), Amend: true,
			Needs: []reconcile.Key{HostNetKey, k},
		}, o)
	}
	b.addProcess(n, k, ports, rendered)
	return nil
}

// portsOf are those that lead to a node: all but those that others have.
func (b *builder) portsOf(n *slice.Node) []slice.HostPort {
	return slices.DeleteFunc(n.HostPorts(), func(p slice.HostPort) bool { return b.Lost[n.Name][p] != "" })
}

func (b *builder) addPorts(n *slice.Node, sliverKey reconcile.Key) (keys []reconcile.Key) {
	for i := range n.Interfaces {
		p := Port{
			Device: slice.PortName(b.Spec.ID, n.Interfaces[i].Port), Node: n.Name,
			Uplink: n.Kind == slice.Uplink, Interface: &n.Interfaces[i],
		}
		base := sliverKey
		if p.Uplink {
			base = b.area
		}
		r := reconcile.Resource{
			Key: b.key(KindPort, p.Device), Digest: p.Digest(),
			Needs: []reconcile.Key{HostNetKey, base}, Falls: reconcile.FallsWithAny,
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
		k := b.key(KindConfig, n.Name)
		b.add(reconcile.Resource{
			Key: k, Digest: Digest(rendered.Files), Needs: needs, Amend: true,
			Falls: reconcile.FallsWithAny,
		}, rendered)
		needs = append(needs, k)
	}
	frozen := b.Overrides.Power[n.Name] == slice.PowerFrozen
	after := slices.Concat([]reconcile.Key{b.key(KindNodeNet, n.Name), b.key(KindProgram, n.Name),
		b.key(KindOutside, n.Name)}, ports,
		b.wires[n.Name])
	p := b.key(KindProcess, n.Name)
	process := Process{frozen, n.StartDelay, n.WaitFor}
	b.add(reconcile.Resource{
		Key: p, Digest: process.Digest(), Amend: true, Needs: needs, After: after,
		Falls: reconcile.FallsWithAny,
	}, process)
	if len(n.Exec) > 0 && (!frozen || b.Booted[n.Name]) {
		b.add(reconcile.Resource{
			Key: b.key(KindBoot, n.Name), Digest: Booted, Needs: []reconcile.Key{sliverKey, p},
			Falls: reconcile.FallsWithAny,
		}, Boot{n.Exec})
	}
}
