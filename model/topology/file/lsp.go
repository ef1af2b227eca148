package file

import "github.com/pergola-net/pergola/model/slice"

// LSPOf writes an LSP as a file would.
func LSPOf(l *slice.LSP) LSP {
	out := LSP{TTL: l.TTL}
	if l.Name != l.Ingress()+"--"+l.Egress() {
		out.Name = l.Name
	}
	for _, p := range l.To {
		if !l.ToEgress {
			out.To = append(out.To, p.String())
		}
	}
	for _, m := range l.Match {
		out.Match = append(out.Match, MatchOf(m))
	}
	for _, h := range l.Hops {
		at := h.Node
		if h.Out != "" {
			at += ":" + h.Out
		}
		out.Path = append(out.Path, at)
	}
	if q := l.Signal; q != nil {
		setup, holding := int(q.Setup), int(q.Holding)
		out.Signalling, out.Setup, out.Holding, out.Protect = SignallingRSVP, &setup, &holding, q.Protect
		if q.Bandwidth != 0 {
			out.Bandwidth, out.Excess = Rate(q.Bandwidth.String()), l.Excess
		}
		return out
	}
	switch l.Hops[len(l.Hops)-1].Label {
	case slice.ImplicitNull:
	case slice.ExplicitNull, slice.ExplicitNull6:
		out.Last = LastExplicitNull
	default:
		out.Last = LastOwn
	}
	return out
}
