package serve

import (
	"context"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// LSPs says how the label-switched paths of a slice are at the routers of this host: static ones at each of these,
// others where they begin.
func (s *Server) LSPs(_ context.Context, name string) (part api.SliceLSPs, err error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return part, err
	}
	share := s.share(w.Spec.ID)
	owns := func(node string) bool { return share != nil && share.OwnsNamed(node) }
	for i := range w.Spec.LSPs {
		l := &w.Spec.LSPs[i]
		if l.Signal != nil {
			if owns(l.Ingress()) {
				part.Signalled = append(part.Signalled, s.signalled(w, l))
			}
			continue
		}
		for hop := range l.Hops {
			if node := l.Hops[hop].Node; owns(node) {
				part.Hops = append(part.Hops,
					api.LSPHop{LSP: l.Name, Node: node, Problem: s.lspProblem(w, l, hop)})
			}
		}
	}
	return part, nil
}

// signalled says how an LSP is that begins here. It is not up where no packets get its label.
func (s *Server) signalled(w *plan.Input, l *slice.LSP) api.SignalledLSP {
	is := s.speakers.State(w.Spec, l)
	out := api.SignalledLSP{LSP: l.Name, Up: is.Up, Problem: is.Problem, ID: is.ID, Number: is.Number,
		Bandwidth: is.Bandwidth, Hops: is.Hops, Since: is.Since}
	if is.Up {
		why := s.fastPath.Unlabelled(sliver.ID{Slice: w.Spec.ID, Node: l.Ingress()}, l.To)
		if why != "" {
			out.Up, out.Problem = false, l.Ingress()+": "+why
		}
	}
	return out
}

// share says which parts of a slice the last pass found to be of this host; nil: there was none.
func (s *Server) share(id uint16) *plan.Share {
	if w := s.planned.Load(); w != nil {
		return w.Share(id)
	}
	return nil
}

// lspProblem says why packets of an LSP do not go on at one of its routers.
func (s *Server) lspProblem(w *plan.Input, l *slice.LSP, hop int) string {
	n := w.Spec.Node(l.Hops[hop].Node)
	if why := s.labels.Problem(w.Spec.ID, l, hop, n); why != "" {
		return why
	}
	if i := n.Interface(l.Hops[hop].Out); i != nil && w.Overrides.Down[i.Link] {
		return "link " + i.Link + " is down"
	}
	if hop > 0 {
		return ""
	}
	return s.fastPath.Unlabelled(sliver.ID{Slice: w.Spec.ID, Node: n.Name}, l.To)
}
