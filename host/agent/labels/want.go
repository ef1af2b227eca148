package labels

import (
	"net"
	"net/netip"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Want are the tables of this host's routers.
type Want struct {
	Entries map[Key]datapath.NHLFE
	Routers map[sliver.ID]mirror.Labels // of those that are on an LSP
	Rules   map[sliver.ID][]Rule        // by ingress
	Missing map[Hop]string              // why a hop has no entry
	Unknown map[uint16]bool             // slices of which it is not known what is wanted: their entries stay
}

// Key names an entry of a label space.
type Key struct {
	Space  uint32
	Number uint32 // a label, or an FTN
	FTN    bool
}

// Hop is a router on an LSP.
type Hop struct {
	Slice     uint16
	LSP, Node string
}

// Of works out what is wanted, of the LSPs that are not signalled, and of the ports that were observed. It is pure.
func Of(at plan.Place, inputs []plan.Input, seen *observe.Snapshot) Want {
	w := Want{Entries: map[Key]datapath.NHLFE{}, Routers: map[sliver.ID]mirror.Labels{},
		Rules: map[sliver.ID][]Rule{}, Missing: map[Hop]string{}, Unknown: map[uint16]bool{}}
	for i := range inputs {
		spec := inputs[i].Spec
		switch {
		case inputs[i].Corrupt != nil:
			w.Unknown[spec.ID] = true
			continue
		case len(spec.LSPs) == 0:
			continue
		}
		t := tables{Want: &w, spec: spec, seen: seen, nodes: make(map[string]*slice.Node, len(spec.Nodes))}
		for j := range spec.Nodes {
			t.nodes[spec.Nodes[j].Name] = &spec.Nodes[j]
		}
		for j := range spec.LSPs {
			l := &spec.LSPs[j]
			if l.Signal != nil {
				continue
			}
			for k := range l.Hops {
				if n := t.nodes[l.Hops[k].Node]; n != nil && at.Owns(n) {
					t.add(l, k, n)
				}
			}
		}
	}
	return w
}

// tables are those of a slice.
type tables struct {
	*Want
	spec  *slice.Slice
	seen  *observe.Snapshot
	nodes map[string]*slice.Node
}

// add adds the entries of one hop of an LSP.
func (t *tables) add(l *slice.LSP, hop int, n *slice.Node) {
	is := l.Hops[hop]
	e := datapath.NHLFE{Uniform: l.TTL != slice.Pipe, KeepClass: true}
	k := keyOf(t.spec.ID, l, hop, n)
	id := sliver.ID{Slice: t.spec.ID, Node: n.Name}
	router := t.Routers[id]
	router.Space = k.Space
	if hop == 0 {
		if router.FTNs == nil {
			router.FTNs = map[netip.Prefix]uint32{}
		}
		for _, p := range l.To {
			router.FTNs[p] = l.ID
		}
		t.AddRules(id, l, l.ID)
	}
	t.Routers[id] = router
	if t.seen.NetNS[id] == 0 {
		t.miss(l, n, "it does not run")
		return
	}
	var ok bool
	if hop > 0 {
		if e.In, ok = t.port(n, is.In); !ok {
			t.miss(l, n, is.In+" is not there")
			return
		}
	}
	if hop == len(l.Hops)-1 {
		if is.Label >= slice.FirstLabel { // else there is no label, or one that needs no entry
			e.Pop = true
			t.Entries[k] = e
		}
		return
	}
	if e.Port, ok = t.port(n, is.Out); !ok {
		t.miss(l, n, is.Out+" is not there")
		return
	}
	e.TTL = 255
	next := l.Hops[hop+1]
	if next.Label != slice.ImplicitNull {
		e.Push = []datapath.Label{{Label: next.Label}}
	}
	if e.MAC, ok = MACOf(t.nodes[next.Node], next.In); !ok {
		t.miss(l, n, next.Node+" has no interface "+next.In)
		return
	}
	t.Entries[k] = e
}

func (t *tables) miss(l *slice.LSP, n *slice.Node, why string) {
	t.Missing[Hop{t.spec.ID, l.Name, n.Name}] = why
}

// keyOf names the entry of a hop: where an LSP begins it is an FTN.
func keyOf(id uint16, l *slice.LSP, hop int, n *slice.Node) Key {
	if hop == 0 {
		return Key{SpaceOf(id, n), l.ID, true}
	}
	return Key{SpaceOf(id, n), l.Hops[hop].Label, false}
}

// port gives the ifindex of the substrate's end of a node's interface.
func (t *tables) port(n *slice.Node, name string) (index int, ok bool) {
	i := n.Interface(name)
	if i == nil {
		return 0, false
	}
	index, ok = t.seen.Ports[slice.PortName(t.spec.ID, i.Port)]
	return index, ok
}

// MACOf is the address of an interface of a node, or of nil.
func MACOf(n *slice.Node, name string) (mac [6]byte, ok bool) {
	if n == nil {
		return mac, false
	}
	i := n.Interface(name)
	if i == nil {
		return mac, false
	}
	text, err := net.ParseMAC(i.MAC)
	if err != nil || len(text) != len(mac) {
		return mac, false
	}
	return [6]byte(text), true
}

// SpaceOf numbers the label space of a router: by its slice, and the least number of its interfaces. On one host no two
// routers have the same.
func SpaceOf(id uint16, n *slice.Node) uint32 {
	var least uint16
	for i := range n.Interfaces {
		if port := n.Interfaces[i].Port; least == 0 || port < least {
			least = port
		}
	}
	return uint32(id)<<16 | uint32(least)
}

// Slice is the id of the slice whose router has the label space.
func (k Key) Slice() uint16 { return uint16(k.Space >> 16) }
