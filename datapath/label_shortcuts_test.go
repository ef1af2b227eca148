package datapath

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"
)

// plainShortcuts are shortcuts without a kernel: its programs look at what they have found until they are waited for.
type plainShortcuts struct {
	labelShortcuts
	table map[objectLabelKey]objectNhlfe
	seen  map[uint64]objectNhlfe // cells that programs look at
}

func newPlainShortcuts() *plainShortcuts {
	p := &plainShortcuts{table: map[objectLabelKey]objectNhlfe{}, seen: map[uint64]objectNhlfe{}}
	p.words, p.cells = make([]uint64, maxLabelShortcuts), make([]objectNhlfe, maxLabelCells)
	p.wait = func() error { clear(p.seen); return nil }
	return p
}

// look does what find_label_shortcut() does, and goes on looking at it.
func (p *plainShortcuts) look(k objectLabelKey) (is objectNhlfe, ok bool) {
	number, word, _ := p.find(k)
	if *word>>cellBits != number {
		return is, false
	}
	is = p.cells[*word%maxLabelCells]
	p.seen[*word%maxLabelCells] = is
	return is, true
}

// rivalLabels are labels that want the same place, and others.
func rivalLabels() []objectLabelKey {
	byPlace := map[uint64][]objectLabelKey{}
	for label := uint32(FirstLabel); ; label++ {
		k := objectLabelKey{Space: 7, Label: label}
		place := placeOf(uint64(k.Space)<<labelBits | uint64(label))
		byPlace[place] = append(byPlace[place], k)
		if len(byPlace[place]) == 3 {
			return append(byPlace[place], objectLabelKey{Space: 7, Label: ftnBit | label},
				objectLabelKey{Space: 8, Label: label}, objectLabelKey{Space: 1 << 31, Label: label})
		}
	}
}

func TestLabelShortcutsSayWhatTheTableSays(t *testing.T) {
	keys := rivalLabels()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlainShortcuts()
		p.adopt(p.table)
		few := rapid.IntRange(0, 4).Draw(t, "cells")
		if few > 0 { // that programs may look at
			p.free, p.left = nil, p.free[:few]
		}
		refuses := rapid.Bool().Draw(t, "no waiting")
		if refuses {
			p.wait = func() error { return errors.New("not offered") }
		}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			k := rapid.SampledFrom(keys).Draw(t, "label")
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				p.drop(k)
				delete(p.table, k)
			} else {
				p.table[k] = objectNhlfe{Port: rapid.Uint32Range(1, 4).Draw(t, "port")}
				p.put(k, p.table[k])
			}
			for cell, was := range p.seen {
				if p.cells[cell] != was {
					t.Fatalf("cell %d changes while programs look at it", cell)
				}
			}
			for _, k := range keys {
				is, ok := p.look(k)
				if want, there := p.table[k]; ok && (!there || is != want) {
					t.Fatalf("label %+v is %+v, want %+v (%v)", k, is, want, there)
				}
				if ok && (few > 0 && refuses || k.Space >= 1<<29) {
					t.Fatalf("label %+v has a shortcut", k)
				}
			}
		}
	})
}

// What the table says is newer, if its writer died before the shortcut said so; and labels that have none get one.
func TestLabelShortcutsOfAnEarlierProcess(t *testing.T) {
	p := newPlainShortcuts()
	p.adopt(p.table)
	key := func(label uint32) objectLabelKey { return objectLabelKey{Space: 1, Label: label} }
	for label := uint32(16); label < 19; label++ {
		p.table[key(label)] = objectNhlfe{Port: label}
		p.put(key(label), p.table[key(label)])
	}
	delete(p.table, key(16))
	p.table[key(17)] = objectNhlfe{Port: 1}
	p.table[key(19)] = objectNhlfe{Port: 19}
	p.look(key(16))
	p.look(key(17))
	p.look(key(18))
	next := newPlainShortcuts()
	next.words, next.cells, next.seen, next.table = p.words, p.cells, p.seen, p.table
	next.adopt(next.table)
	for label := uint32(16); label < 20; label++ {
		is, ok := next.look(key(label))
		if want, there := next.table[key(label)]; ok != there || is != want {
			t.Errorf("label %d is %+v (%v), want %+v (%v)", label, is, ok, want, there)
		}
	}
	if n := len(next.free) + len(next.left); n != maxLabelCells-3 {
		t.Errorf("%d cells are free, want %d", n, maxLabelCells-3)
	}
}

// Of LSPs that come and go, nothing is left.
func TestNothingIsLeftOfLabels(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setUp(2 * maxLabelCells)
		w.nothingIsLeft()
	})
}

func (w *world) nothingIsLeft() {
	w.Helper()
	for e, err := range w.d.AllLabels() {
		w.Fatalf("left: %+v, %v", e, err)
	}
	var key uint64
	if err := w.d.maps.Reservations.NextKey(nil, &key); !errors.Is(err, ebpf.ErrKeyNotExist) {
		w.Errorf("left: reservation %x, %v", key, err)
	}
	s := &w.d.labelShortcuts
	if i := slices.IndexFunc(s.words, func(word uint64) bool { return word != 0 }); i >= 0 {
		w.Errorf("left: a shortcut at %d: %x", i, s.words[i])
	}
	if n := len(s.free) + len(s.left); n != maxLabelCells {
		w.Errorf("%d cells are free, want %d", n, maxLabelCells)
	}
}

// setUp sets up LSPs past a router and removes them, a thousand at a time: each has a label of its own, and begins by
// an FTN with a reservation.
func (w *world) setUp(n int) {
	w.Helper()
	const atOnce = 1000
	label := NHLFE{Port: 7, MAC: macA, Push: []Label{{Label: 17}}}
	first := label
	first.Reserved, first.Reservation = true, Reservation{Rate: 1 << 20, Burst: 1 << 16}
	for i := range uint32(n) {
		w.check(w.d.SetLabel(1, FirstLabel+i, label))
		w.check(w.d.SetFTN(1, 1+i, first))
		if i >= atOnce {
			w.check(w.d.DeleteLabel(1, FirstLabel+i-atOnce))
			w.check(w.d.DeleteFTN(1, 1+i-atOnce))
		}
	}
	for i := uint32(max(0, n-atOnce)); i < uint32(n); i++ {
		w.check(w.d.DeleteLabel(1, FirstLabel+i))
		w.check(w.d.DeleteFTN(1, 1+i))
	}
}

// BenchmarkLabels gives the time of an LSP's label and FTN with a reservation, for writing and removing them.
func BenchmarkLabels(b *testing.B) {
	inWorld(b, func(w *world) {
		b.ResetTimer()
		w.setUp(b.N)
		b.StopTimer()
		w.nothingIsLeft()
	})
}

// Programs take the shortcut to a label before they look into the table, and not the one to another label.
func TestSwitchingTakesShortcutsToLabels(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(2)
		w.space(l)
		w.change(l.out[0], func(p *Port) { p.Mode = Kernel })
		p := packet{}
		first := objectLabelKey{Space: 1, Label: FirstLabel} // has the place that the second one wants, too
		second := objectLabelKey{Space: 1, Label: FirstLabel + 1}
		for placeOf(1<<labelBits|uint64(second.Label)) != placeOf(1<<labelBits|uint64(first.Label)) {
			second.Label++
		}
		keys := []objectLabelKey{first, second}
		for i, k := range keys {
			w.label(0, k.Label, l.ahead(0, Label{Label: uint32(100 + i)}))
		}
		came := func(label uint32) []byte { return labelled(p.bytes(), entry{label, 64, 0}) }
		left := func(label uint32) []byte { return labelled(p.behind(0, mac(2), mac(1)), entry{label, 63, 0}) }
		for i, k := range keys {
			have := w.send(came(k.Label), skbuff{})
			w.expectLabelled(have, verdictRedirect, left(uint32(100+i)), l.passed(1))
		}
		s := &w.d.labelShortcuts
		_, word, _ := s.find(objectLabelKey{Space: 1, Label: keys[0].Label})
		s.cells[*word%maxLabelCells].Push[0] = 300 << 12
		w.expectLabelled(w.send(came(keys[0].Label), skbuff{}), verdictRedirect, left(300), l.passed(1))
		w.check(w.d.DeleteLabel(1, keys[0].Label))
		have := w.send(came(keys[0].Label), skbuff{})
		w.expectLabelled(have, verdictShot, have.Frame, l.passed(0, fmt.Sprintf("unknown label %d", w.a)))
	})
}
