package plan

import "github.com/pergola-net/pergola/model/slice"

// leavesLabelled reports whether frames leave a walk of this host with labels: into a queue, a switch, a LAN or a
// tunnel. Super-frames must not: kernels that have no MPLS cannot cut them.
func (b *builder) leavesLabelled() bool {
	if b.Spec.IsSignalled() && b.routersLeaveWalk() {
		return true
	}
	for i := range b.Spec.LSPs {
		l := &b.Spec.LSPs[i]
		if l.Signal != nil {
			continue
		}
		for j, h := range l.Hops[:len(l.Hops)-1] {
			e := slice.End{Node: h.Node, Interface: h.Out}
			if l.Hops[j+1].Label != slice.ImplicitNull && b.leavesWalk(e) {
				return true
			}
		}
	}
	return false
}

// routersLeaveWalk reports whether frames of any router here leave the walk: an LSP that is signalled may go anywhere.
func (b *builder) routersLeaveWalk() bool {
	for i := range b.Spec.Nodes {
		n := &b.Spec.Nodes[i]
		if !n.SwitchesLabels() {
			continue
		}
		for _, at := range n.Interfaces {
			if b.leavesWalk(slice.End{Node: n.Name, Interface: at.Name}) {
				return true
			}
		}
	}
	return false
}

// leavesWalk reports whether frames that a node sends by an interface are no longer walked on this host.
func (b *builder) leavesWalk(e slice.End) bool {
	n := b.nodes[e.Node]
	if n == nil || !b.Owns(n) || n.Interface(e.Interface) == nil {
		return false
	}
	l := b.Spec.Link(n.Interface(e.Interface).Link)
	if l == nil {
		return false
	}
	for _, end := range l.Ends {
		if end.Is(e) && b.shape(end).NeedsQdisc() || !end.Is(e) && (b.isSwitch(end.Node) || !b.hasEnd(end)) {
			return true
		}
	}
	return isLAN(l)
}

// needsSingle reports whether super-frames are to be cut before they come to a node: packet programs take none, and
// routers may give them labels.
func (b *builder) needsSingle(node string) bool {
	n := b.nodes[node]
	return n.Kind == slice.Program || n.Kind == slice.Router && b.labelled
}
