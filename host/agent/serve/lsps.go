package serve

import (
	"context"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/speakers"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// LSPs says how the label-switched paths of a slice are at the routers of this host: static ones at each of these,
// others where they begin. They are those that are named, or all.
func (s *Server) LSPs(_ context.Context, name string, lsps ...string) (part api.SliceLSPs, err error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return part, err
	}
	return s.lspsOf(w, lsps...), nil
}

func (s *Server) lspsOf(w *plan.Input, lsps ...string) (part api.SliceLSPs) {
	part.Generation = w.Spec.Generation
	if len(w.Spec.LSPs) == 0 {
		return part
	}
	at, places := s.inputs.Place(), speakers.NewPlaces(w.Spec)
	for i := range w.Spec.LSPs {
		l := &w.Spec.LSPs[i]
		if len(lsps) > 0 && !slices.Contains(lsps, l.Name) {
			continue
		}
		if l.Signal != nil {
			if n := w.Spec.Node(l.Ingress()); n != nil && at.Owns(n) {
				part.Signalled = append(part.Signalled, s.signalled(w, places, l))
			}
			continue
		}
		for hop := range l.Hops {
			n := w.Spec.Node(l.Hops[hop].Node)
			if n != nil && at.Owns(n) {
				problem := s.lspProblem(w, l, hop, n)
				part.Hops = append(part.Hops, api.LSPHop{LSP: l.Name, Node: n.Name, Problem: problem})
			}
		}
	}
	return part
}

// signalled says how an LSP is that begins here. It is not up where no packets get its label.
func (s *Server) signalled(w *plan.Input, places *speakers.Places, l *slice.LSP) api.SignalledLSP {
	is := s.speakers.State(places, l)
	out := api.SignalledLSP{LSP: l.Name, Up: is.Up, Problem: is.Problem, ID: is.ID, Number: is.Number,
		Bandwidth: is.Bandwidth, Hops: is.Hops, Since: is.Since}
	if is.Bandwidth != 0 {
		m := is.Measured
		out.Measured = &api.LSPTraffic{Frames: m.Frames, Bytes: m.Bytes, ExcessFrames: m.ExcessFrames,
			ExcessBytes: m.ExcessBytes, Seconds: m.Time.Seconds()}
	}
	if is.Up {
		if why := s.unlabelled(w, l); why != "" {
			out.Up, out.Problem = false, l.Ingress()+": "+why
		}
	}
	return out
}

// unlabelled says why packets of an LSP do not get its label where it begins; empty: they do.
func (s *Server) unlabelled(w *plan.Input, l *slice.LSP) string {
	if why := s.labels.Unruled(w.Spec.ID, l, w.Spec.Node(l.Ingress())); why != "" {
		return why
	}
	return s.fastPath.Unlabelled(sliver.ID{Slice: w.Spec.ID, Node: l.Ingress()}, l)
}

// signalledLSPs counts those that RSVP-TE is to set up from routers of this host, and says which are not up.
func (s *Server) signalledLSPs(w *plan.Input) (count int, notUp []string) {
	if !w.Spec.IsSignalled() {
		return 0, nil
	}
	at, places := s.inputs.Place(), speakers.NewPlaces(w.Spec)
	for i := range w.Spec.LSPs {
		l := &w.Spec.LSPs[i]
		n := w.Spec.Node(l.Ingress())
		power := w.Overrides.Power[l.Ingress()]
		if l.Signal == nil || n == nil || !at.Owns(n) || power == slice.PowerOff || power == slice.PowerFrozen {
			continue
		}
		count++
		if is := s.signalled(w, places, l); !is.Up {
			notUp = append(notUp, fmt.Sprintf("%s: LSP %s: %s", n.Name, l.Name, is.Problem))
		}
	}
	return count, notUp
}

// lspProblem says why packets of an LSP do not go on at one of its routers.
func (s *Server) lspProblem(w *plan.Input, l *slice.LSP, hop int, n *slice.Node) string {
	if why := s.labels.Problem(w.Spec.ID, l, hop, n); why != "" {
		return why
	}
	if i := n.Interface(l.Hops[hop].Out); i != nil && w.Overrides.Down[i.Link] {
		return "link " + i.Link + " is down"
	}
	id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
	switch {
	case hop == 0:
		return s.unlabelled(w, l)
	case l.Hops[hop].Label == slice.ImplicitNull:
		return "" // packets come without a label, and its kernel forwards them, too
	}
	return s.fastPath.Unmirrored(id)
}
