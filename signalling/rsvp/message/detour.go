package message

import "net/netip"

// Detour is where detours of a protected LSP begin, and what they avoid (RFC 4090); at least one pair, of one family.
type Detour struct{ Pairs []DetourPair }

// DetourPair is a point of local repair and the node that it avoids.
type DetourPair struct{ PLR, Avoid netip.Addr }

func readDetour(addr func(*reader) netip.Addr) func(*reader) Object {
	return func(r *reader) Object {
		d := Detour{Pairs: []DetourPair{{addr(r), addr(r)}}}
		for r.more() {
			d.Pairs = append(d.Pairs, DetourPair{addr(r), addr(r)})
		}
		return d
	}
}
func (d Detour) kind() Kind {
	if len(d.Pairs) == 0 {
		return Kind{classDetour, 7}
	}
	return Kind{classDetour, byFamily(d.Pairs[0].PLR, 7, 8)}
}
func (d Detour) write(w *writer) {
	if len(d.Pairs) == 0 {
		w.fail("no pairs")
	}
	for _, p := range d.Pairs {
		w.sameAddr(p.PLR, d.Pairs[0].PLR.Is4())
		w.sameAddr(p.Avoid, d.Pairs[0].PLR.Is4())
	}
}
