package resolve

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// LSPs resolves label-switched paths into those of a slice, which has all else, and gives them labels: what the slice
// prev has, stays. Those named in byHand were added while the network runs. The slice is as it was where anything is
// wrong.
func LSPs(s, prev *slice.Slice, written []file.LSP, byHand map[string]bool) diagnostic.Diagnostics {
	if len(written) == 0 {
		s.LSPs = nil
		return nil
	}
	r := &lspResolver{nodes: make(map[string]*slice.Node, len(s.Nodes)), before: map[string]*slice.LSP{},
		segments: make(map[string]*slice.Segment, len(s.Links)), classes: map[class]string{},
		ruled: map[string]int{}}
	if prev != nil {
		for i := range prev.LSPs {
			r.before[prev.LSPs[i].Name] = &prev.LSPs[i]
		}
	}
	for i := range s.Nodes {
		r.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, seg := range s.Segments() {
		for _, l := range seg.Links {
			r.segments[l.Name] = seg
		}
	}
	names := map[string]bool{}
	for i := range written {
		at := diagnostic.Root.At("lsps").Item(i)
		l, ok := r.lsp(&written[i], at)
		if !ok {
			continue
		}
		if names[l.Name] {
			r.Add(at, "give each its name:", "two LSPs are called %q", l.Name)
		}
		names[l.Name] = true
		l.ByHand = byHand[l.Name]
		r.checkClass(&l, at)
		r.out = append(r.out, l)
	}
	if len(r.Found) > 0 {
		return r.Found
	}
	slices.SortFunc(r.out, func(a, b slice.LSP) int { return cmp.Compare(a.Name, b.Name) })
	r.number()
	r.label()
	if len(r.Found) == 0 {
		s.LSPs = r.out
	}
	return r.Found
}

// lspResolver resolves LSPs, by the nodes and links of a slice.
type lspResolver struct {
	diagnostic.Report
	before   map[string]*slice.LSP // of the version before, by name
	nodes    map[string]*slice.Node
	segments map[string]*slice.Segment // by link
	classes  map[class]string          // the LSP that packets go by
	ruled    map[string]int            // rules of LSPs, by their ingress
	out      []slice.LSP
}

// class is packets to a prefix, at a router.
type class struct {
	ingress string
	to      netip.Prefix
}

// makeLSPs resolves the label-switched paths of the topology, and those that were added by hand to the running version.
func (r *resolver) makeLSPs(s *slice.Slice) {
	if r.Found = LSPs(s, r.prev, r.t.LSPs, nil); len(r.Found) > 0 || r.prev == nil {
		return
	}
	all, byHand := slices.Clone(r.t.LSPs), map[string]bool{}
	for i := range r.prev.LSPs {
		l := &r.prev.LSPs[i]
		if l.ByHand && s.LSP(l.Name) == nil {
			all, byHand[l.Name] = append(all, file.LSPOf(l)), true
		}
	}
	if len(byHand) == 0 {
		return
	}
	for _, d := range LSPs(s, r.prev, all, byHand) {
		r.Add(diagnostic.Root.At("lsps"), "`pergola lsp rm` takes it out of the network",
			"an LSP that was added by hand no longer fits: %s", d.Message)
	}
}

// NameOfLSP is the name of an LSP: that which is written, or made of the routers at its ends.
func NameOfLSP(in *file.LSP) string {
	if in.Name != "" || len(in.Path) == 0 {
		return in.Name
	}
	return file.End(in.Path[0]).Node() + "--" + file.End(in.Path[len(in.Path)-1]).Node()
}

// unchosen is a label that is not chosen yet.
const unchosen = 1 << 20

func (r *lspResolver) lsp(in *file.LSP, at *diagnostic.Path) (out slice.LSP, ok bool) {
	before := len(r.Found)
	signalled := in.Signalling == file.SignallingRSVP || in.Signalling == "" && in.Bandwidth != ""
	out = slice.LSP{Hops: r.hops(in.Path, signalled, at.At("path"))}
	if in.TTL != slice.Uniform {
		out.TTL = in.TTL
	}
	if out.Hops == nil || len(r.Found) > before {
		return out, false
	}
	out.Name = NameOfLSP(in)
	if in.Name != "" {
		r.checkName(at.At("name"), "label-switched path", in.Name)
	}
	if len(in.Match) > 0 {
		out.Match = r.rules(in, out.Ingress(), at)
	} else {
		out.To, out.ToEgress = r.class(in, &out, at.At("to")), len(in.To) == 0
	}
	if signalled {
		r.signal(in, &out, at)
	} else {
		r.static(in, &out, at)
	}
	return out, len(r.Found) == before
}

func (r *lspResolver) checkName(at *diagnostic.Path, what, name string) {
	var names resolver
	names.checkName(at, what, name)
	r.Found = append(r.Found, names.Found...)
}

// rules reads which packets go by an LSP, in place of those to prefixes.
func (r *lspResolver) rules(in *file.LSP, ingress string, at *diagnostic.Path) (all []slice.Match) {
	if len(in.To) > 0 {
		r.Add(at.At("to"), "write dst in the rules",
			"an LSP is for prefixes, or for packets that match, not both")
	}
	if in.Last == file.LastExplicitNull {
		r.Add(at.At("last_label"), "write last_label: own",
			"explicit null is another label for IPv6 than for IPv4, and rules may be for both")
	}
	var matches resolver
	for i, m := range in.Match {
		all = append(all, matches.match(m, at.At("match").Item(i)))
	}
	r.Found = append(r.Found, matches.Found...)
	if r.ruled[ingress] += len(all); r.ruled[ingress] > slice.MaxLSPRules {
		r.Add(at.At("match"), "", "%d rules for LSPs that begin at %q: at most %d", r.ruled[ingress], ingress,
			slice.MaxLSPRules)
	}
	return all
}

// signal reads what RSVP-TE is to ask for.
func (r *lspResolver) signal(in *file.LSP, out *slice.LSP, at *diagnostic.Path) {
	bandwidth, err := in.Bandwidth.Bits()
	if err != nil { // in a file it was found before
		r.Add(at.At("bandwidth"), "", "bandwidth: %v", err)
	}
	out.Signal = &slice.Signal{Bandwidth: bandwidth,
		Setup: r.priority(in.Setup, slice.LowestPriority, at.At("setup_priority"))}
	out.Signal.Holding = r.priority(in.Holding, out.Signal.Setup, at.At("holding_priority"))
	if out.Signal.Holding > out.Signal.Setup {
		r.Add(at, "write a holding_priority of setup_priority or better, that is, less",
			"holding priority %d is worse than set-up priority %d: two such LSPs would take bandwidth "+
				"from each other for ever", out.Signal.Holding, out.Signal.Setup)
	}
	if in.Protect != slice.ProtectNone {
		out.Signal.Protect = in.Protect
	}
	if in.Excess != slice.Demote && bandwidth != 0 {
		out.Excess = in.Excess
	}
	if in.Last != "" && in.Last != file.LastOwn {
		r.Add(at.At("last_label"), "write signalling: static, or leave it out",
			"LSPs by RSVP-TE end with a label of the last router's own")
	}
	for _, h := range out.Hops {
		if _, ok := r.nodes[h.Node].Address(false); !ok {
			r.Add(at.At("path"), "", "%q has no IPv4 address, which RSVP-TE needs", h.Node)
		}
	}
}

func (r *lspResolver) priority(in *int, otherwise uint8, at *diagnostic.Path) uint8 {
	switch {
	case in == nil:
		return otherwise
	case *in < 0 || *in > slice.LowestPriority:
		r.Add(at, "write 0 to 7", "priority %d is out of range", *in)
		return otherwise
	}
	return uint8(*in)
}

// static says with which label packets come to each router of an LSP that is not signalled.
func (r *lspResolver) static(in *file.LSP, out *slice.LSP, at *diagnostic.Path) {
	for _, only := range []struct {
		name  string
		given bool
	}{
		{"bandwidth", in.Bandwidth != ""}, {"setup_priority", in.Setup != nil},
		{"holding_priority", in.Holding != nil}, {"excess", in.Excess != ""},
		{"protect", in.Protect != ""},
	} {
		if only.given {
			r.Add(at.At(only.name), "write signalling: rsvp", "a static LSP has no %s", only.name)
		}
	}
	last := len(out.Hops) - 1
	for i := 1; i <= last; i++ {
		out.Hops[i].Label = unchosen
	}
	switch in.Last {
	case file.LastOwn:
	case file.LastExplicitNull:
		out.Hops[last].Label = slice.ExplicitNull
		ipv6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
		switch some := slices.ContainsFunc(out.To, ipv6); {
		case some && !ipv6(out.To[0]): // the prefixes are sorted
			r.Add(at.At("last_label"), "write to: with one family, or two LSPs",
				"explicit null is another label for IPv6 (2) than for IPv4 (0): this LSP is for both")
		case some:
			out.Hops[last].Label = slice.ExplicitNull6
		}
	default:
		if last > 1 {
			out.Hops[last].Label = slice.ImplicitNull
		} else if in.Last != "" {
			r.Add(at.At("last_label"), "write last_label: own, or explicit-null",
				"between two routers implicit-null leaves no label at all")
		}
	}
}

// hops finds the routers of a path, and the interfaces that join them. Where a path may leave out routers, it has only
// the interfaces that are named.
func (r *lspResolver) hops(route file.Strings, gaps bool, at *diagnostic.Path) (hops []slice.Hop) {
	if len(route) < 2 {
		r.Add(at, "write path: [a, b, c]", "a path has two routers at least, this one has %d", len(route))
		return nil
	}
	seen := map[string]bool{}
	var before *slice.Node
	for i, text := range route {
		end := file.End(text)
		n := r.router(end.Node(), at.Item(i))
		switch {
		case n == nil:
			return nil
		case seen[n.Name]:
			r.Add(at.Item(i), "", "the path comes to %q twice", n.Name)
			return nil
		case end.Interface() != "" && i == len(route)-1:
			r.Add(at.Item(i), "", "packets leave the path at %q: write it without an interface", n.Name)
		}
		seen[n.Name] = true
		hop := slice.Hop{Node: n.Name}
		if before != nil {
			out, in, ok := r.between(before, file.End(route[i-1]).Interface(), n, gaps, at.Item(i-1))
			if !ok {
				return nil
			}
			hops[i-1].Out, hop.In = out, in
		}
		hops, before = append(hops, hop), n
	}
	return hops
}

// router gives a router that can be on a path; nil: it is reported why it cannot.
func (r *lspResolver) router(name string, at *diagnostic.Path) *slice.Node {
	n := r.nodes[name]
	switch {
	case n == nil:
		r.Add(at, cmp.Or(diagnostic.Suggest(name, slices.Sorted(maps.Keys(r.nodes))), "add it under nodes:"),
			"no node is called %q", name)
	case n.Kind != slice.Router:
		r.Add(at, "", "%q is a %s: labels are for routers", name, n.Kind)
	case n.FastPath == slice.FastPathOff:
		r.Add(at, "take out fastpath: off", "%q is not on the fast path, which is what switches labels", name)
	default:
		return n
	}
	return nil
}

// between gives the interfaces by which packets go from one router to the next; none where the path may have others
// between them.
func (r *lspResolver) between(a *slice.Node, name string, b *slice.Node, gaps bool, at *diagnostic.Path) (out,
	in string, ok bool) {
	if gaps && name == "" {
		return "", "", true
	}
	ways := r.ways(a, name, b)
	if len(ways) != 1 {
		r.noWay(a, name, b, ways, at)
		return "", "", false
	}
	return ways[0].out, ways[0].in, true
}

// way is the interfaces by which packets leave one router and come to the next.
type way struct{ out, in string }

// ways lists how packets can go from one router to the next: by the interface that is named, if any.
func (r *lspResolver) ways(a *slice.Node, name string, b *slice.Node) (all []way) {
	for i := range a.Interfaces {
		out := &a.Interfaces[i]
		seg := r.segments[out.Link]
		if seg == nil || name != "" && out.Name != name {
			continue
		}
		for _, l := range seg.Links {
			for _, e := range l.Ends {
				if e.Node == b.Name {
					all = append(all, way{out.Name, e.Interface})
				}
			}
		}
	}
	return all
}

// noWay reports why there is not one way from a router to the next.
func (r *lspResolver) noWay(a *slice.Node, name string, b *slice.Node, ways []way, at *diagnostic.Path) {
	var names []string
	for _, w := range ways {
		names = append(names, a.Name+":"+w.out)
	}
	switch {
	case len(ways) > 1 && name == "":
		r.Add(at, "write one of "+strings.Join(names, ", "), "%d links join %q and %q", len(ways), a.Name,
			b.Name)
	case len(ways) > 1:
		r.Add(at, "", "%q has more than one interface on the network of %s", b.Name, names[0])
	case name != "" && a.Interface(name) == nil:
		have := make([]string, len(a.Interfaces))
		for i := range a.Interfaces {
			have[i] = a.Interfaces[i].Name
		}
		r.Add(at, diagnostic.Suggest(name, have), "%q has no interface %q", a.Name, name)
	case name != "":
		r.Add(at, "", "%s:%s does not lead to %q", a.Name, name, b.Name)
	default:
		r.Add(at, "name all routers on the way, or write signalling: rsvp", "no link joins %q and %q", a.Name,
			b.Name)
	}
}

// class gives the prefixes whose packets go by an LSP.
func (r *lspResolver) class(in *file.LSP, l *slice.LSP, at *diagnostic.Path) (to []netip.Prefix) {
	for i, text := range in.To {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			r.Add(at.Item(i), "write such as 10.9.0.0/24", "%q is no prefix", text)
			continue
		}
		to = append(to, p.Masked())
	}
	if len(in.To) == 0 {
		for _, p := range r.nodes[l.Egress()].Loopbacks {
			if in.Last != file.LastExplicitNull || p.Addr().Is4() {
				to = append(to, p.Masked())
			}
		}
		if len(to) == 0 {
			r.Add(at, "write to: [10.9.0.0/24]", "%q has no loopback address that packets could be for",
				l.Egress())
		}
	}
	slices.SortFunc(to, netip.Prefix.Compare)
	return slices.Compact(to)
}

// checkClass finds prefixes that another LSP of the same ingress has.
func (r *lspResolver) checkClass(l *slice.LSP, at *diagnostic.Path) {
	for _, p := range l.To {
		c := class{l.Ingress(), p}
		if other, taken := r.classes[c]; taken {
			r.Add(at, "", "packets from %q to %s have two LSPs, %q and %q", c.ingress, p, other, l.Name)
			continue
		}
		r.classes[c] = l.Name
	}
}
