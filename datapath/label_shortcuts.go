package datapath

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pergola-net/pergola/datapath/mapmem"
)

// The sizes of shortcuts, as in bpf/label_table.h.
const (
	maxLabelShortcuts = 32768
	maxLabelCells     = 16384

	cellsOfCPU = 2

	cellBits  = 14
	labelBits = 21
)

// labelShortcuts are where programs find most labels without a lookup in a hash. The labels are all in the table, too:
// a shortcut is written after it and taken away before it.
type labelShortcuts struct {
	mu     sync.Mutex
	memory mapmem.Memory
	wait   func() error // for programs
	words  []uint64
	cells  []objectNhlfe
	free   []uint64 // cells
	left   []uint64 // cells that programs may still look at, until they have been waited for
}

// openLabelShortcuts adopts those of an earlier process.
func (d *DataPath) openLabelShortcuts() (err error) {
	s := &d.labelShortcuts
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = mapmem.WaitForPrograms
	if s.words, err = mapmem.Values[uint64](&s.memory, d.maps.LabelShortcuts); err != nil {
		return err
	}
	if s.cells, err = mapmem.Values[objectNhlfe](&s.memory, d.maps.LabelCells); err != nil {
		return err
	}
	table := map[objectLabelKey]objectNhlfe{}
	var (
		key    objectLabelKey
		record objectNhlfe
	)
	at := d.maps.Labels.Iterate()
	for at.Next(&key, &record) {
		table[key] = record
	}
	if err := at.Err(); err != nil {
		return fmt.Errorf("read labels: %w", err)
	}
	s.adopt(table)
	return nil
}

// adopt keeps shortcuts that say what the table says. An earlier process may have died between two stores.
func (s *labelShortcuts) adopt(table map[objectLabelKey]objectNhlfe) {
	used, found := map[uint64]bool{}, false
	for place, word := range s.words {
		number, cell := word>>cellBits, word%maxLabelCells
		key := objectLabelKey{Space: uint32(number >> labelBits), Label: uint32(number % (1 << labelBits))}
		is, there := table[key]
		switch {
		case word == 0:
			continue
		case there && is == s.cells[cell] && placeOf(number) == uint64(place) && !used[cell]:
			used[cell] = true
		default:
			atomic.StoreUint64(&s.words[place], 0)
		}
		found = true
	}
	for cell := range uint64(maxLabelCells) {
		switch {
		case used[cell]:
		case found:
			s.left = append(s.left, cell)
		default: // no program has ever found one
			s.free = append(s.free, cell)
		}
	}
	for key, record := range table {
		s.put(key, record)
	}
}

func placeOf(number uint64) uint64 { return number * 0x9e3779b97f4a7c15 >> 49 }

// find gives the number of a label and the word where it may have its shortcut. false: it cannot have one.
func (s *labelShortcuts) find(k objectLabelKey) (number uint64, word *uint64, ok bool) {
	number = uint64(k.Space)<<labelBits | uint64(k.Label)
	return number, &s.words[placeOf(number)], number < 1<<(64-cellBits)
}

// put makes the label's shortcut say what the table says, if its place is free. s.mu is held.
func (s *labelShortcuts) put(k objectLabelKey, record objectNhlfe) {
	number, word, ok := s.find(k)
	was := atomic.LoadUint64(word)
	has := was != 0 && was>>cellBits == number
	if !ok || was != 0 && !has || has && s.cells[was%maxLabelCells] == record {
		return
	}
	cell, ok := s.take()
	if !ok { // better none than an old one
		s.drop(k)
		return
	}
	s.cells[cell] = record
	atomic.StoreUint64(word, number<<cellBits|cell)
	if has {
		s.left = append(s.left, was%maxLabelCells)
	}
}

// drop takes the label's shortcut away, if it has one. s.mu is held.
func (s *labelShortcuts) drop(k objectLabelKey) {
	number, word, _ := s.find(k)
	was := atomic.LoadUint64(word)
	if was == 0 || was>>cellBits != number {
		return
	}
	atomic.StoreUint64(word, 0)
	s.left = append(s.left, was%maxLabelCells)
}

// take gives a cell that no program looks at. false: there is none.
func (s *labelShortcuts) take() (cell uint64, ok bool) {
	if len(s.free) == 0 {
		if len(s.left) == 0 || s.wait() != nil {
			return 0, false
		}
		s.free, s.left = s.left, s.free
	}
	last := len(s.free) - 1
	cell, s.free = s.free[last], s.free[:last]
	return cell, true
}

func (s *labelShortcuts) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.Close()
}
