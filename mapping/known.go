package mapping

import "slices"

// restore makes an empty state a known mapping of the request. What of it breaks a constraint gets a new path, or loses
// its host.
func (b *builder) restore(m *Mapping) {
	hosts := map[string]int{}
	for h := range b.s.Hosts {
		hosts[b.s.Hosts[h].Name] = h
	}
	for n := range b.at {
		h, known := hosts[m.Hosts[b.r.Nodes[n].Name]]
		if known && b.fits(n, h) {
			b.put(n, h)
		}
	}
	for l, ends := range b.ends {
		if b.at[ends[0]] == nowhere || b.at[ends[1]] == nowhere {
			continue
		}
		if path, keeps := b.knownPath(l, m); keeps {
			b.route(l, path)
		} else if !b.find.connect(b.state, l) {
			b.take(ends[0])
		}
	}
}

// knownPath is the path that a mapping has for link l; false if it does not lead from end to end, or breaks a
// constraint.
func (b *builder) knownPath(l int, m *Mapping) (path []int32, keeps bool) {
	if l >= len(m.Paths) {
		return nil, false
	}
	at, delay, link := int32(b.at[b.ends[l][0]]), 0.0, &b.r.Links[l]
	for _, t := range m.Paths[l] {
		i := slices.IndexFunc(b.arcs[at], func(a arc) bool { return int(a.trunk) == t })
		if i < 0 || b.left[t]+tolerance < link.Bandwidth || slices.Contains(path, int32(t)) {
			return nil, false
		}
		at, path = b.arcs[at][i].to, append(path, int32(t))
		delay += b.s.Trunks[t].Delay
	}
	if link.Delay > 0 && delay > link.Delay*(1+delayTolerance) {
		return nil, false
	}
	return path, int(at) == b.at[b.ends[l][1]]
}
