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

// makeLSPs resolves the label-switched paths, and gives them labels: what the running version has, stays.
func (r *resolver) makeLSPs() {
	names := map[string]bool{}
	for i := range r.t.LSPs {
		at := diagnostic.Root.At("lsps").Item(i)
		l, ok := r.lsp(&r.t.LSPs[i], at)
		if !ok {
			continue
		}
		if names[l.Name] {
			r.Add(at, "give each its name:", "two LSPs are called %q", l.Name)
		}
		names[l.Name] = true
		r.checkClass(&l, at)
		r.out.LSPs = append(r.out.LSPs, l)
	}
	if len(r.Found) > 0 {
		return
	}
	slices.SortFunc(r.out.LSPs, func(a, b slice.LSP) int { return cmp.Compare(a.Name, b.Name) })
	r.numberLSPs()
	r.label()
}

// unchosen is a label that is not chosen yet.
const unchosen = 1 << 20

func (r *resolver) lsp(in *file.LSP, at *diagnostic.Path) (out slice.LSP, ok bool) {
	before := len(r.Found)
	out = slice.LSP{Hops: r.hops(in.Path, at.At("path"))}
	if in.TTL != slice.Uniform {
		out.TTL = in.TTL
	}
	if len(r.Found) > before {
		return out, false
	}
	last := len(out.Hops) - 1
	out.Name = cmp.Or(in.Name, out.Ingress()+"--"+out.Egress())
	if in.Name != "" {
		r.checkName(at.At("name"), "label-switched path", in.Name)
	}
	for i := 1; i <= last; i++ {
		out.Hops[i].Label = unchosen
	}
	out.To = r.class(in, &out, at.At("to"))
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
	return out, len(r.Found) == before
}

// hops finds the routers of a path, and the interfaces that join them.
func (r *resolver) hops(route file.Strings, at *diagnostic.Path) (hops []slice.Hop) {
	if len(route) < 2 {
		r.Add(at, "write path: [a, b, c]", "a path has two routers at least, this one has %d", len(route))
		return nil
	}
	seen := map[string]bool{}
	var before *node
	for i, text := range route {
		end := file.End(text)
		n := r.lspRouter(end.Node(), at.Item(i))
		switch {
		case n == nil:
			return nil
		case seen[n.name]:
			r.Add(at.Item(i), "", "the path comes to %q twice", n.name)
			return nil
		case end.Interface() != "" && i == len(route)-1:
			r.Add(at.Item(i), "", "packets leave the path at %q: write it without an interface", n.name)
		}
		seen[n.name] = true
		hop := slice.Hop{Node: n.name}
		if before != nil {
			out, in := r.between(before, file.End(route[i-1]).Interface(), n, at.Item(i-1))
			if out == nil {
				return nil
			}
			hops[i-1].Out, hop.In = out.name, in.name
		}
		hops, before = append(hops, hop), n
	}
	return hops
}

// lspRouter gives a router that can be on a path; nil: it is reported why it cannot.
func (r *resolver) lspRouter(name string, at *diagnostic.Path) *node {
	n := r.byName[name]
	switch {
	case n == nil:
		r.unknownNode(at, name)
	case n.kind != slice.Router:
		r.Add(at, "", "%q is a %s: labels are for routers", name, n.kind)
	case n.all.FastPath == slice.FastPathOff:
		r.Add(at, "take out fastpath: off", "%q is not on the fast path, which is what switches labels", name)
	default:
		return n
	}
	return nil
}

// between gives the interfaces by which packets go from one router to the next: by the one that is named, if any.
func (r *resolver) between(a *node, name string, b *node, at *diagnostic.Path) (out, in *port) {
	var ways []string
	for _, p := range a.interfaces {
		if p.segment == nil || name != "" && p.name != name {
			continue
		}
		for _, q := range p.segment.members {
			if q.node == b {
				out, in = p, q
				ways = append(ways, p.String())
			}
		}
	}
	switch {
	case len(ways) == 1:
		return out, in
	case len(ways) > 1 && name == "":
		r.Add(at, "write one of "+strings.Join(ways, ", "), "%d links join %q and %q", len(ways), a.name,
			b.name)
	case len(ways) > 1:
		r.Add(at, "", "%q has more than one interface on the network of %s", b.name, ways[0])
	case name != "" && a.byName[name] == nil:
		r.Add(at, diagnostic.Suggest(name, slices.Sorted(maps.Keys(a.byName))), "%q has no interface %q",
			a.name, name)
	case name != "":
		r.Add(at, "", "%s:%s does not lead to %q", a.name, name, b.name)
	default:
		r.Add(at, "name all routers on the way", "no link joins %q and %q", a.name, b.name)
	}
	return nil, nil
}

// class gives the prefixes whose packets go by an LSP.
func (r *resolver) class(in *file.LSP, l *slice.LSP, at *diagnostic.Path) (to []netip.Prefix) {
	for i, text := range in.To {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			r.Add(at.Item(i), "write such as 10.9.0.0/24", "%q is no prefix", text)
			continue
		}
		to = append(to, p.Masked())
	}
	if len(in.To) == 0 {
		for _, p := range r.byName[l.Egress()].loopbacks {
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
func (r *resolver) checkClass(l *slice.LSP, at *diagnostic.Path) {
	for i := range r.out.LSPs {
		other := &r.out.LSPs[i]
		if other.Ingress() != l.Ingress() {
			continue
		}
		for _, p := range l.To {
			if slices.Contains(other.To, p) {
				r.Add(at, "", "packets from %q to %s have two LSPs, %q and %q", l.Ingress(), p,
					other.Name, l.Name)
			}
		}
	}
}

// numberLSPs gives each its ID.
func (r *resolver) numberLSPs() {
	used := map[uint32]bool{}
	for i := range r.out.LSPs {
		if was := r.prev.LSP(r.out.LSPs[i].Name); was != nil {
			r.out.LSPs[i].ID = was.ID
			used[was.ID] = true
		}
	}
	next := uint32(1)
	for i := range r.out.LSPs {
		if r.out.LSPs[i].ID == 0 {
			r.out.LSPs[i].ID = free(used, &next)
		}
	}
}

// label chooses the labels, for each router from its own space. A label stays where packets come by the same interface.
func (r *resolver) label() {
	used := map[string]map[uint32]bool{}
	each := func(do func(name string, h *slice.Hop)) {
		for i := range r.out.LSPs {
			l := &r.out.LSPs[i]
			for j := range l.Hops {
				if l.Hops[j].Label == unchosen {
					do(l.Name, &l.Hops[j])
				}
			}
		}
	}
	each(func(name string, h *slice.Hop) {
		if used[h.Node] == nil {
			used[h.Node] = map[uint32]bool{}
		}
		was := r.prev.LSP(name)
		if was == nil {
			return
		}
		for _, old := range was.Hops {
			if old.Node == h.Node && old.In == h.In && old.Label >= slice.FirstLabel {
				h.Label = old.Label
				used[h.Node][h.Label] = true
			}
		}
	})
	next := map[string]uint32{}
	each(func(_ string, h *slice.Hop) {
		n := max(next[h.Node], slice.FirstLabel)
		h.Label = free(used[h.Node], &n)
		next[h.Node] = n
		if h.Label > slice.LastStatic {
			r.Add(diagnostic.Root.At("lsps"), "", "%q has no labels left: it has %d, from %d to %d", h.Node,
				slice.LastStatic-slice.FirstLabel+1, slice.FirstLabel, slice.LastStatic)
		}
	})
}

// free takes the least number from next on that is not used.
func free(used map[uint32]bool, next *uint32) uint32 {
	for used[*next] {
		*next++
	}
	*next++
	return *next - 1
}
