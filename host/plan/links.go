package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// addSwitch adds a switch's bridge, if one is here, and what leads to its other ones.
func (b *builder) addSwitch(n *slice.Node) {
	if !b.hasNode(n) {
		return
	}
	var all, here []*slice.Link
	var plugged []string
	for i := range b.Spec.Links {
		l := &b.Spec.Links[i]
		for _, e := range l.Ends {
			if e.Node != n.Name {
				continue
			}
			all = append(all, l)
			if b.hasEnd(e) {
				here = append(here, l)
				plugged = append(plugged, b.inSwitch(l, e))
			}
		}
	}
	b.addBridge(segment{
		device: switchDevice(b.Spec.ID, n.Name), owner: n.Name, hosts: b.hosts(n), tunnel: n.Tunnel,
		mtu: b.mtu(all...), links: here, plugged: plugged,
	})
}

// inSwitch names the device that is in a switch's bridge for an end of it.
func (b *builder) inSwitch(l *slice.Link, e slice.End) string {
	if isLAN(l) {
		return b.port(e)
	}
	for _, other := range l.Ends {
		if !other.Is(e) && !b.isSwitch(other.Node) {
			return b.port(other)
		}
	}
	return b.port(e)
}

// lanEnd is after the name of a switch's port in that of the LAN's end of their cable.
const lanEnd = "l"

// inLAN names the device that is in a LAN's bridge for an end of it.
func (b *builder) inLAN(e slice.End) string {
	if b.isSwitch(e.Node) {
		return b.port(e) + lanEnd // a LAN has no port of its own
	}
	return b.port(e)
}

// addLink adds what joins a link's ends, as far as it is here. A link that a user took down has ports, and nothing that
// joins them: then the nodes see no carrier.
func (b *builder) addLink(l *slice.Link) {
	if b.Overrides.Down[l.Name] || !b.HasPart(l) {
		return
	}
	var live []slice.End
	for _, e := range l.Ends {
		if b.isOn(e.Node) {
			live = append(live, e)
		}
	}
	if isLAN(l) {
		g := segment{
			device: switchDevice(b.Spec.ID, "link "+l.Name), owner: l.Name, hosts: b.span.Link(l.Name),
			tunnel: l.Tunnel, mtu: b.mtu(l), links: []*slice.Link{l},
		}
		for _, e := range l.Ends {
			if b.hasEnd(e) {
				g.plugged = append(g.plugged, b.inLAN(e))
			}
		}
		b.addBridge(g)
		for _, e := range live {
			// A LAN has no side of its own to shape: it takes and gives at the rate of the end.
			b.plug(l, e, g.device, side{shape: slice.Shape{Rate: b.shape(e).Rate}})
		}
		return
	}
	if len(live) < 2 {
		return
	}
	x, y := live[0], live[1]
	switch {
	case b.isSwitch(y.Node):
		b.plug(l, x, switchDevice(b.Spec.ID, y.Node), side{b.port(y), b.shape(y)})
	case b.isSwitch(x.Node):
		b.plug(l, y, switchDevice(b.Spec.ID, x.Node), side{b.port(x), b.shape(x)})
	case !b.hasEnd(x):
		b.reach(l, y, x)
	case !b.hasEnd(y):
		b.reach(l, x, y)
	default:
		b.join(l, x, y)
	}
}

// join adds what joins two ends that are here.
func (b *builder) join(l *slice.Link, x, y slice.End) {
	p, q := b.port(x), b.port(y)
	j := NewJoin(p, q)
	b.addWire([]*slice.Link{l}, j, reconcile.FallsWithAll, []string{x.Node, y.Node}, b.key(KindPort, p),
		b.key(KindPort, q))
	shaped := b.shape(x).NeedsQdisc() || b.shape(y).NeedsQdisc()
	w := wiring.Link{
		A: b.end(x), B: b.end(y), Reinject: shaped && (b.isWalked(x.Node) || b.isWalked(y.Node)),
		Program: b.needsSingle(x.Node) || b.needsSingle(y.Node),
	}
	b.addQueue(j, w, b.key(KindPort, p), b.key(KindPort, q))
}

// side is the switch's side of a cable or plug: the name of its port, if it has one, and what it does to frames that
// leave the switch.
type side struct {
	port  string
	shape slice.Shape
}

// plug adds what joins an end to a switch. It is where the end is.
func (b *builder) plug(l *slice.Link, e slice.End, device string, from side) {
	if !b.hasEnd(e) {
		return
	}
	of := []*slice.Link{l}
	if b.isSwitch(e.Node) {
		if from.port == "" {
			from.port = b.inLAN(e)
		}
		c := NewCable(Cable{
			A: b.port(e), BridgeA: b.bridgeOf(switchDevice(b.Spec.ID, e.Node), b.port(e)),
			B: from.port, BridgeB: b.bridgeOf(device, from.port),
			Owner: b.Spec.Name + "/" + l.Name, MTU: b.nodes[e.Node].Interface(e.Interface).MTU,
		})
		b.addWire(of, c, reconcile.FallsWithAny, nil, b.key(KindSwitch, c.BridgeA),
			b.key(KindSwitch, c.BridgeB))
		end, other := b.end(e), wiring.End{Port: from.port, MTU: c.MTU, Shape: from.shape.Unclassified()}
		end.Shape.Police, other.Shape.Police = slice.Policer{}, slice.Policer{} // see slice.CanPolice
		b.addQueue(c, wiring.Link{A: end, B: other, Cable: true})
		return
	}
	p := Plug{b.port(e), b.bridgeOf(device, b.port(e))}
	b.addWire(of, p, reconcile.FallsWithAny, []string{e.Node}, b.key(KindPort, p.Port), b.key(KindSwitch, p.Bridge))
	w := wiring.Link{
		A: b.end(e), B: wiring.End{Shape: from.shape.Unclassified()}, Switch: p.Bridge,
		Reinject: b.isWalked(e.Node), Program: b.needsSingle(e.Node),
	}
	b.addQueue(p, w, b.key(KindPort, p.Port))
}

func (b *builder) addWire(of []*slice.Link, w Wire, falls reconcile.Falls, nodes []string, needs ...reconcile.Key) {
	k := b.key(KindWire, w.Name())
	b.add(reconcile.Resource{Key: k, Needs: needs, Falls: falls}, w)
	for _, l := range of {
		name := linkName{b.Spec.ID, l.Name}
		b.links[name] = append(b.links[name], k)
	}
	if len(of) == 1 {
		b.of[k] = of[0]
	}
	switch w := w.(type) {
	case Join:
		b.wired[w.A], b.wired[w.B] = true, true
	case Plug:
		b.wired[w.Port] = true
	}
	for _, n := range nodes {
		b.wires[n] = append(b.wires[n], k)
	}
}

// addQueue adds the treatment of a link's frames, over the wire that its ends are joined by.
func (b *builder) addQueue(over Wire, l wiring.Link, needs ...reconcile.Key) {
	if l.IsPlain() {
		return
	}
	b.add(reconcile.Resource{
		Key: b.key(KindQueue, over.Name()), Digest: l.Layout().Digest(), Amend: true,
		Falls: reconcile.FallsWithAny, Needs: append(needs, b.key(KindWire, over.Name())),
	}, l)
}

// end is an end of a link that is here. Frames that a switch sends have no classes: no program of ours meets them
// there.
func (b *builder) end(e slice.End) wiring.End {
	n := b.nodes[e.Node]
	w := wiring.End{Port: b.port(e), MTU: n.Interface(e.Interface).MTU, Shape: b.shape(e),
		Reserves: b.reserved && n.SwitchesLabels()}
	if b.isSwitch(e.Node) {
		w.Shape = w.Shape.Unclassified()
	}
	return w
}

// isWalked reports whether frames may pass by a node's kernel.
func (b *builder) isWalked(node string) bool {
	n := b.nodes[node]
	return n.Kind == slice.Router && n.FastPath != slice.FastPathOff || n.Kind == slice.Program
}

func (b *builder) shape(e slice.End) slice.Shape {
	if s, changed := b.Overrides.Shapes[e.String()]; changed {
		return s
	}
	return e.Shape
}

func (b *builder) port(e slice.End) string {
	return slice.PortName(b.Spec.ID, b.nodes[e.Node].Interface(e.Interface).Port)
}

// switchDevice names the bridge of a switch or a LAN: "s", the slice, "b" and a hash of the name, 15 bytes at most.
func switchDevice(id uint16, name string) string { return fmt.Sprintf("s%db%s", id, hash(name)[:9]) }

func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))
}
