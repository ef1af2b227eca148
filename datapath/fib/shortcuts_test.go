package fib

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// rivals are neighbours that want the same place, and one that wants another.
func rivals() []station {
	byPlace := map[uint32][]station{}
	for i := uint32(1); ; i++ {
		at := station{port: 3, address: netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+i)))}
		place, _, _ := at.key().place()
		byPlace[place] = append(byPlace[place], at)
		if len(byPlace[place]) == 3 {
			return append(byPlace[place], station{port: 4, address: at.address},
				station{port: 3, address: netip.MustParseAddr("2001:db8::1")})
		}
	}
}

// watchPlaces fails where a place becomes another neighbour's while programs may look at the one that had it.
func watchPlaces(t *rapid.T, p *plain, f *FIB, stations []station) {
	type tenant struct {
		neighbour uint64
		waits     int // when it was last seen there
	}
	last := map[uint32]tenant{}
	f.stored = func() {
		for _, at := range stations {
			place, _, ok := at.key().place()
			now := p.shortcuts[place].neighbour
			if !ok || now == 0 {
				continue
			}
			if was, known := last[place]; known && was.neighbour != now && was.waits == p.waits {
				t.Fatalf("place %d is another's, and nobody has waited", place)
			}
			last[place] = tenant{now, p.waits}
		}
	}
}

func TestShortcutsSayWhatTheTableSays(t *testing.T) {
	stations := rivals()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlain()
		f := p.open(t)
		watchPlaces(t, p, f, stations)
		r, err := f.NewRouter(1)
		must(t, err)
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			at := rapid.SampledFrom(stations).Draw(t, "station")
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 0, 1:
				must(t, r.DeleteNeighbour(at.port, at.address))
			case 2:
				f.mu.Lock()
				must(t, f.memory.wait())
				f.mu.Unlock()
			default:
				n := Neighbour{MAC: [6]byte{2, byte(rapid.IntRange(1, 3).Draw(t, "mac"))},
					Stale: rapid.Bool().Draw(t, "stale")}
				must(t, r.SetNeighbour(at.port, at.address, n))
			}
			for _, at := range stations {
				word, ok := f.neighbour(at.key())
				if want, there := p.neighbours[at.key()]; ok != there || word != want {
					t.Fatalf("%v is %x (%v), not %x (%v)", at, word, ok, want, there)
				}
			}
		}
	})
}

// What the table says of a neighbour is newer than its shortcut, if its writer died between the two.
func TestShortcutsOfAnEarlierProcess(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	r := mustRouter(t, f)
	moved, gone := station{port: 3, address: gateways[1]}, station{port: 4, address: gateways[1]}
	for _, at := range []station{moved, gone} {
		must(t, r.SetNeighbour(at.port, at.address, Neighbour{MAC: [6]byte{2}}))
	}
	must(t, r.SetLeg(3, Leg{Up: true}))
	must(t, r.Enable(true, true))
	p.neighbours[moved.key()] = adjacency(nexthopGateway, [6]byte{4})
	delete(p.neighbours, gone.key())
	f = p.open(t)
	if word, _ := f.neighbour(moved.key()); macOf(word) != [6]byte{4} {
		t.Errorf("the neighbour that moved is at %x", macOf(word))
	}
	if s, _ := f.shortcut(gone.key()); s != nil {
		t.Errorf("the neighbour that went has a shortcut: %+v", s)
	}
}
