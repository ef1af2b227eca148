package fastpath

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// Memory is a fast path in memory: the plain version that others are compared with.
type Memory struct {
	Capacity int    // filters that it has room for; 0: any number
	Can      Limits // what it says it can

	mu      sync.Mutex // guards what follows
	routes  chord.Routes
	filters map[ident.Prefix]Action
}

// Sent is a packet that a fast path sends.
type Sent struct {
	To     netip.AddrPort
	Packet []byte
}

// Limits gives m.Can.
func (m *Memory) Limits() Limits { return m.Can }

// Replace sets everything.
func (m *Memory) Replace(r chord.Routes, filters []Filter) error {
	if m.Capacity > 0 && len(filters) > m.Capacity {
		return ErrFull
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.routes, m.filters = r, make(map[ident.Prefix]Action)
	for _, f := range filters {
		m.filters[f.Prefix] = f.Action
	}
	return nil
}

// SetRoutes replaces the table of the ring.
func (m *Memory) SetRoutes(r chord.Routes) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.routes = r
	return nil
}

// Set adds or replaces a filter.
func (m *Memory) Set(f Filter) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.filters[f.Prefix]; !there && m.Capacity > 0 && len(m.filters) >= m.Capacity {
		return ErrFull
	}
	if m.filters == nil {
		m.filters = make(map[ident.Prefix]Action)
	}
	m.filters[f.Prefix] = f.Action
	return nil
}

// Delete takes a filter away.
func (m *Memory) Delete(p ident.Prefix) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.filters, p)
	return nil
}

// Len gives the number of filters.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.filters)
}

// Match gives the action of the longest prefix that contains an identifier.
func (m *Memory) Match(id ident.ID) (a Action, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := ident.Bits; n >= ident.Exact; n-- {
		if a, ok := m.filters[ident.PrefixOf(id, n)]; ok {
			return a, true
		}
	}
	return Action{}, false
}

// Process does what a fast path does with bytes that arrive. punt is what it leaves to the server: the bytes that
// arrived, or what became of them by Redirect; nil if it leaves nothing.
func (m *Memory) Process(b []byte) (sent []Sent, punt []byte) {
	parsed, err := wire.Parse(b)
	if err != nil {
		return nil, b
	}
	// Each turn costs a hop, so the loop ends.
	for p := wire.Packet(bytes.Clone(parsed)); ; {
		if p.Type() != wire.Data || p.HopLimit() < 2 || p.Copies() == 0 {
			return nil, p
		}
		next, action := m.decide(p.ID(0))
		if next.IsValid() {
			p.SetHopLimit(p.HopLimit() - 1)
			return []Sent{{To: next, Packet: p}}, nil
		}
		switch action.Kind {
		case Redirect:
			to, err := p.Redirect(action.Stack)
			if err != nil {
				return nil, p
			}
			p = to
			p.SetHopLimit(p.HopLimit() - 1)
			continue
		case Multicast:
			share := p.Copies() / len(action.To)
			if share == 0 {
				return nil, p
			}
			p.SetCopies(share)
		case Deliver:
		default:
			return nil, p
		}
		for _, to := range action.To {
			c := slices.Clone(p)
			c.SetType(wire.Delivery)
			c.SetHopLimit(p.HopLimit() - 1)
			sent = append(sent, Sent{To: to, Packet: c})
		}
		return sent, nil
	}
}

// decide gives the server to which an identifier goes, or else what is done with it here.
func (m *Memory) decide(id ident.ID) (next netip.AddrPort, a Action) {
	m.mu.Lock()
	routes := m.routes
	m.mu.Unlock()
	if !routes.Owns(id.Key()) {
		hop, _ := routes.Next(id.Key())
		return hop.Addr, Action{}
	}
	a, _ = m.Match(id)
	return netip.AddrPort{}, a
}
